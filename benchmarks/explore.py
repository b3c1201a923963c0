"""The cost and benefit of exploring: relevance against coverage, novelty and share of fresh items.

    python benchmarks/explore.py    # about a minute

Complete Journey, category engine, lists of 100, the default learner; e of the 10 slots go to items
with little data. Means over dates.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import trimtab as tt
from trimtab.datasets import Log, load_complete_journey
from trimtab.engines import Category
from trimtab.replay.windows import rolling_dates, split_log
from trimtab.tables.times import as_datetime

K, N_LISTED, MOST = 10, 100, 3
MEASURES = {
    "ndcg": "NDCG@10 of the next 7 days",
    "shown": "different items shown",
    "novelty": "novelty: mean -log2 of a shown item's share of sales",
    "fresh": "share of slots with fresh items",
}


def explore_on(log: Log, day: Any) -> list[dict[str, float]]:
    """One row per number of slots used to explore."""
    split = split_log(log, day)
    engine = Category(items=log.items, level=log.levels[-1])
    before = engine.fit(split.train, as_datetime(split.recent_from)).recommend(None, N_LISTED)
    tonight = engine.fit(split.known, as_datetime(split.test_from)).recommend(
        split.test["user_id"], N_LISTED
    )
    bias = tt.BiasLearner(k=K).fit(before, split.recent, history=split.train, items=log.catalogue())
    fresh = pd.Series(bias.fresh, index=np.asarray(bias.item_ids))
    sold = split.known["item_id"].to_pandas().value_counts(normalize=True)
    rows = []
    for explore in range(MOST + 1):
        top = bias.apply(tonight, k=K, explore=explore)
        items = top["item_id"].to_pandas()
        rows.append(
            {
                "explore": explore,
                "ndcg": tt.evaluate(top, split.test, k=K)["ndcg"],
                "shown": items.nunique(),
                "novelty": float(-np.log2(items.map(sold)).mean()),
                "fresh": float(items.map(fresh).fillna(True).astype(bool).mean()),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    warnings.simplefilter("ignore", tt.GuardWarning)
    log = load_complete_journey()
    dates = rolling_dates("2017-06-14", "2017-12-13", every="28d")
    rows = [row for day in dates for row in explore_on(log, day)]
    means = pd.DataFrame(rows).groupby("explore").mean()
    table = Table("explore", *MEASURES.values(), title=f"{len(dates)} dates")
    for explore, row in means.iterrows():
        table.add_row(
            str(explore),
            f"{row['ndcg']:.4f} ({row['ndcg'] / means['ndcg'].iloc[0] - 1:+.1%})",
            f"{row['shown']:.0f}", f"{row['novelty']:.2f}", f"{row['fresh']:.1%}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
