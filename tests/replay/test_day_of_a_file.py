"""Which lists are for which day: the same in a refresh, a backtest and a simulation."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, TONIGHT, Shop, run_in_process
from trimtab.datasets import make_log
from trimtab.engines import Repeat
from trimtab.replay.dated_lists import find_lists
from trimtab.replay.results import Results, load_results
from trimtab.replay.training import find_leaks
from trimtab.replay.windows import Window
from trimtab.tables.times import DAY, Moment, as_datetime

QUICK = tt.BiasLearner(method="ascent")
pytestmark = pytest.mark.xdist_group("shop")


def backtest(shop: Shop, *more: object, status: int = 0):
    """What a backtest of the shop's lists says, and its tables."""
    given = ("--lists", shop.lists, "--events", shop.events, "--tz", "UTC", "--test", "3d")
    out = shop.folder / "judged"
    ran = run_in_process("backtest", *given, "--out", out, "--no-report", *more)
    assert ran.returncode == status, ran.stderr
    return ran, load_results(out) if status == 0 else None


def test_lists_of_a_day_are_for_the_next_unless_they_say_otherwise(made_shop: Shop, tmp_path):
    """A past day: made before it. Today and later: whatever there is, nothing has seen it."""
    lists = find_lists(made_shop.lists, "UTC")
    assert lists.newest(AS_OF) == TONIGHT
    path = tmp_path / f"{AS_OF}.parquet"
    own = pq.read_table(made_shop.lists / path.name)
    for until, expected in ((AS_OF, None), (TONIGHT, AS_OF)):
        column = pa.array([str(until)] * own.num_rows)
        pq.write_table(own.append_column("trained_until", column), path)
        found = find_lists(tmp_path, "UTC")
        if expected is None:
            with pytest.raises(tt.RefusedError, match="may have seen the day, which begins at"):
                found.newest(AS_OF)
        else:
            assert found.newest(AS_OF) == expected
    now = Moment.of(datetime.now(UTC).date()) + timedelta(1)  # whatever the clock says
    later = find_lists(tmp_path, "UTC")
    later.days[now] = path
    assert later.newest(now) == now


def test_what_a_backtest_recommends_is_what_a_refresh_publishes(shop: Shop):
    """To the last digit, for the bias and for the reranker."""
    methods = ("--method", "default", "--method", "reranker")
    _, results = backtest(shop, "--date", AS_OF, *methods, "--k", 5)
    found, forecasts = (
        {row["method"]: row for row in results.table(name).to_pylist()}
        for name in ("results", "forecasts")
    )
    truth = Window.of(AS_OF, 3 * DAY, "UTC").events(shop.log)
    given = {"finish_lists": True, "learner": tt.BiasLearner(k=5), "accept": ["guard"], "tz": "UTC"}
    for method, name in (("default", "top"), ("reranker", "lists")):
        version = shop.job(method=method, **given).run(AS_OF).version
        value = tt.evaluate(getattr(version, name)(), truth, k=5)["ndcg"]
        assert found[method]["value"] == value
    assert forecasts["reranker"]["forecast"] == version.forecast["forecast"]


def test_a_backtest_leaves_out_dates_whose_lists_have_seen_them(shop: Shop):
    later, honest = AS_OF - timedelta(2), AS_OF - timedelta(3)
    until = Window.of(
        later + timedelta(3), DAY, "UTC"
    )  # made again, by an engine that has seen more
    engine = Repeat().fit(until.history(shop.log), as_datetime(until.start))
    pq.write_table(engine.recommend(n=30), shop.lists / f"{honest}.parquet")
    with pytest.warns(tt.TrimtabWarning, match=rf"{later} is left out: the newest lists made .*"):
        _, results = backtest(shop, "--date", honest, "--date", later, "--method", "default")
    assert results.table("results")["date"].unique().to_pylist() == [str(honest)]
    alone = ("--date", later, "--method", "default", "--k", 4)
    with pytest.warns(tt.TrimtabWarning, match="is left out"):
        ran, _ = backtest(shop, *alone, status=2)
    assert "no date can be judged" in ran.stderr


