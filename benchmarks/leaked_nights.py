"""How often a refresh takes lists for leaked: lists made before a window, and lists that saw it.

python benchmarks/leaked_nights.py --log sales.parquet --tz Europe/London --first 2010-03-01
python benchmarks/leaked_nights.py --log sales.parquet --tz Europe/London --first 2010-06-01 \
    --engine factorization --nights 12

Each night has its own window and up to five windows before it, all with honest lists.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

import trimtab as tt
from trimtab.daily.leaked_lists import leave_out_leaked
from trimtab.datasets import read_log
from trimtab.engines import Engine, Factorization, Markov, Popularity, Repeat
from trimtab.tables.log import Log, Window
from trimtab.tables.times import as_datetime

DAYS = 3
FEWEST = 20  # buyers in a window
COUNTS = (2, 3, 6)  # windows
ENGINES: dict[str, type[Engine]] = {
    "markov": Markov, "repeat": Repeat, "popularity": Popularity, "factorization": Factorization,
}  # fmt: skip


def make_lists(engine: Engine, log: Log, window: Window, until: int) -> pa.Table:
    """Return the lists of a window's buyers, by an engine that has seen events until an instant."""
    seen = Window(window.first, until, until).history(log)
    users = pc.unique(window.events(log)["user_id"])
    return engine.fit(seen, as_datetime(until)).recommend(users, n=50)


def is_refused(log: Log, windows: list[Window], recs: list[pa.Table]) -> bool:
    """Return whether a night is refused, or one of its windows left out."""
    chosen = [(window, window.first - timedelta(1)) for window in windows]
    try:
        return len(leave_out_leaked(log, chosen, recs)) < len(chosen)
    except tt.TrimtabError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", required=True, help="events, .parquet or .csv")
    parser.add_argument("--tz")
    parser.add_argument("--first", type=date.fromisoformat, required=True)
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--engine", choices=ENGINES, default="markov")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    log = read_log(options.log, options.tz)
    windows: list[Window] = []
    recs: list[pa.Table] = []
    refused: Counter[tuple[str, int]] = Counter()
    for place in range(options.nights):
        window = Window.of(options.first + timedelta(DAYS * place), DAYS, log.tz)
        if pc.count_distinct(window.events(log)["user_id"]).as_py() < FEWEST:
            continue
        engine = ENGINES[options.engine]()
        windows.insert(0, window)
        recs.insert(0, make_lists(engine, log, window, window.start))
        leaked = make_lists(engine, log, window, window.stop)
        for n in (n for n in COUNTS if n <= len(windows)):
            refused["nights", n] += 1
            refused["honest", n] += is_refused(log, windows[:n], recs[:n])
            refused["leaked", n] += is_refused(log, windows[:n], [leaked, *recs[1:n]])
    for n in COUNTS:
        nights, honest, seen = (refused[kind, n] for kind in ("nights", "honest", "leaked"))
        print(
            f"{options.engine}, {n} windows: of {nights} nights, {honest} refused with honest "
            f"lists, {seen} with lists that saw the window"
        )


if __name__ == "__main__":
    main()
