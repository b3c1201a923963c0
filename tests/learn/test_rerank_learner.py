"""What a RerankLearner learns: gains where users repeat, nothing where they do not; its errors."""

from __future__ import annotations

import warnings
from dataclasses import fields
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import as_dates, as_text, files_of, with_column
from novelty_shop import BLOCKS, NoveltyShop, new_items
from novelty_shop import NOW as AFTER_NOVELTIES
from repeat_shop import NOW, START, RepeatShop, W
from trimtab import threads
from trimtab.errors import GuardWarning
from trimtab.models.model import RerankSummary
from trimtab.models.widening import TERMS


def fit(shop: RepeatShop, tables: dict | None = None, **settings) -> tt.Reranker:
    """A fit on a shop that may have no drift, of which the biases warn; some tables may differ."""
    given = {name: getattr(shop, name) for name in ("recs", "recent", "history")}
    with warnings.catch_warnings(action="ignore", category=tt.TrimtabWarning):
        return tt.RerankLearner(**settings).fit(**{**given, **(tables or {})})


def apply(reranker: tt.Reranker, shop: RepeatShop, **settings) -> pa.Table:
    return reranker.apply(shop.tonight, history=shop.known, as_of=NOW, **settings)


@pytest.fixture(scope="module")
def shop() -> RepeatShop:
    return RepeatShop(repeats=0.5, n_users=300)


@pytest.fixture(scope="module")
def learned(shop) -> tt.Reranker:
    return fit(shop)


# What it gains ------------------------------------------------------------------------------


def test_it_gains_where_users_repeat():
    """The gain comes, and two times in three at least inside the 90 % interval."""
    inside = 0
    for seed in range(3):
        shop = RepeatShop(repeats=0.5, seed=seed)
        reranker = fit(shop)
        of_bias = shop.lift(reranker.bias.apply(shop.tonight))
        lift = shop.lift(apply(reranker, shop))
        assert lift > of_bias + 0.3
        assert reranker.summary.sources == ("own",)
        inside += reranker.summary.forecast_low < lift < reranker.summary.forecast_high
    assert inside >= 2


def test_without_drift_or_repeats_nothing_happens():
    lifts = []
    for seed in range(4):
        shop = RepeatShop(repeats=0.0, seed=seed)
        lifts.append(shop.lift(apply(fit(shop), shop)))
    assert abs(np.mean(lifts)) < 0.005
    assert min(lifts) > -0.02


def test_what_trends_is_added_where_tastes_drift():
    shop = RepeatShop(repeats=0.0, drift=1.5, n_users=300)
    reranker = fit(shop)
    assert "trending" in reranker.summary.sources
    assert shop.lift(apply(reranker, shop)) > shop.lift(reranker.bias.apply(shop.tonight)) + 0.05
    best = reranker.bias.table()["item_id"].to_numpy()[reranker.trending]
    sold = shop.events(NOW - timedelta(W), W).select(["user_id", "item_id"]).to_pandas()
    counts = sold.drop_duplicates().groupby("item_id").size()
    assert len(best) == 30
    assert counts[best[:5]].min() >= counts.drop(best[:5]).quantile(0.95)


def test_new_items_are_told_apart():
    """What is new is on no list; its features go further than those of anything listed."""
    shop = NoveltyShop()
    reranker = fit(shop)
    known = reranker.bias.table()["item_id"].to_pylist()
    parts = [reranker.item_part[known.index(item)] for item in new_items(BLOCKS - 2)]
    assert min(-np.diff(parts[:4])) > 0.1
    assert parts[0] > parts[3] + 1.0
    top = reranker.apply(shop.tonight, k=10, history=shop.known, as_of=AFTER_NOVELTIES)
    values = [tt.evaluate(lists, shop.later)["ndcg"] for lists in (shop.tonight, top)]
    lift, summary = values[1] / values[0] - 1, reranker.summary
    assert summary.forecast_low < lift < summary.forecast_high


def test_terms_alone_gain(shop, learned):
    """With `widen="none"` nothing is added, and lists are still ranked by what the user bought."""
    reranker = fit(shop, widen="none")
    assert reranker.summary.sources == ()
    assert not added_to(apply(reranker, shop, k=20), shop)
    assert 0.1 < shop.lift(apply(reranker, shop)) < shop.lift(apply(learned, shop))


def added_to(top: pa.Table, shop: RepeatShop) -> pa.Table:
    """Rows that are on no list of the engine."""
    keys = ["user_id", "item_id"]
    return top.select(keys).join(shop.tonight.select(keys), keys, join_type="left anti").to_pylist()


