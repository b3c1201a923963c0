"""Lift by the number of windows that the default learner uses, over dates of a log.

python benchmarks/windows.py                                  # the Complete Journey, nine dates
python benchmarks/windows.py --log sales.parquet --tz Europe/London --first 2010-06-09 --every 28

The training lists of a window come from an engine trained on the events before it; the lists that
are evaluated, on the week after the date, from an engine trained on all events before the date.
"""

from __future__ import annotations

import argparse
import warnings
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

import trimtab as tt
from trimtab.datasets import load_complete_journey, read_log
from trimtab.engines import Markov
from trimtab.replay.windows import Window, split_log
from trimtab.tables.log import Log
from trimtab.tables.times import as_datetime

DAYS = 3


def add_window(table: pa.Table, window: Window) -> pa.Table:
    return table.append_column("window", pa.repeat(pa.scalar(str(window.first)), table.num_rows))


def lifts(log: Log, day: date, most: int) -> list[float]:
    """Return the lift of NDCG@10 with biases from the last window, the last two, and so on."""
    split = split_log(log, day, recent_days=DAYS)
    tonight = Markov().fit(split.known, as_datetime(split.test_from)).recommend(n=50)
    baseline = tt.evaluate(tonight, split.test)["ndcg"]
    recs, recent, found = [], [], []
    for back in range(1, most + 1):
        window = Window.of(day - timedelta(DAYS * back), DAYS, log.tz)
        lists = Markov().fit(window.history(log), as_datetime(window.start)).recommend(n=50)
        recs.append(add_window(lists, window))
        recent.append(add_window(window.events(log), window))
        bias = tt.BiasLearner().fit(
            pa.concat_tables(recs), pa.concat_tables(recent), history=split.train,
            items=log.catalogue(),
        )  # fmt: skip
        found.append(tt.evaluate(bias.apply(tonight), split.test)["ndcg"] / baseline - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", help="events, .parquet or .csv; default: the Complete Journey")
    parser.add_argument("--tz")
    parser.add_argument("--first", type=date.fromisoformat, default=date(2017, 6, 7))
    parser.add_argument("--every", type=int, default=21)
    parser.add_argument("--dates", type=int, default=9)
    parser.add_argument("--most", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    log = read_log(options.log, options.tz) if options.log else load_complete_journey()
    rows = []
    for place in range(options.dates):
        day = options.first + timedelta(options.every * place)
        rows.append(lifts(log, day, options.most))
        print(day, *(f"{lift:+.1%}" for lift in rows[-1]), flush=True)
    print("mean", *(f"{lift:+.1%}" for lift in np.mean(rows, axis=0)))
    print("worst", *(f"{lift:+.1%}" for lift in np.min(rows, axis=0)))


if __name__ == "__main__":
    main()
