"""What is lost by learning from some of the units: a quarter, a half and all of them.

    python benchmarks/cap.py                    # 5,100,000 users x 20: about 15 minutes
    python benchmarks/cap.py --users 200000     # a quick look

A fit counts everybody, and learns from as many units as have 60 million list entries. Here the cap
is set to a quarter and a half of the entries of a generated shop, and lifted. Printed are NDCG of
all users in the window learned from (the objective), the lift in the next window, which no fit has
seen, with its 90 % interval over users, and seconds over those of the fit on all units.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pyarrow as pa

import trimtab as tt
from shared import generate_drift
from trimtab.learn import counted

K, N_LISTED, N_ITEMS, PURCHASES_PER_USER = 10, 20, 20_000, 4.0
SHARES = (0.25, 0.5, 1.0)
LEARNERS = {"default": tt.BiasLearner(k=K), "paper": tt.BiasLearner.paper(k=K)}


def as_table(sets: Any) -> pa.Table:
    """Purchases as a table."""
    users = np.repeat(np.arange(len(sets.indptr) - 1), np.diff(sets.indptr))
    return pa.table({"user_id": users, "item_id": sets.items.astype(np.int64)})


def main() -> None:
    """Fit at each share, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=5_100_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    data = generate_drift(options.users, N_ITEMS, N_LISTED, PURCHASES_PER_USER)
    recs, recent, test = data.recs(), as_table(data.recent), as_table(data.test)
    learning = np.diff(data.recent.indptr) > 0
    n_units, n_entries = int(learning.sum()), int(learning.sum()) * N_LISTED
    del data
    print(f"{n_units:,} learning units with {n_entries:,} list entries")
    for name, learner in LEARNERS.items():
        seconds = {}
        for share in reversed(SHARES):
            counted.MOST_ENTRIES = int(share * n_entries)
            began = time.perf_counter()
            bias = learner.fit(recs, recent)
            seconds[share] = time.perf_counter() - began
            judged = tt.evaluate(bias.apply(recs, K), test, K, baseline=recs)
            low, high = judged["ndcg_low"], judged["ndcg_high"]
            print(
                f"{name:8} {share:5.0%} of the units: NDCG {bias.summary.after:.5f} in the window, "
                f"lift in the next {judged['ndcg_lift']:+.2%} ({low:+.2%} to {high:+.2%}), "
                f"{seconds[share] / seconds[1.0]:.2f} x the time of all",
                flush=True,
            )


if __name__ == "__main__":
    main()