def swinging(shares: list[float], n_users: int = 1_000):
    """Windows in whose lists some share of first-time purchases is, newest first."""
    users, events, recs = np.arange(n_users), [], []
    days = [Moment(2026, 3, 20) - timedelta(back) for back in range(len(shares))]
    for n, (day, share) in enumerate(zip(days, shares, strict=True)):
        items = np.where(users < round(share * n_users), n, 999)
        recs.append(pa.table({"user_id": users, "item_id": items, "score": np.ones(n_users)}))
        bought = {"item_id": [n] * n_users, "timestamp": [f"{day} 12:00"] * n_users}
        events.append(pa.table({"user_id": users, **bought}))
    windows = [Window.of(day, DAY, "UTC") for day in days]
    return make_log(pa.concat_tables(events), "UTC"), windows, recs


def test_hit_rates_that_swing_by_day_are_no_leak():
    """A news site: 18.7 % on one day, 6.1 to 10.6 % on the others."""
    for place in range(5):
        honest, before = [0.061, 0.072, 0.083, 0.106], (place - 1) % 5
        honest.insert(place, 0.187)
        # The last are two nights made again with today's engine.
        for leaked in ({}, {place: 0.3}, {place: 0.8}, {place: 0.7, before: 0.6}):
            shares = [leaked.get(n, share) for n, share in enumerate(honest)]
            findings = find_leaks(*swinging(shares))
            assert {n for n, own in enumerate(findings) if own is not None} == set(leaked)


def test_half_written_lists_are_named_once(shop: Shop):
    broken = shop.lists / f"{TONIGHT}.parquet"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    # They are to be published, and the job stops; or they are not needed.
    for more, status in ((("--finish-lists",), 2), (("--method", "reranker"), 2), ((), 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ran = run_in_process(*shop.arguments("--as-of", AS_OF, *more))
        said = ran.stderr + "".join(str(own.message) for own in caught)
        assert (ran.returncode, said.count("not a readable")) == (status, 1), said
        assert "not needed" not in said


def shift_scores(events, as_of):
    """An engine whose scores are below 0."""
    lists = tt.engines.Popularity().fit(events, as_of).recommend(n=20)
    return lists.set_column(2, "score", pa.array(-1.0 / lists["score"].to_numpy()))


def test_paper_is_skipped_where_scores_are_below_0(shop: Shop):
    given = ("--events", shop.events, "--engine", "test_day_of_a_file:shift_scores")
    methods = ("--method", "paper", "--method", "default", "--metric", "ndcg", "--date", AS_OF)
    out = ("--test", "3d", "--out", shop.folder / "below", "--no-report")
    with pytest.warns(tt.TrimtabWarning, match="paper is skipped: .* scores go down to -"):
        ran = run_in_process("backtest", *given, *methods, *out)
    assert ran.returncode == 0, ran.stderr
    rows = Results.load(shop.folder / "below").table("results").to_pylist()
    assert [row["method"] for row in rows] == ["long", "default"]


def test_a_published_reranker_in_exports_and_in_a_test(shop: Shop):
    """Biases that are exported are said to be only that; a test has lists of both groups."""
    for method, expected in (("bias", 0), ("reranker", 1)):
        shop.job(method=method).run(AS_OF)
        for name in ("boosts.csv", "top.sql"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out = ("--out", shop.folder / name)
                assert run_in_process("export", "--model", shop.store, *out).returncode == 0
            said = "".join(str(own.message) for own in caught)
            assert said.count("version 2 has a reranker, but only its biases") == expected
    recs, out = shop.lists / f"{TONIGHT}.parquet", shop.folder / "lists.parquet"
    given = ("--model", shop.store, "--lists", recs, "--history", shop.events, "--k", 5)
    found = []
    for more in ((), ("--salt", "summer", "--share", 0.3)):
        instant = ("--as-of", f"{AS_OF}T00:00:00+00:00")
        ran = run_in_process("apply", *given, *instant, "--out", out, *more)
        assert ran.returncode == 0, ran.stderr
        found.append(pq.read_table(out).to_pandas())
    everybody, test = found
    bucket = tt.abtest.Experiment("summer", 0.3).assign(test.user_id.tolist()).to_pylist()
    assert test.bucket.tolist() == bucket
    users = set(test.user_id[test.bucket == "treatment"])
    assert 0.2 < len(users) / test.user_id.nunique() < 0.4
    treated = test[test.user_id.isin(users)].drop(columns="bucket").reset_index(drop=True)
    assert treated.equals(everybody[everybody.user_id.isin(users)].reset_index(drop=True))
    engine = pq.read_table(recs).to_pandas().groupby("user_id").head(5)
    own = engine[~engine.user_id.isin(users)].sort_values("user_id", kind="stable")
    assert test.item_id[test.bucket == "control"].tolist() == own.item_id.tolist()