def pairs_of(table: pa.Table) -> set[tuple[int, int]]:
    return set(zip(table["user_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))


def test_listed_only(shop):
    """Few items are on lists: the user's own may be added only if they are."""
    few = np.arange(40)
    narrow = [t.filter(pc.is_in(t["item_id"], pa.array(few))) for t in (shop.recs, shop.tonight)]
    reranker = fit(shop, {"recs": narrow[0]}, widen="listed")
    with warnings.catch_warnings(action="ignore", category=tt.TrimtabWarning):
        top = reranker.apply(narrow[1], history=shop.known, as_of=NOW)
    added = pairs_of(top) - pairs_of(narrow[1])
    assert len(added) > 100
    assert {item for _, item in added} <= set(narrow[1]["item_id"].to_pylist())


# What the user has --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def new_only() -> RepeatShop:
    """A shop whose engine lists only what the user does not have yet."""
    return RepeatShop(repeats=0.5, lists_own=False, n_users=300)


def test_an_engine_that_lists_only_new_items_stays_so(new_only):
    for repeats in ("auto", "never"):
        reranker = fit(new_only, repeats=repeats)
        assert "own" not in reranker.summary.sources
        assert not reranker.may_repeat
        assert not pairs_of(apply(reranker, new_only, k=20)) & pairs_of(new_only.known)


def test_it_may_be_told_to_add_what_users_have(new_only):
    reranker = fit(new_only, repeats="add")
    assert "own" in reranker.summary.sources
    assert reranker.may_repeat
    assert new_only.lift(apply(reranker, new_only)) > 1.0


def test_it_may_be_told_never_to_add_what_users_have(shop, learned):
    assert learned.may_repeat
    reranker = fit(shop, repeats="never")
    added = pairs_of(apply(reranker, shop, k=20)) - pairs_of(shop.tonight)
    assert not added & pairs_of(shop.known)
    assert "own" not in reranker.summary.sources


# The same result ----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["log", "additive", "list"])
def test_threads_change_nothing_and_tables_are_not_changed(scale, tmp_path, monkeypatch):
    shop = RepeatShop(repeats=0.3, drift=0.7, n_users=300)
    tables = {name: getattr(shop, name) for name in ("recs", "recent", "history")}
    copies = {name: pa.table(t.to_pydict(), t.schema) for name, t in tables.items()}
    monkeypatch.setattr(threads, "LEAST_SPLIT", 1)
    found = []
    for n_threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", n_threads)
        reranker = fit(shop, scale=scale)
        found.append(files_of(reranker, tmp_path / n_threads))
    assert (len(reranker.learned) > 0, reranker.bias.bias.any()) == (True, True)
    assert found[0] == found[1]
    assert tables == copies


def test_any_frame(shop, learned, tmp_path):
    frames = {name: getattr(shop, name).to_pandas() for name in ("recs", "recent", "history")}
    from_pandas = fit(shop, frames)
    assert files_of(from_pandas, tmp_path / "pandas") == files_of(learned, tmp_path / "arrow")


def test_purchases_of_the_windows_count_once(shop, learned, tmp_path):
    """Those of earlier windows may be in the history or not; those of the newest never count."""
    first = min(shop.recent["timestamp"].to_pylist())
    early = shop.history.filter(pc.less(shop.history["timestamp"], first))
    for history in (early, shop.known):
        again = fit(shop, {"history": history})
        assert again.summary == learned.summary
        assert again.learned == learned.learned


# What it tells ------------------------------------------------------------------------------


def test_coefficients_come_with_sentences(learned):
    table = learned.coefficients()
    assert table.column_names == ["name", "kind", "value", "error", "meaning"]
    rows = {row["name"]: row for row in table.to_pylist()}
    assert next(iter(rows)) == "score"
    assert {name: rows[name]["kind"] for name in TERMS} == dict.fromkeys(TERMS, "personal")
    assert rows["own"]["kind"] == "added"
    assert {row["kind"] for row in rows.values()} == {"score", "item", "personal", "added"}
    for row in rows.values():
        assert row["meaning"].endswith(" x as likely")
        assert row["error"] > 0
    more = np.exp(rows["bought_before"]["value"])
    assert rows["bought_before"]["meaning"] == f"bought before by the user: {more:.2g} x as likely"
    twice = np.exp(np.log(2) * rows["times_bought"]["value"])
    assert f"bought twice as often by the user: {twice:.2g} x" in rows["times_bought"]["meaning"]
    assert rows["score"]["meaning"].startswith("a score e times as high")


def test_scores_on_other_scales_are_explained_by_their_gap(shop):
    reranker = fit(shop, scale="list")
    assert "gap from the first to the k-th" in reranker.coefficients()["meaning"][0].as_py()


def test_the_summary(shop, learned):
    summary = learned.summary
    assert set(summary) == {field.name for field in fields(RerankSummary)}
    assert (summary["metric"], summary.k, summary.n_windows) == ("ndcg", 10, 3)
    assert 0 < summary.n_users <= shop.recs.select(["user_id", "window"]).group_by(
        ["user_id", "window"]).aggregate([]).num_rows  # fmt: skip
    assert 0.5 < summary.kept <= 2.0
    assert summary.forecast_low < summary.forecast < summary.forecast_high
    assert summary.forecast_windows == 3
    assert list(summary.lifts) == ["trend", "personal", "own"]
    assert summary.lifts["trend"] < summary.lifts["personal"] < summary.lifts["own"]
    assert repr(learned).startswith(f"Reranker({len(learned)} items; kept {summary.kept:.2f}")
    assert "added items: own; ndcg@10" in repr(learned)


@pytest.mark.parametrize("metric", ["acc", "map"])
def test_other_metrics(shop, metric):
    reranker = fit(shop, metric=metric, k=5)
    assert (reranker.summary.metric, reranker.summary.k) == (metric, 5)
    before = tt.evaluate(shop.tonight, shop.later, k=5)[metric]
    after = tt.evaluate(apply(reranker, shop, k=5), shop.later, k=5)[metric]
    assert after > 1.2 * before


def test_weights(shop):
    """Users of weight 0 teach nothing: as if they had not bought in the windows."""
    users = np.unique(shop.recs["user_id"].to_numpy())
    weights = pa.table({"user_id": users, "weight": (users % 2).astype(float)})
    reranker = fit(shop, {"weights": weights})
    odd = np.unique(
        shop.recs.filter(pc.equal(pc.bit_wise_and(shop.recs["user_id"], 1), 1))["user_id"]
    )
    assert 0 < reranker.summary.n_users <= 3 * len(odd)
    assert shop.lift(apply(reranker, shop)) > 0.2


def test_a_warning_only_if_nothing_gains(shop):
    """Without drift the biases gain nothing, which does not matter where users repeat."""
    tt.RerankLearner().fit(shop.recs, shop.recent, history=shop.history)
    none = RepeatShop(repeats=0.0, n_users=300)
    with pytest.warns(GuardWarning, match="no clear gain in NDCG@10 on held-out data"):
        tt.RerankLearner().fit(none.recs, none.recent, history=none.history)


# Too little ---------------------------------------------------------------------------------

RECS = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8], "score": [3.0, 2, 3, 2]})


