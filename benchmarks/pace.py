"""Windows of an hour and of a quarter of an hour on a fast log, and what a late refresh costs.

python benchmarks/pace.py                          the week of news in ../shared/data
python benchmarks/pace.py --log clicks.parquet     any log with user_id, item_id and timestamp
python benchmarks/pace.py --staleness              by the age of the last refresh; also a gift shop

Lists of 50 are by a Markov engine (ALS for the gift shop) that is trained every midnight. At 12
instants of three days a Reranker is learned on the windows before, applied to the lists of the
midnight before, and judged by NDCG@10 on the window that follows, for users who have a list.
"""

from __future__ import annotations

import argparse
import csv
import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import trimtab as tt
from als_engine import ALS, UnseenPopularity
from trimtab.datasets import Log, load_gift_shop, read_log
from trimtab.engines import Engine, Markov
from trimtab.learn.counted import count_tables
from trimtab.learn.learners import divide, warm_up
from trimtab.replay.windows import (
    WINDOWS,
    Window,
    default_test,
    find_holes,
    log_days,
    recent_windows,
    rolling_dates,
    rows_of_users,
)
from trimtab.tables.columns import USER
from trimtab.tables.times import HOUR, Moment, as_datetime, read_duration

ROOT = Path(__file__).parents[1]
NEWS = ROOT.parent / "shared" / "data" / "news_week.parquet"
FIGURES = ROOT / "docs" / "figures" / "staleness.csv"
# Of the instants, after three days; the news log has a hole from the 30th to the 37th.
HOURS = (1, 8, 14, 20, 27, 39, 42, 45, 51, 58, 64, 70)
FADING_HOURS = (1, 8, 14, 20, 51, 64)  # no refresh of a day before them falls into it
POPULAR = (5, 15, 60)  # minutes of sales
AGES = [
    timedelta(minutes=minutes) for minutes in (0, 5, 15, 60, 180, 360, 720, 1440)
]  # of the last refresh, with windows of an hour
DAYS_OLD = [timedelta(days=days) for days in (0, 1, 2, 3, 7, 14)]  # and of three days
GIFT_DATES = rolling_dates("2010-03-03", "2010-11-17", "49d")
SHOWN = ("engine", "Reranker", "nightly", *(f"top {minutes} min" for minutes in POPULAR))


@dataclass(frozen=True, eq=False)
class Shop:
    """A log, and what makes an engine."""

    log: Log
    engine: Callable[[], Engine]

    def before(self, moment: Moment) -> pa.Table:
        """The events before a moment."""
        return Window.of(moment, HOUR, self.log.tz).history(self.log)

    def instant(self, moment: Moment) -> Any:
        """The moment with the time zone."""
        return as_datetime(moment.instant(self.log.tz))


@functools.cache
def trained(shop: Shop, midnight: Moment) -> Engine:
    """The engine trained on everything before a midnight."""
    return shop.engine().fit(shop.before(midnight), shop.instant(midnight))


def list_for(shop: Shop, window: Window) -> tuple[pa.Table, pa.Table]:
    """Lists of the midnight before a window, and the events in it, of users who have both."""
    events, midnight = window.events(shop.log), Moment.of(window.first.date())
    lists = trained(shop, midnight).recommend(events, n=50)
    return lists, rows_of_users(events, lists)


def taught(shop: Shop, moment: Moment, window: str) -> dict[str, pa.Table]:
    """The tables of a fit at a moment."""
    windows = recent_windows(shop.log, moment, read_duration("window", window), WINDOWS)
    whole = [own for own in windows if not find_holes(shop.log, own, moment)]
    pairs = [[named(table, own) for table in list_for(shop, own)] for own in whole]
    recs, recent = (pa.concat_tables(tables) for tables in zip(*pairs, strict=True))
    return {"recs": recs, "recent": recent, "history": windows[0].history(shop.log)}


def named(table: pa.Table, window: Window) -> pa.Table:
    """The table with the window it is of."""
    return table.append_column("window", pa.array([str(window.first)] * len(table), pa.string()))


@functools.cache
def learned(shop: Shop, moment: Moment, window: str) -> tt.Reranker:
    """What a refresh at a moment learns."""
    return tt.RerankLearner(window=window).fit(**taught(shop, moment, window))


def ranked(shop: Shop, model: tt.Reranker, lists: pa.Table, moment: Moment) -> pa.Table:
    """The lists as of a moment."""
    return model.apply(lists, 10, history=shop.before(moment), as_of=shop.instant(moment))


def judge(lists: pa.Table, events: pa.Table) -> float:
    """NDCG@10."""
    return float(tt.evaluate(lists, events, k=10)["ndcg"])


# The pace ---------------------------------------------------------------------------------------


