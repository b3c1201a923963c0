r"""How much of the lists of a daily job falls on a few items, and how often its limit refuses them.

    python benchmarks/concentration.py    # the Complete Journey
    python benchmarks/concentration.py --retail online_retail_2010.parquet \
        --films film_tweets_2013.parquet

At each date, biases and a Reranker are learned as by `trimtab refresh`, from up to six windows of
three days (news: of one day), and applied to lists for all users, k = 10.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import trimtab as tt
from als_engine import ALS
from trimtab.daily.publish_checks import Concentration, Shown
from trimtab.datasets import Log, load_complete_journey, read_log
from trimtab.engines import Engine, Markov
from trimtab.replay.outcome import Case
from trimtab.replay.windows import earlier_windows, split_log
from trimtab.tables.times import as_datetime

K, N_LISTED, WINDOWS = 10, 50, 6
ENGINES: dict[str, type[Engine]] = {"Markov": Markov, "ALS": ALS}


class Source(NamedTuple):
    """Where a log comes from, and the dates to replay."""

    name: str
    option: str | None
    tz: str
    dates: tuple[str, ...]
    window: str = "3d"


SOURCES = (
    Source(
        "Complete Journey (simulated)", None, "",
        ("2017-06-14", "2017-08-16", "2017-10-11", "2017-11-22", "2017-12-20"),
    ),
    Source(
        "UK gift shop", "retail", "Europe/London",
        ("2010-05-19", "2010-07-14", "2010-09-08", "2010-10-27", "2010-11-17"),
    ),
    Source(
        "film tweets", "films", "UTC",
        (
            "2013-04-04", "2013-04-24", "2013-05-22", "2013-06-19", "2013-07-17", "2013-08-14",
            "2013-08-28",
        ),
    ),
    Source("news", "news", "UTC", ("2017-10-04", "2017-10-05", "2017-10-06", "2017-10-07"), 1),
)  # fmt: skip


def replay(log: Log, engine: Engine, day: str, window: str) -> dict[str, Shown]:
    """What the biases and the Reranker of a date would publish."""
    split = split_log(log, day, window, "1d")
    earlier = earlier_windows(log, split, split.window.length, WINDOWS)
    training = Case(engine, log, split, N_LISTED, K, earlier).training
    now = as_datetime(split.test_from)
    lists = engine.fit(split.known, now).recommend(n=N_LISTED)
    reranker = training.fit(tt.RerankLearner(k=K))
    finished = {
        "bias": reranker.bias.apply(lists, K),
        "Reranker": reranker.apply(lists, K, history=split.known, as_of=now),
    }
    bought = Concentration.of(training.recent)
    return {
        method: Shown.measure(reranker.bias, lists, top, K, bought)
        for method, top in finished.items()
    }


def span(values: list[float]) -> str:
    """The range of shares."""
    return " to ".join(dict.fromkeys(f"{own:.0%}" for own in (min(values), max(values))))


def make_row(found: list[Shown]) -> list[str]:
    """The ranges over the dates, and how often the default limit refuses the lists."""
    ten = [span([getattr(own, kind).ten_items for own in found]) for kind in Shown._fields]
    limit = span([own.limit() for own in found])
    one = span([own.finished.one_item for own in found])
    refused = sum(own.finished.ten_items > own.limit() for own in found)
    return [*ten, limit, one, f"{refused} of {len(found)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for source in SOURCES:
        if source.option is not None:
            parser.add_argument(f"--{source.option}", type=Path, help=f"log of the {source.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    table = Table("log, engine", "method", *Shown._fields, "limit", "one item", "refused")
    for source in SOURCES:
        place = None if source.option is None else getattr(options, source.option)
        if source.option and place is None:
            continue
        log = load_complete_journey() if place is None else read_log(place, tz=source.tz)
        for name, engine in ENGINES.items():
            nights = [replay(log, engine(), day, source.window) for day in source.dates]
            for method in nights[0]:
                shown = make_row([night[method] for night in nights])
                table.add_row(f"{source.name}, {name}", method, *shown)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