def events(users: list[int], items: list[int], days: list[str]) -> pa.Table:
    times = pa.array(np.array(days, "datetime64[us]"))
    return pa.table({"user_id": users, "item_id": items, "timestamp": times})


RECENT = events([1, 2], [8, 8], ["2026-03-02", "2026-03-03"])
BEFORE = ["2026-02-20", "2026-03-01", "2026-02-28", "2026-02-27"]
HISTORY = events([1, 2, 1, 2], [7, 8, 8, 9], BEFORE)


def test_four_rows_are_ranked_by_the_biases(bytes_of, tmp_path):
    with pytest.warns(GuardWarning, match="too little to tell"):
        reranker = tt.RerankLearner(k=1).fit(RECS, RECENT, history=HISTORY)
    assert reranker.learned == ()
    assert reranker.coefficients().num_rows == 0
    summary = reranker.summary
    assert (summary.kept, summary.sources) == (0.0, ())
    assert summary.forecast is summary.forecast_low is summary.forecast_high is None
    top = reranker.apply(RECS, k=1, history=HISTORY)
    assert bytes_of(top) == bytes_of(reranker.bias.apply(RECS, k=1))
    expected = files_of(reranker, tmp_path / "a")
    assert files_of(tt.Reranker.load(tmp_path / "a"), tmp_path / "b") == expected


def newest(shop: RepeatShop) -> dict[str, pa.Table]:
    """Lists and purchases of the newest window."""
    is_newest = pc.equal(pc.field("window"), pc.max(shop.recs["window"]))
    tables = {"recs": shop.recs, "recent": shop.recent}
    return {n: table.filter(is_newest).drop_columns("window") for n, table in tables.items()}