def at(shop: Shop, moment: Moment, window: str) -> dict[str, Any]:
    """What each method gives at an instant, the forecast, and the seconds of the fit."""
    lists, events = list_for(shop, Window.of(moment, read_duration("", window), shop.log.tz))
    tables, learner = taught(shop, moment, window), tt.RerankLearner(window=window)
    began = time.process_time()
    count_tables(learner.biases, *divide(learner, "error", **tables))
    counted = time.process_time()
    model = learner.fit(**tables)
    fitting, counting = time.process_time() - counted, counted - began
    midnight, known = Moment.of(moment.date()), shop.before(moment)
    row = {
        "engine": judge(lists, events),
        "Reranker": judge(ranked(shop, model, lists, moment), events),
        "nightly": judge(ranked(shop, learned(shop, midnight, "1h"), lists, midnight), events),
    }
    for minutes in POPULAR:
        engine = UnseenPopularity(window_days=minutes / 1440).fit(known, shop.instant(moment))
        row[f"top {minutes} min"] = judge(engine.recommend(lists, n=10), events)
    users = len(lists[USER].unique())
    return row | {"users": users, "forecast": model.forecast, "fit": fitting, "counting": counting}


def compare(shop: Shop, moments: Sequence[Moment], window: str) -> None:
    """Print a row for each instant, and what they say together."""
    print(f"\nwindow {window}: NDCG@10 on the {window} after each instant\n")
    print(f"{'instant':16s}  users" + "".join(f"{name:>11s}" for name in SHOWN)
          + "     came  forecast (90 %)          CPU of a fit, counting")  # fmt: skip
    rows = []
    for moment in moments:
        rows.append(row := at(shop, moment, window))
        came, told = row["Reranker"] / row["engine"] - 1, row["forecast"]
        row["came"] = came
        values = "".join(f"{row[name]:11.4f}" for name in SHOWN)
        said = "none"
        if told.forecast is not None:
            said = "{:+.0%} ({:+.0%} to {:+.0%})".format(*told)
        print(f"{moment!s:16s} {row['users']:6d}{values} {came:+8.0%}  {said:28s}"
              f"{row['fit']:8.1f} s {row['counting']:.1f} s", flush=True)  # fmt: skip
    summarise(rows)


def summarise(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print means, and how far from the best popularity and from the forecasts."""
    values = np.array([[row[name] for name in SHOWN] for row in rows])
    means = values.mean(axis=0)
    print(f"{'mean':23s}" + "".join(f"{mean:11.4f}" for mean in means))
    ours, popular = values[:, 1], values[:, -len(POPULAR) :]
    overall, each = ours.mean() / popular.mean(axis=0).max(), ours / popular.max(axis=1)
    print(
        f"Reranker / best popularity in hindsight: {overall:.3f} of means; worst instant "
        f"{each.min():.3f}"
    )
    told = [(row["came"], row["forecast"]) for row in rows if row["forecast"].forecast is not None]
    inside = sum(own.forecast_low <= came <= own.forecast_high for came, own in told)
    pairs = np.array([[own.forecast, came] for came, own in told])
    lifts, shares = pairs.mean(axis=0), (pairs / (1 + pairs)).mean(axis=0)
    print(
        f"forecasts: {inside} of {len(told)} lifts inside; mean forecast / mean lift "
        f"{lifts[0] / lifts[1]:.2f}; as shares of what is attained {shares[0]:.3f}, came "
        f"{shares[1]:.3f}"
    )
    fit, counting = (np.mean([row[name] for row in rows]) for name in ("fit", "counting"))
    print(f"CPU of a fit {fit:.1f} s, of which reading and counting {counting:.1f} s")


# Staleness --------------------------------------------------------------------------------------


def fade(
    shop: Shop, moments: Sequence[Moment], window: str, ages: Sequence[timedelta]
) -> list[tuple[float, float]]:
    """Hours since the last refresh, and the mean NDCG over that of the engine alone, minus 1.

    The lists are those of the midnight before the instant; the model, its windows and the events
    that it is applied with are as old as the refresh.
    """
    length = read_duration("window", window)
    values = np.zeros((len(moments), len(ages) + 1))
    for own, moment in zip(values, moments, strict=True):
        tested = Window.of(moment, default_test(length), shop.log.tz)
        lists, events = list_for(shop, tested)
        tops = (ranked(shop, learned(shop, moment - age, window), lists, moment - age)
                for age in ages)  # fmt: skip
        own[:] = [judge(top, events) for top in (lists, *tops)]
        print(f"{moment!s:16s} " + " ".join(f"{value:.4f}" for value in own), flush=True)
    lifts = values[:, 1:].mean(axis=0) / values[:, 0].mean() - 1
    return [(age / timedelta(hours=1), lift) for age, lift in zip(ages, lifts, strict=True)]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, default=NEWS)
    parser.add_argument("--tz", default="UTC")
    parser.add_argument("--windows", nargs="+", default=["1h", "15min"])
    parser.add_argument("--staleness", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    warm_up(True)
    fast = Shop(read_log(options.log, tz=options.tz), Markov)
    third = log_days(fast.log)[0] + timedelta(days=3)
    moments = [
        third + timedelta(hours=hours) for hours in (FADING_HOURS if options.staleness else HOURS)
    ]
    if not options.staleness:
        for window in options.windows:
            compare(fast, moments, window)
        return
    found = {
        "news": fade(fast, moments, "1h", AGES),
        "gift shop": fade(Shop(load_gift_shop(), ALS), GIFT_DATES, "3d", DAYS_OLD),
    }
    with FIGURES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["log", "hours", "lift"])
        for name, rows in found.items():
            for hours, lift in rows:
                print(f"{name:10s} {hours:6.2f} h  {lift:+.1%}")
                writer.writerow([name, round(hours, 4), round(lift, 4)])


if __name__ == "__main__":
    main()
