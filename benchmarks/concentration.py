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
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import trimtab as tt
from als_engine import ALS
from trimtab.daily.concentration import Concentration, Shown
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
    recent_days: int = 3


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


class Night(NamedTuple):
    """What one method would publish at a date."""

    day: date
    method: str
    shown: Shown

    @property
    def is_refused(self) -> bool:
        """Whether the default limit refuses it."""
        return self.shown.finished.ten_items > self.shown.limit()

    def describe(self) -> str:
        """Return one line."""
        shares = (f"{own.ten_items:4.0%} ({own.one_item:4.0%})" for own in self.shown)
        said = "refused" if self.is_refused else "published"
        told = ", ".join(
            f"{name} {share}" for name, share in zip(Shown._fields, shares, strict=True)
        )
        return f"{self.day} {self.method:8} {told}, limit {self.shown.limit():4.0%}: {said}"


def replay(log: Log, engine: Engine, day: str, recent_days: int) -> Iterator[Night]:
    """Yield what the biases and the Reranker of a date would publish."""
    split = split_log(log, day, recent_days, 1)
    earlier = earlier_windows(log, split, recent_days, WINDOWS)
    case = Case(engine, log, split, N_LISTED, K, earlier)
    training = case.training
    now = as_datetime(split.test_from)
    lists = engine.fit(split.known, now).recommend(n=N_LISTED)
    reranker = training.fit(tt.RerankLearner(k=K))
    finished = {
        "bias": reranker.bias.apply(lists, K),
        "Reranker": reranker.apply(lists, K, history=split.known, as_of=now),
    }
    bought = Concentration.of(training.recent)
    for method, top in finished.items():
        yield Night(split.as_of, method, Shown.measure(reranker.bias, lists, top, K, bought))


def make_row(name: str, engine: str, method: str, nights: list[Night]) -> str:
    """Return a row of the table: the ranges over the dates."""

    def span(values: list[float]) -> str:
        low, high = min(values), max(values)
        return f"{low:.0%}" if round(low, 2) == round(high, 2) else f"{low:.0%} to {high:.0%}"

    shares = [
        span([getattr(own.shown, kind).ten_items for own in nights]) for kind in Shown._fields
    ]
    limit, on_lists = (
        span([own.shown.limit() for own in nights]),
        span([own.shown.finished.one_item for own in nights]),
    )
    refused = sum(own.is_refused for own in nights)
    cells = (f"{name}, {engine}", method, *shares, limit, on_lists, f"{refused} of {len(nights)}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for source in SOURCES:
        if source.option is not None:
            parser.add_argument(f"--{source.option}", type=Path, help=f"log of the {source.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    columns = ("log, engine", "method", *Shown._fields, "limit", "one item", "refused")
    rows = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for source in SOURCES:
        place = None if source.option is None else getattr(options, source.option)
        if source.option and place is None:
            continue
        log = load_complete_journey() if place is None else read_log(place, tz=source.tz)
        for name, engine in ENGINES.items():
            nights: defaultdict[str, list[Night]] = defaultdict(list)
            for day in source.dates:
                for night in replay(log, engine(), day, source.recent_days):
                    print(f"{source.name}, {name}, {night.describe()}", flush=True)
                    nights[night.method].append(night)
            rows += [make_row(source.name, name, method, own) for method, own in nights.items()]
    print("\n".join(rows))


if __name__ == "__main__":
    main()
