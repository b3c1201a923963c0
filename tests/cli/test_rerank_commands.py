"""The commands of the reranker give what Python gives, and refuse bad input as a whole."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from dated_shop import FIRST, TODAY, DatedShop
from trimtab.replay import large_lists
from trimtab.tables.files import read_table, write_table

NOW = f"{TODAY}T00:00:00+00:00"
FIT = (
    "rerank", "fit", "--recs", "recs.parquet", "--recent", "recent.parquet", "--history",
    "history.parquet",
)  # fmt: skip
APPLY = (
    "rerank", "apply", "--reranker", "saved", "--recs", "tonight.parquet", "--history",
    "log.parquet", "--as-of", NOW,
)  # fmt: skip


@pytest.fixture(scope="module")
def shop() -> DatedShop:
    return DatedShop(n_windows=3, n_users=1_500)


@pytest.fixture(scope="module")
def learned(shop) -> tt.Reranker:
    return tt.RerankLearner().fit(shop.recs, shop.recent, history=shop.history)


@pytest.fixture(scope="module")
def folder(shop, learned, tmp_path_factory) -> Path:
    """All tables as Parquet and CSV, and a saved reranker."""
    folder = tmp_path_factory.mktemp("rerank")
    tables = {
        "recs": shop.recs, "recent": shop.recent, "history": shop.history,
        "tonight": shop.tonight, "log": shop.log,
    }  # fmt: skip
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
        write_table(table, folder / f"{name}.csv")
    learned.save(folder / "saved")
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def top_of(shop: DatedShop, learned: tt.Reranker, **options: object) -> pa.Table:
    return learned.rank(shop.tonight, history=shop.log, as_of=NOW, **options).top


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_fit_prints_and_saves_what_python_learns(call, folder, learned, kind, bytes_of):
    words = [word.replace(".parquet", f".{kind}") for word in FIT]
    done = call(*words, "--out", f"as-{kind}", cwd=folder)
    assert done.returncode == 0, done.stderr
    saved = tt.Reranker.load(folder / f"as-{kind}")
    assert saved.summary == learned.summary
    assert saved.learned == learned.learned
    assert bytes_of(saved.bias.table()) == bytes_of(learned.bias.table())


def test_fit_says_where_the_gain_comes_from(call, folder, learned):
    done = call(*FIT, "--out", "told", cwd=folder)
    summary = learned.summary
    assert (
        f"forecast for the coming days: {summary.forecast:+.1%} (90 % interval "
        f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}), from 3 held-out windows"
    ) in done.stdout
    assert f"{summary.lifts['trend']:+.1%} by the biases alone" in done.stdout
    assert f"{summary.lifts['personal']:+.1%} with each user's own purchases" in done.stdout
    assert summary.sources == ("own",)
    assert "items that the user bought before are added to lists" in done.stdout
    for row in learned.coefficients().to_pylist():
        assert (row["meaning"] in done.stdout) == (row["kind"] != "item")
    assert done.stdout.endswith("saved to told\n")
    assert done.stderr == ""


def test_fit_with_settings_as_json(call, folder, shop):
    done = call(
        *FIT, "--out", "set", "--k", 5, "--metric", "map", "--scale", "log", "--widen", "none",
        "--repeats", "never", "--seed", 2, "--json", cwd=folder,
    )  # fmt: skip
    learner = tt.RerankLearner(
        k=5, metric="map", scale="log", widen="none", repeats="never", seed=2
    )
    expected = learner.fit(shop.recs, shop.recent, history=shop.history)
    told = json.loads(done.stdout)
    assert told["lifts"] == expected.summary.lifts
    assert told["coefficients"] == expected.coefficients().to_pylist()
    assert tt.Reranker.load(folder / "set").settings == expected.settings


def test_fit_without_earlier_purchases_says_that_biases_rank(call, shop, tmp_path):
    """All users of the window are new."""
    others = pc.add(shop.history["user_id"], 1_000_000)
    tables = (*shop.newest(), shop.history.set_column(0, "user_id", others))
    for name, table in zip(("recs", "recent", "history"), tables, strict=True):
        write_table(table, tmp_path / f"{name}.parquet")
    done = call(*FIT, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no gain by each user's own purchases: all users are ranked by the biases" in done.stdout
    assert "coefficients" not in done.stdout
    assert tt.Reranker.load(tmp_path / "out").summary.kept == 0


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_apply_writes_what_python_gives(call, folder, shop, learned, kind):
    words = [word.replace(".parquet", f".{kind}") for word in APPLY]
    done = call(*words, "--out", f"top.{kind}", cwd=folder)
    assert done.returncode == 0, done.stderr
    expected = top_of(shop, learned)
    assert read_table(folder / f"top.{kind}").equals(expected)
    left_out = learned.rank(shop.tonight, history=shop.log, as_of=NOW).left_out
    assert done.stdout.splitlines() == [
        f"wrote {expected.num_rows} rows to top.{kind}",
        f"{shop.log.num_rows} events; {sum(left_out)} events were left out: {left_out.later} at or "
        f"after the instant of the lists, {left_out.unknown_users} of users without a list",
    ]
    assert done.stderr == ""  # what was left out is said once


def test_apply_with_limits(call, folder, shop, learned):
    pairs = top_of(shop, learned).slice(0, 60).select(["user_id", "item_id"])
    allowed = pa.table({"item_id": range(0, 300, 3)})
    write_table(pairs, folder / "pairs.csv")
    write_table(allowed, folder / "allowed.parquet")
    call(
        *APPLY, "--out", "limited.parquet", "--k", 5, "--depth", 12, "--exclude", "pairs.csv",
        "--allowed", "allowed.parquet", cwd=folder,
    )  # fmt: skip
    expected = top_of(shop, learned, k=5, depth=12, exclude=pairs, allowed=allowed)
    assert pq.read_table(folder / "limited.parquet").equals(expected)


def test_apply_without_an_instant_uses_all_that_is_known(call, folder, shop, learned):
    known = shop.events(FIRST, (TODAY - FIRST).days)
    write_table(known, folder / "known.parquet")
    words = list(APPLY[:-2])
    words[words.index("log.parquet")] = "known.parquet"
    done = call(*words, "--out", "now.parquet", cwd=folder)
    expected = learned.apply(shop.tonight, history=known)
    assert pq.read_table(folder / "now.parquet").equals(expected)
    assert " at or after" not in done.stdout


@pytest.mark.parametrize("most", [10**9, 10])
def test_apply_does_not_take_one_odd_event_for_now(call, folder, shop, monkeypatch, most):
    """One event of 2031 made all others years old; lists in files are refused alike."""
    monkeypatch.setattr(large_lists, "LARGE", most)
    known = shop.events(FIRST, (TODAY - FIRST).days)
    odd = datetime(2031, 5, 1, 12, tzinfo=UTC)
    times = pa.chunked_array([pa.array([odd], known["timestamp"].type)])
    event = known.slice(0, 1).set_column(known.column_names.index("timestamp"), "timestamp", times)
    write_table(pa.concat_tables([known, event]), folder / "odd.parquet")
    words = list(APPLY[:-2])
    words[words.index("log.parquet")] = "odd.parquet"
    done = call(*words, "--out", "odd-top.parquet", cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "2031-05-01 12:00 UTC" in done.stderr
    assert "pass as_of (--as-of)" in done.stderr
    assert not (folder / "odd-top.parquet").exists()


def test_a_time_zone_for_timestamps_without_one(call, folder, shop, learned):
    local = pc.local_timestamp(shop.log["timestamp"].cast(pa.timestamp("us", "Asia/Tokyo")))
    write_table(shop.log.set_column(2, "timestamp", local), folder / "naive.parquet")
    words = list(APPLY)
    words[words.index("log.parquet")] = "naive.parquet"
    refused = call(*words, "--out", "zoned.parquet", cwd=folder)
    assert refused.returncode == 2
    assert "time zone" in refused.stderr
    words[-1] = f"{TODAY}T09:00:00"  # the same instant
    done = call(*words, "--tz", "Asia/Tokyo", "--out", "zoned.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(folder / "zoned.parquet").equals(top_of(shop, learned))


BAD_FITS = {
    "an unknown rule": (("--widen", "all"), ["widen='all'", "listed"]),
    "an unknown rule for repeats": (("--repeats", "some"), ["repeats='some'", "auto"]),
    "an unknown scale": (("--scale", "cubic"), ["scale='cubic'", "log"]),
    "no slots": (("--k", "0"), ["k=0"]),
    "lists that are missing": (("--recs", "none.parquet"), ["none.parquet: no such file"]),
    "events without users": (("--history", "counts.csv"), ["history", "'user_id'", "BiasLearner"]),
    "purchases without times": (("--recent", "untimed.csv"), ["recent", "'timestamp'"]),
    "lists without scores": (("--recs", "untimed.csv"), ["'score'", "found user_id"]),
    "the folder of its lists": (("--out", "."), ["--out .: holds the input --recs"]),
    "a file for a folder": (("--out", "recs.parquet"), ["recs.parquet"]),
}


@pytest.fixture
def bad(folder, tmp_path) -> Path:
    """A copy of the files, and some that cannot be used."""
    for name in ("recs", "recent", "history", "tonight", "log"):
        shutil.copy(folder / f"{name}.parquet", tmp_path)
    shutil.copytree(folder / "saved", tmp_path / "saved")
    (tmp_path / "counts.csv").write_text("item_id,count\n1,5\n")
    (tmp_path / "untimed.csv").write_text("user_id,item_id\n1,5\n")
    return tmp_path


def assert_refused(done, folder: Path, before: dict[str, bytes], named: list[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("trimtab: ")
    assert [text for text in named if text not in done.stderr] == []
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("case", BAD_FITS)
def test_a_bad_fit_writes_nothing(call, bad, case):
    more, named = BAD_FITS[case]
    before = contents(bad)
    assert_refused(call(*FIT, "--out", "out", *more, cwd=bad), bad, before, named)


BAD_APPLIES = {
    "no reranker": (("--reranker", "none"), ["none: no saved reranker here"]),
    "a file": (("--reranker", "log.parquet"), ["log.parquet"]),
    "lists that are missing": (("--recs", "none.parquet"), ["none.parquet: no such file"]),
    "events without times": (("--history", "untimed.csv"), ["'timestamp'"]),
    "no instant": (("--as-of", "soon"), ["as_of='soon'"]),
    "an instant without a zone": (("--as-of", str(TODAY)), ["time zone"]),
    "an instant in what was learned": (
        ("--as-of", f"{TODAY - timedelta(9)}T00:00:00+00:00"), ["as_of=", "learned from"],
    ),
    "an unknown zone": (("--tz", "Mars/Base"), ["tz='Mars/Base'"]),
    "a depth that is no number": (("--depth", "deep"), ["--depth deep", "all"]),
    "a file of another kind": (("--out", "top.txt"), ["top.txt", ".parquet"]),
    "its own lists": (("--out", "tonight.parquet"), ["--out tonight.parquet: is the input --recs"]),
    "its own events": (("--out", "./log.parquet"), ["is the input --history log.parquet"]),
    "its own reranker": (("--out", "saved/top.csv"), ["is inside the input --reranker saved"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_APPLIES)
def test_a_bad_apply_writes_nothing(call, bad, case):
    more, named = BAD_APPLIES[case]
    before = contents(bad)
    assert_refused(call(*APPLY, "--out", "top.parquet", *more, cwd=bad), bad, before, named)


def test_a_damaged_reranker_is_refused(call, bad):
    (table,) = (bad / "saved").glob("*.parquet")
    table.write_bytes(table.read_bytes()[:-9])
    before = contents(bad)
    done = call(*APPLY, "--out", "top.parquet", cwd=bad)
    assert_refused(done, bad, before, ["saved", "damaged"])
    (bad / "saved" / "header.json").write_text("{")
    before = contents(bad)
    done = call(*APPLY, "--out", "top.parquet", cwd=bad)
    assert_refused(done, bad, before, ["header.json"])


def test_biases_are_not_a_reranker(call, bad, learned):
    learned.bias.save(bad / "bias")
    before = contents(bad)
    done = call(*APPLY, "--reranker", "bias", "--out", "top.parquet", cwd=bad)
    assert_refused(done, bad, before, ["bias", "saved reranker"])


def test_nothing_else_is_left(call, folder, bad):
    call(*FIT, "--out", "new/out", cwd=bad)
    call(*APPLY, "--out", "new/top.csv", cwd=bad)
    found = {name.split("-")[0] for name in names(bad / "new")}
    assert found == {"out", "out/header.json", "out/reranker", "top.csv"}
