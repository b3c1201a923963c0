"""What every front door must do as memory does: cases of fit, apply and evaluate, and refusals.

A door has `fit`, `apply` and `evaluate`, which take the tables that those of memory take.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import files_of, shuffled
from large_tables import Tables, as_text, change, require_same_refusal, weighed
from made_biases import make_bias
from made_rerankers import UNTIL, events_of, make_reranker
from repeat_shop import RepeatShop

N_USERS, N_ITEMS, N_LEARNED = 300, 40, 30
NUMBERS = r"-?\d[\d.e-]*|nan|inf"
ANY_ID = r"user_id \d+|'(user|item)_id'"


def with_type(table: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    place = table.column_names.index(column)
    return table.set_column(place, column, table[column].cast(kind, safe=False))


def with_windows(table: pa.Table, windows: list[Any]) -> pa.Table:
    """Rows shared out among windows."""
    places = pa.array(np.arange(len(table)) % len(windows))
    return table.append_column("window", pa.array(windows).take(places))


# Fits -------------------------------------------------------------------------------------------


@functools.cache
def shop_tables() -> Tables:
    shop = RepeatShop(repeats=0.4, drift=0.7, n_users=150)
    return {name: getattr(shop, name) for name in ("recs", "recent", "history")}


def edited(**edits: Callable[[pa.Table], Any]) -> Tables:
    return shop_tables() | {name: edit(shop_tables()[name]) for name, edit in edits.items()}


def drop(*columns: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns(list(columns))


def one_window(tables: Tables) -> Tables:
    newest = max(tables["recs"]["window"].to_pylist())
    return tables | {
        name: tables[name].filter(pc.equal(tables[name]["window"], newest)).drop_columns("window")
        for name in ("recs", "recent")
    }


def bare(tables: Tables) -> Tables:
    return {name: tables[name] for name in ("recs", "recent")}


def counted(history: pa.Table, times: bool = False) -> pa.Table:
    """Counts of items, with the last time or without any."""
    found = history.group_by("item_id").aggregate([("user_id", "count"), ("timestamp", "max")])
    found = found.rename_columns(["item_id", "count", "timestamp"]).sort_by("item_id")
    return found if times else found.drop_columns("timestamp")


def as_dates(table: pa.Table) -> pa.Table:
    return with_type(as_local(table), "timestamp", pa.date32())


def as_local(table: pa.Table) -> pa.Table:
    return with_type(table, "timestamp", pa.timestamp("us"))


def user_weights(tables: Tables) -> pa.Table:
    """A third of the users counts nothing, and a few are not in the table."""
    users = np.unique(tables["recs"]["user_id"].to_numpy())[:-7]
    return pa.table({"user_id": users, "weight": (users % 3) * 0.7})


def of_some(start: int, stop: int) -> Callable[[pa.Table], pa.Table]:
    """Events of some users only: in some parts nobody has any."""
    own = (pc.field("user_id") >= start) & (pc.field("user_id") < stop)
    return lambda table: weighed(table.filter(own), 1)


def nothing_weighs() -> Tables:
    """Buyers with a list weigh nothing."""
    one = one_window(shop_tables())
    users = np.unique(one["recs"]["user_id"].to_numpy())
    bought = one["recent"].slice(0, 1).to_pydict() | {"user_id": [int(users[-1]) + 1]}
    recent = pa.concat_tables([one["recent"], pa.table(bought, one["recent"].schema)])
    return one | {"recent": recent, "weights": pa.table({"user_id": users, "weight": 0.0 * users})}


def fit_cases() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What `tests/golden` has not: a name, a learner, and what its `fit` is given."""
    tables, bias, reranker = shop_tables(), tt.BiasLearner(), tt.RerankLearner()
    no_users, no_times = drop("user_id"), drop("timestamp")
    weights = {"weights": user_weights(tables)}
    yield "rows in any order", reranker, {name: shuffled(own) for name, own in tables.items()}
    yield "scale of each list", tt.BiasLearner(scale="list"), tables
    yield "additive scale", tt.BiasLearner(scale="additive"), tables
    yield "weighted events", bias, edited(recent=weighed, history=weighed) | weights
    yield "weighted events, reranker", reranker, edited(recent=weighed, history=weighed)
    yield "weighted purchases only", bias, edited(recent=weighed)
    yield "history of a few", bias, edited(history=of_some(147, 150), recent=weighed)
    yield "events of some", bias, edited(history=of_some(0, 70), recent=of_some(0, 70))
    yield "user weights", reranker, tables | weights
    yield "no history, no times", bias, bare(edited(recent=no_times))
    yield "history without users", bias, edited(history=lambda own: no_users(weighed(own)))
    yield "history without times", bias, edited(history=no_times)
    yield "neither", bias, edited(history=lambda own: own.select(["item_id"]))
    untimed = edited(history=lambda own: shuffled(no_times(weighed(own))), recent=weighed)
    yield "weighted history without times", bias, untimed
    yield "purchases without times", bias, edited(recent=no_times)
    yield "neither users nor times", bias, edited(history=no_users, recent=no_times)
    yield "dates", bias, edited(history=as_dates, recent=as_dates)
    yield "dates, purchases without times", bias, edited(history=as_dates, recent=no_times)
    local = tt.RerankLearner(repeats="add", widen="listed", metric="map", k=5, scale="list")
    yield "times of no zone", local, one_window(edited(history=as_local, recent=as_local))
    yield "history twice", bias, edited(history=lambda own: pa.concat_tables([own, own]))
    yield "counts", bias, edited(history=counted)
    yield "counts with times", bias, edited(history=partial(counted, times=True))
    yield "counts, one window", bias, one_window(edited(history=counted))
    yield "all weigh nothing", bias, nothing_weighs()
    for scale in ("log", "list"):
        learner = tt.BiasLearner(method="ascent", metric="map", penalty=0.5, scale=scale)
        yield f"ascent, {scale}", learner, one_window(bare(tables))
    paper = tt.BiasLearner.paper(metric="acc", max_cycles=1)
    yield "paper, windows, weights", paper, bare(tables) | weights
    start = paper.fit(**bare(tables))
    learner = tt.BiasLearner(method="ascent", unlisted="zero", penalty=0.5)
    yield "from a start", learner, one_window(bare(tables)) | {"start": start}
    twice = edited(recs=lambda own: pa.concat_tables([own, own.slice(0, 50)]))
    yield "duplicates", bias, twice | {"duplicates": "max"}