def test_one_window_and_users_who_never_bought(shop):
    """A history of other users: everybody is ranked by the biases."""
    moved = pc.add(shop.history["user_id"], 10_000)
    strangers = shop.history.set_column(0, "user_id", moved)
    reranker = fit(shop, {**newest(shop), "history": strangers})
    some = fit(shop, newest(shop))
    assert (reranker.learned, reranker.summary.n_users) == ((), 0)
    assert some.summary.forecast_windows == 0
    assert shop.lift(apply(some, shop)) > 0.2


def test_a_history_that_ends_too_early(shop, bytes_of):
    """Nothing is known just before the window: everybody is ranked by the biases."""
    old = shop.events(START, 30)
    reranker = fit(shop, {**newest(shop), "history": old})
    assert reranker.learned == ()
    assert bytes_of(apply(reranker, shop)) == bytes_of(reranker.bias.apply(shop.tonight))


def test_dates_and_categories(shop):
    """Timestamps may be dates, of whole days; items may have categories."""
    recent, history, known = map(as_dates, (shop.recent, shop.history, shop.known))
    items = pa.table({"item_id": range(120), "category": [f"c{n % 5}" for n in range(120)]})
    reranker = fit(shop, {"recent": recent, "history": history, "items": items})
    assert not reranker.has_zone
    top = reranker.apply(shop.tonight, history=known)
    assert shop.lift(top) > 0.3
    assert top.equals(reranker.apply(shop.tonight, history=known, as_of=NOW.date()))


# Errors -------------------------------------------------------------------------------------


REFUSED = {
    "widen='all': must be one of any, listed, none": {"widen": "all"},
    "repeats=True: must be one of auto, add, never": {"repeats": True},
    "k=0: must be": {"k": 0},
    "k=2.5: must be": {"k": 2.5},
    "metric='auc': must be one of": {"metric": "auc"},
    "scale='linear': must be one of": {"scale": "linear"},
    "seed=-1: must be": {"seed": -1},
}


def test_settings_are_checked_and_plain():
    for words, settings in REFUSED.items():
        with pytest.raises(tt.SettingError) as caught:
            tt.RerankLearner(**settings)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    learner = tt.RerankLearner(k=np.int64(5), seed=np.uint8(3))
    assert (type(learner.k), type(learner.seed)) == (int, int)


def with_zone(table: pa.Table) -> pa.Table:
    return with_column(table, "timestamp", pc.assume_timezone(table["timestamp"], "UTC"))


COUNTS = HISTORY.append_column("count", pa.array([1, 2, 3, 4]))
GIVEN = {"recs": RECS, "recent": RECENT, "history": HISTORY}
WITHOUT = (("history", "user_id"), ("history", "timestamp"), ("recent", "timestamp"))
TABLES = [
    *((f"{table} | '{name}'", {table: GIVEN[table].drop_columns(name)}) for table, name in WITHOUT),
    *(
        (f"'{name}' | integers | strings | history", {"history": as_text(HISTORY, name)})
        for name in ("user_id", "item_id")
    ),
    ("history | 'count' | one row per purchase", {"history": COUNTS}),
    ("history | BiasLearner", {"history": None}),
    ("history is empty", {"history": HISTORY.slice(0, 0)}),
    ("'timestamp' | time zone in history but not in recent", {"history": with_zone(HISTORY)}),
    ("'timestamp' | time zone in recent but not in history", {"recent": with_zone(RECENT)}),
    ("'timestamp' | recent", {"recent": with_column(RECENT, "timestamp", 1)}),
    ("'timestamp' | history | ISO", {"history": with_column(HISTORY, "timestamp", "a")}),
    ("duplicates='first'", {"duplicates": "first"}),
]


def test_tables_that_are_refused():
    for words, changes in TABLES:
        with pytest.raises(tt.TrimtabError) as caught:
            tt.RerankLearner(k=1).fit(**{**GIVEN, **changes})
        message = str(caught.value)
        assert all(word in message for word in words.split(" | ")), message
        assert "\n" not in message


def test_apply_refuses_an_early_instant_and_items_of_another_kind(learned, shop):
    end = max(shop.recent["timestamp"].to_pylist())
    with pytest.raises(tt.SettingError, match=r"as_of=.*must not be before"):
        learned.apply(shop.tonight, history=shop.known, as_of=end)
    with pytest.raises(tt.DataError, match=r"'item_id'.*strings.*recs"):
        learned.apply(as_text(shop.tonight, "item_id"), history=shop.known, as_of=NOW)