def check_fits(doors: list[Any], folder: Any) -> None:
    """Every door learns the bytes that memory learns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        for name, learner, given in fit_cases():
            local = learner.fit(**given)
            expected = files_of(local, folder / name / "memory")
            for number, door in enumerate(doors):
                found = door.fit(learner, **given)
                assert files_of(found, folder / name / str(number)) == expected, name


def check_refused_fits(door: Any) -> None:
    history, recent = shop_tables()["history"], shop_tables()["recent"]
    users = np.unique(shop_tables()["recs"]["user_id"].to_numpy())
    nothing = pa.table({"user_id": users, "weight": np.zeros(len(users))})
    counts = counted(history)
    with_weight = counts.append_column("weight", pa.array(np.ones(len(counts))))
    negative = counts.set_column(1, "count", pc.negate(counts["count"]))
    recs = shop_tables()["recs"]
    for given in (
        {"history": with_weight},
        {"history": negative},
        {"recent": recent.append_column("weight", pa.array(np.zeros(len(recent))))},
        {"recent": recent.append_column("weight", pa.array(-np.ones(len(recent))))},
        {"recent": recent.drop_columns("item_id")},
        {"recent": as_text(recent)},
        {"recent": recent.slice(0, 0)},
        {"recent": recent.slice(0, 1).set_column(0, "user_id", pa.array([9999]))},
        {"recs": pa.concat_tables([recs, recs.slice(0, 1)])},
        {"recs": recs.slice(0, 0)},
        {"weights": nothing},
        {"duplicates": "first"},
    ):
        learner, own = tt.BiasLearner(), shop_tables() | given
        require_same_refusal(partial(learner.fit, **own), partial(door.fit, learner, **own), ANY_ID)
    learner = tt.BiasLearner(unlisted="zero", method="ascent")
    for score in (-1.0, np.nan):
        own = {"recs": change(recs, "score", 5, score), "recent": recent}
        in_memory, in_parts = partial(learner.fit, **own), partial(door.fit, learner, **own)
        require_same_refusal(in_memory, in_parts, NUMBERS)
    learner = tt.RerankLearner()
    for given in (
        {"history": None},
        {"history": history.drop_columns("user_id")},
        {"history": history.drop_columns("timestamp")},
        {"history": history.append_column("count", pa.repeat(1, len(history)))},
        {"history": as_text(history)},
        {"recent": recent.drop_columns("timestamp")},
    ):
        own = shop_tables() | given
        require_same_refusal(partial(learner.fit, **own), partial(door.fit, learner, **own), ANY_ID)
    with pytest.raises(tt.SettingError, match="start is given"):
        door.fit(learner, **shop_tables(), start=make_bias({1: 0.5}))


# Lists ------------------------------------------------------------------------------------------

BIASES = {item: float(bias) for item, bias in enumerate(np.linspace(-1, 1, N_LEARNED) ** 3)}
TEXT_BIASES = {f"iü{item}": bias for item, bias in BIASES.items()}


@functools.cache
def draw_recs(seed: int = 0, longest: int = 12) -> pa.Table:
    """Lists of one to twelve items, in random order."""
    rng = np.random.default_rng(seed)
    listed = [rng.permutation(N_ITEMS)[: rng.integers(1, longest + 1)] for _ in range(N_USERS)]
    users, items = np.repeat(np.arange(N_USERS), [len(own) for own in listed]), np.hstack(listed)
    scores = rng.integers(1, 9, len(users)) / 4  # with ties
    return shuffled(pa.table({"user_id": users, "item_id": items, "score": scores}))


def draw_pairs(n_rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, N_USERS + 40, n_rows), rng.integers(0, N_ITEMS + 9, n_rows)
    return pa.table({"user_id": users, "item_id": items})


@functools.cache
def draw_events(n_rows: int = 900, seed: int = 2) -> pa.Table:
    days = np.random.default_rng(seed).integers(-3, 60, n_rows).tolist()
    times = [UNTIL - timedelta(days=day, hours=day % 5) for day in days]
    return draw_pairs(n_rows, seed).append_column("timestamp", pa.array(times))


def apply_cases() -> Iterator[tuple[Any, dict[str, Any]]]:
    """A model, and what its `apply` is given; most cases have several options at once."""
    recs, small = draw_recs(), with_type(draw_recs(), "item_id", pa.int8())
    some, twice = pa.table({"item_id": np.arange(0, 45, 2)}), pa.concat_tables([recs, draw_recs(1)])
    for scale in ("log", "additive", "list"):
        bias = make_bias(BIASES, excluded=(3, 17), scale=scale, depth=6)
        yield bias, {"recs": recs, "exclude": draw_pairs(2_000), "allowed": some, "k": 4}
        yield bias, {"recs": recs, "depth": 3, "k": 8}
    yield make_bias(BIASES, unlisted="zero"), {"recs": recs, "exclude": draw_pairs(0)}
    # Ids of items that enter may not fit the type of the lists; who shows the first is chance.
    yield make_bias({5: 0.5, 1_000: 1.1}, unlisted="zero"), {"recs": small, "k": 3}
    yield make_bias(BIASES), {"recs": recs, "allowed": pa.table({"item_id": [1_000]})}
    yield make_bias(BIASES, depth=4), {"recs": recs, "k": 20}  # warnings come once
    yield make_bias(BIASES), {"recs": twice, "duplicates": "mean", "depth": "all"}
    hours = [datetime(2026, 10, 25, hour, 30, tzinfo=UNTIL.tzinfo) for hour in (0, 1)]
    for windows in ([date(2026, 9, 30), date(2026, 10, 1)], hours):
        text = with_windows(as_text(recs), windows)
        yield make_bias(TEXT_BIASES), {"recs": text, "k": 5}
    narrow = with_type(with_type(recs, "user_id", pa.int16()), "item_id", pa.int32())
    yield make_bias(BIASES), {"recs": narrow, "k": 5}
    yield from rerank_cases()


def rerank_cases() -> Iterator[tuple[Any, dict[str, Any]]]:
    recs, events = draw_recs(), draw_events()
    for options in (
        {"widen": "any"}, {"widen": "listed"}, {"sources": ("own",)}, {"sources": ()},
        {"learned": False}, {"repeats": False}, {"scale": "list"},
    ):  # fmt: skip
        reranker = make_reranker(BIASES, {4: 0.5}, trending=[7, 3, 9], depth=8, **options)
        yield reranker, {"recs": recs, "history": events, "k": 5}
    reranker = make_reranker(BIASES, trending=[7, 3], excluded=(2,), depth=5)
    given = {"exclude": draw_pairs(500), "allowed": pa.table({"item_id": np.arange(35)})}
    given |= {"recs": with_windows(draw_recs(), ["a", "b"]), "history": events}
    given["recs"] = pa.concat_tables([given["recs"], given["recs"].slice(0, 3)])
    for as_of in (UNTIL, UNTIL + timedelta(days=2)):
        yield reranker, given | {"as_of": as_of, "duplicates": "max", "depth": "all"}
    reranker = make_reranker(BIASES, trending=[7, 3])
    # Parts whose users have events but no lists.
    few = recs.filter(pa.array(recs["user_id"].to_numpy() < 20))
    yield reranker, {"recs": few, "history": draw_events(4_000)}
    yield reranker, {"recs": recs, "history": events.slice(0, 0)}
    yield reranker, {"recs": recs, "k": 15}
    weights = (np.arange(len(events)) % 3) * (np.arange(len(events)) % 100 < 50) / 2
    yield reranker, {"recs": recs, "history": events.append_column("weight", pa.array(weights))}
    plain = make_reranker(BIASES, trending=[7, 3], has_zone=False)
    yield plain, {"recs": recs, "history": as_dates(events)}


def bad_lists() -> Iterator[tuple[Any, dict[str, Any]]]:
    """A model, and what it refuses."""
    recs, bias = draw_recs(), make_bias(BIASES)
    for bad in (
        change(recs, "item_id", 7, None),
        change(recs, "score", 1_500, None),
        change(change(recs, "score", 1_500, np.nan), "score", 99, np.inf),
        pa.concat_tables([recs, recs.slice(50, 1), recs.slice(900, 3)]),
        with_type(recs, "score", pa.string()),
        recs.drop_columns(["score"]),
        recs.slice(0, 0),
        as_text(recs),
    ):
        yield bias, {"recs": bad}
    zero = make_bias(BIASES, unlisted="zero")
    yield zero, {"recs": change(recs, "score", 900, -2.0)}
    yield zero, {"recs": recs, "depth": 3}
    for options in (
        {"k": 0}, {"duplicates": "first"}, {"depth": "some"}, {"depth": 0}, {"as_of": UNTIL},
        {"history": draw_events()}, {"exclude": as_text(draw_pairs(9))},
        {"allowed": pa.table({"item_id": pa.array([], pa.int64())})},
    ):  # fmt: skip
        yield bias, {"recs": recs, **options}
    events, reranker = draw_events(), make_reranker(BIASES)
    for bad in (
        change(events, "item_id", 700, None),
        change(events, "timestamp", 700, None),
        with_type(events, "timestamp", pa.timestamp("us")),
        as_text(events),
        events.append_column("weight", pa.array(np.zeros(len(events)))),
        events.append_column("weight", pa.array(np.linspace(-1, 1, len(events)))),
        events.drop_columns(["timestamp"]),
        events_of(*((1, 1, 1),) * 1_000, (1, 1, -90)),  # far after all others
    ):
        yield reranker, {"recs": recs, "history": bad}
    for as_of in (UNTIL - timedelta(1), "soon"):
        yield reranker, {"recs": recs, "history": events, "as_of": as_of}
        yield reranker, {"recs": recs, "as_of": as_of}


def check_refused_lists(door: Any) -> None:
    for model, given in bad_lists():
        in_memory = partial(model.apply, **given)
        require_same_refusal(in_memory, partial(door.apply, model, **given), NUMBERS)


# Metrics ----------------------------------------------------------------------------------------


def draw_lists(seed: int, by: str = "rank") -> pa.Table:
    """Lists of some users, in random order."""
    rng = np.random.default_rng(seed)
    users = np.flatnonzero(rng.random(250) < 0.8)
    items = np.argsort(rng.random((len(users), N_ITEMS)), axis=1)[:, :8]
    ranks = np.tile(np.arange(1, 9), len(users)) / 1.0
    return shuffled(pa.table({"user_id": users.repeat(8), "item_id": items.ravel(), by: ranks}))


def draw_truth(n_rows: int = 600) -> pa.Table:
    rng = np.random.default_rng(9)
    return pa.table({
        "user_id": rng.integers(0, 280, n_rows), "item_id": rng.integers(0, 45, n_rows),
        "revenue": rng.integers(0, 5, n_rows) * 0.7,
    })  # fmt: skip


def metric_tables(*names: str) -> Tables:
    tables = {
        "topk": draw_lists(0), "truth": draw_truth(), "baseline": draw_lists(1),
        "weights": pa.table({"user_id": np.arange(20, 90), "weight": np.logspace(-200, 100, 70)}),
    }  # fmt: skip
    return {name: own for name, own in tables.items() if name in ("topk", "truth", *names)}


def evaluate_cases() -> Iterator[dict[str, Any]]:
    every = metric_tables("baseline", "weights")
    for names in ((), ("weights",), ("baseline",)):
        yield metric_tables(*names) | {"k": 5}
    yield every | {"k": 5, "weight": "revenue"}
    for weight in (0.25, 1.0):  # purchases of the same weight count alike
        same = pa.array(np.where(draw_truth()["revenue"].to_numpy() > 1, weight, 0.0))
        yield (
            metric_tables()
            | {"truth": draw_truth().set_column(2, "revenue", same)}
            | {"weight": "revenue"}
        )
    yield {name: as_text(own) for name, own in every.items()} | {
        "topk": as_text(draw_lists(0, by="score"))
    }
    windowed = {name: with_windows(every[name], ["w0", "w1", "w2"])
                for name in ("topk", "truth", "baseline")}  # fmt: skip
    yield every | windowed | {"weight": "revenue"}
    few = draw_lists(0).filter(pc.field("user_id") < 9)  # most have bought, but have no list
    yield {"topk": few, "truth": draw_truth(5_000)}


def bad_metrics() -> Iterator[dict[str, Any]]:
    tables = metric_tables("baseline", "weights")
    topk, truth, baseline, weights = (tables[name] for name in (
        "topk", "truth", "baseline", "weights"))  # fmt: skip
    for bad in (
        {"topk": change(topk, "rank", 700, None)},
        {"topk": topk.slice(0, 0)},
        {"topk": topk.drop_columns(["rank"])},
        {"topk": topk.drop_columns(["user_id"])},
        {"topk": with_windows(topk, ["w"])},
        {"topk": change(topk, "user_id", 0, 999).slice(0, 1)},  # no user in common
        {"baseline": change(baseline, "rank", 700, np.nan)},
        {"baseline": change(baseline, "user_id", 0, 999).slice(0, 1)},
        {"truth": change(truth, "item_id", 500, None)},
        {"truth": truth.slice(0, 0)},
        {"truth": as_text(truth)},
        {"weights": pa.concat_tables([weights, weights.slice(5, 1)])},
        {"weights": change(weights, "weight", 5, -1.0)},
        {"weights": pa.table({"user_id": np.arange(280), "weight": np.zeros(280)})},
        {"k": 0},
    ):
        yield tables | bad
    for revenue in (np.zeros, lambda n: np.linspace(-1, 1, n), lambda n: [None] * n):
        column = pa.array(revenue(len(truth)), pa.float64())
        yield {"topk": topk, "truth": truth.set_column(2, "revenue", column), "weight": "revenue"}


def check_refused_metrics(door: Any) -> None:
    for given in bad_metrics():
        in_memory = partial(tt.evaluate, **given)
        require_same_refusal(in_memory, partial(door.evaluate, **given), NUMBERS)
