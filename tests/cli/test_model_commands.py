"""fit, apply and evaluate give what Python gives, for either model, on Parquet and on CSV."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import trimtab as tt
from dated_shop import FIRST, TODAY, DatedShop
from services import applied, make_bias, publish, request_of, running
from trimtab.daily.method_choice import learn_best
from trimtab.models import load
from trimtab.store import Store
from trimtab.tables.files import read_table, write_table

AWKWARD = ["007", "1e5", "7", "=1+1", "@x", "-x", "'q", "NA", "\U0001f600", "a,b"]
NOW = f"{TODAY}T00:00:00+00:00"
FIT = ("fit", "--lists", "recs.parquet", "--events", "recent.parquet")
RERANK = (*FIT, "--method", "reranker", "--history", "history.parquet")
APPLY = ("apply", "--lists", "tonight.parquet")
RANK = (*APPLY, "--model", "reranker", "--history", "log.parquet", "--as-of", NOW)


@pytest.fixture(scope="module")
def shop() -> DatedShop:
    return DatedShop(n_windows=3, n_users=1_500)


@pytest.fixture(scope="module")
def learned(shop) -> tt.Reranker:
    return tt.RerankLearner().fit(shop.recs, shop.recent, history=shop.history)


@pytest.fixture(scope="module")
def bias(learned) -> tt.ItemBias:
    return learned.bias


@pytest.fixture(scope="module")
def folder(shop, learned, bias, tmp_path_factory) -> Path:
    """All tables as Parquet and CSV, and a saved model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    later = shop.later.append_column("price", pc.add(shop.later["item_id"], 1))
    tables = {
        "recs": shop.recs, "recent": shop.recent, "history": shop.history, "log": shop.log,
        "tonight": shop.tonight, "later": later,
        "pairs": bias.apply(shop.tonight, 2).select(["user_id", "item_id"]),
        "allowed": pa.table({"item_id": np.arange(0, 300, 3)}),
        "items": pa.table({"item_id": np.arange(300), "category": np.arange(300) % 7}),
    }  # fmt: skip
    for name, table in tables.items():
        write_table(table, folder / f"{name}.parquet")
        write_table(table, folder / f"{name}.csv")
    learned.save(folder / "reranker")
    bias.save(folder / "bias")
    return folder


def succeed(call, folder: Path, *words: object) -> str:
    ran = call(*words, cwd=folder)
    lines = ran.stderr.splitlines()
    said = [line for line in lines if not line.startswith("trimtab: compiling kernels")]
    assert (ran.returncode, said) == (0, []), ran.stderr
    return ran.stdout


def as_csv(words: tuple[object, ...]) -> list[object]:
    return [str(word).replace(".parquet", ".csv") for word in words]


# fit


def test_fit_saves_what_python_learns(call, folder, shop, bytes_of):
    """Biases with any setting, and the settings of the paper; from Parquet and CSV."""
    items = pq.read_table(folder / "items.parquet")
    settings = {"k": 5, "max_bias": None, "penalty": 0.25, "exclude_unsold": True, "scale": "log"}
    more = ("--set", "max_bias=none", "--set", "penalty=0.25", "--set", "exclude_unsold=true")
    paper = tt.BiasLearner.paper(k=5, metric="map", max_cycles=3)
    cases = {
        "informed": (
            ("--history", "history.parquet", "--items", "items.parquet", "--metric", "map"),
            tt.BiasLearner(metric="map"), {"history": shop.history, "items": items},
        ),
        "set": (
            ("--k", 5, *more, "--set", "scale=log"),
            tt.BiasLearner(**settings), {},
        ),
        "paper": (
            ("--method", "paper", "--k", 5, "--metric", "map", "--set", "max_cycles=3"), paper, {},
        ),
    }  # fmt: skip
    for name, (words, learner, given) in cases.items():
        expected = learner.fit(shop.recs, shop.recent, **given)
        command = (*FIT, *words, "--out", f"new/{name}", "--json")
        for read in (command, as_csv(command)):
            told = json.loads(succeed(call, folder, *read), parse_constant=pytest.fail)
            assert told == json.loads(json.dumps({**expected.summary, "lift": told["lift"]}))
            saved = tt.ItemBias.load(folder / "new" / name)
            assert bytes_of(saved.table()) == bytes_of(expected.table()), name
            assert tt.BiasLearner(**saved.settings) == learner
    figures = succeed(call, folder, *FIT, *cases["set"][0], "--out", "told")
    summary = tt.ItemBias.load(folder / "told").summary
    assert f"{summary.lift:+.2%}" in figures
    assert f" {summary.n_users} users, {summary.cycles} cycles, {summary.updates} upd" in figures
    found = {path.name.split("-")[0] for path in (folder / "told").iterdir()}
    assert (found, "saved to told" in figures) == ({"header.json", "bias"}, True)


def test_fit_of_a_reranker_saves_what_python_learns(call, folder, shop, learned, bytes_of):
    for words in (RERANK, as_csv(RERANK)):
        told = succeed(call, folder, *words, "--out", "again")
        saved = tt.Reranker.load(folder / "again")
        assert (saved.summary, saved.learned) == (learned.summary, learned.learned)
        assert bytes_of(saved.bias.table()) == bytes_of(learned.bias.table())
    summary = learned.summary
    assert (
        f"forecast for the coming days: {summary.forecast:+.1%} (90 % interval "
        f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}), from 3 held-out windows"
    ) in told
    assert f"{summary.lifts['trend']:+.1%} by the biases alone" in told
    assert f"{summary.lifts['personal']:+.1%} with each user's own purchases" in told
    assert "items that the user bought before are added to lists" in told
    for row in learned.coefficients().to_pylist():
        assert (row["meaning"] in told) == (row["kind"] != "item")
    settings = {"scale": "log", "widen": "none", "repeats": "never", "seed": 2}
    more = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = (*RERANK, "--out", "set", "--k", 5, "--metric", "map", *more, "--json")
    expected = tt.RerankLearner(k=5, metric="map", **settings).fit(
        shop.recs, shop.recent, history=shop.history
    )
    found = json.loads(succeed(call, folder, *command))
    assert found["lifts"] == expected.summary.lifts
    assert found["coefficients"] == expected.coefficients().to_pylist()
    assert tt.Reranker.load(folder / "set").settings == expected.settings


def test_fit_takes_the_better_method(call, folder, learned):
    told = succeed(call, folder, *RERANK, "--method", "auto", "--out", "auto")
    used, model, choice = learn_best(learned, None)
    assert f"method {used}: {choice.why}" in told
    saved = load(folder / "auto")
    assert (type(saved), saved.forecast) == (type(model), model.forecast)


def test_fit_without_earlier_purchases_says_that_biases_rank(call, shop, tmp_path):
    """All users of the window are new."""
    others = pc.add(shop.history["user_id"], 1_000_000)
    tables = (*shop.newest(), shop.history.set_column(0, "user_id", others))
    for name, table in zip(("recs", "recent", "history"), tables, strict=True):
        write_table(table, tmp_path / f"{name}.parquet")
    told = succeed(call, tmp_path, *RERANK, "--out", "out")
    assert "no gain by each user's own purchases: all users are ranked by the biases" in told
    assert "coefficients" not in told
    assert tt.Reranker.load(tmp_path / "out").summary.kept == 0


def test_the_lift_over_zero_is_null(call, tmp_path):
    write_table(
        pa.table({"user_id": [1, 1], "item_id": [7, 8], "score": [2.0, 1.0]}), tmp_path / "l.csv"
    )
    (tmp_path / "e.csv").write_text("user_id,item_id\n1,8\n")
    words = ("fit", "--lists", "l.csv", "--events", "e.csv", "--out", "out", "--k", 1, "--json")
    told = json.loads(succeed(call, tmp_path, *words, "--set", "penalty=0"))
    assert (told["before"], told["lift"]) == (0, None)


def test_a_model_at_a_strength(call, folder, shop, bias, learned):
    """Saved at a strength or applied at it: the same lists."""
    for words, whole, past in (
        ((*FIT, "--history", "history.parquet"), bias, ()), (RERANK, learned, RANK[-4:]),
    ):  # fmt: skip
        told = succeed(call, folder, *words, "--out", "half", "--strength", 0.5)
        forecast = whole.summary.forecast_by_strength["0.5"][0]
        assert f"strength 0.5: the forecast is {forecast:+.1%}" in told
        assert load(folder / "half").summary.strength == 0.5
        whole.save(folder / "whole")
        for model, more in (("half", ()), ("whole", ("--strength", 0.5))):
            out = f"{model}.parquet"
            succeed(call, folder, *APPLY, *past, "--model", model, "--out", out, *more)
        halves = [read_table(folder / name) for name in ("half.parquet", "whole.parquet")]
        assert halves[0].equals(halves[1])
        refused = call(*words, "--out", "bad", "--strength", 1.5, cwd=folder)
        assert (refused.returncode, "--strength 1.5: must be" in refused.stderr) == (2, True)
        assert not (folder / "bad").exists()


def test_a_service_at_a_strength(tmp_path):
    store, bias = Store(tmp_path / "store"), make_bias([7, 8, 9], [0.0, 0.5, -0.25])
    publish(store, bias)
    asked = request_of([7, 8, 9], [1.0, 0.875, 0.75])
    with running(store, "--strength", 0.5) as server:
        answer = server.rerank(asked)
        assert answer["items"] == applied(bias.with_strength(0.5), asked) != applied(bias, asked)
        assert server.client.get("/version").json()["strength"] == 0.5


# apply


def test_apply_writes_what_python_gives(call, folder, shop, bias, learned):
    pairs, allowed = (pq.read_table(folder / f"{name}.parquet") for name in ("pairs", "allowed"))
    limits = ("--exclude", "pairs.csv", "--allowed", "allowed.parquet")
    for words, whole, past in (
        ((*APPLY, "--model", "bias"), bias, {}),
        (RANK, learned, {"history": shop.log, "as_of": NOW}),
    ):
        for kind, more, options in (
            ("parquet", (), {}), ("csv", ("--depth", "all"), {"depth": "all"}),
            (
                "parquet", (*limits, "--k", 5, "--depth", 12),
                {"exclude": pairs, "allowed": allowed, "k": 5, "depth": 12},
            ),
        ):  # fmt: skip
            given = as_csv(words) if kind == "csv" else words
            told = succeed(call, folder, *given, *more, "--out", f"new/top.{kind}")
            ranked = whole.rank(shop.tonight, **past, **options)
            assert read_table(folder / "new" / f"top.{kind}").equals(ranked.top)
            first = f"wrote {ranked.top.num_rows} rows to new/top.{kind}"
            if not past:
                first += "; 0 items have no learned bias and count as 0"
            left = ranked.left_out
            assert told.splitlines() == [first, *([] if not past else [
                f"{shop.log.num_rows} events; {sum(left)} events were left out: {left.later} at or "
                f"after the instant of the lists, {left.unknown_users} of users without a list"
            ])]  # fmt: skip
    assert {path.name for path in (folder / "new").glob("top*")} == {"top.parquet", "top.csv"}
    assert not list(folder.rglob(".*"))


def test_awkward_ids_survive_csv(call, tmp_path):
    """Ids that look like numbers or formulas are kept, told of, and escaped on request."""
    n = len(AWKWARD)
    users = [user for user in ("u1", "007", "=u") for _ in range(n)]
    table = {"user_id": users, "item_id": AWKWARD * 3, "score": np.linspace(1, 0.5, 3 * n)}
    csv.write_csv(pa.table(table), tmp_path / "recs.csv")  # as another program would write it
    (tmp_path / "digits.csv").write_text("user_id,item_id\nu1,7\n007,7\n")
    fit = ("fit", "--lists", "recs.csv", "--events", "digits.csv", "--out", "bias", "--k", 2)
    succeed(call, tmp_path, *fit, "--set", "penalty=0")
    assert tt.ItemBias.load(tmp_path / "bias").table()["item_id"].to_pylist() == sorted(AWKWARD)
    apply = ("apply", "--model", "bias", "--lists", "recs.csv", "--k", 10)
    told = succeed(call, tmp_path, *apply, "--out", "top.csv")
    assert "19 texts in top.csv begin with =" in told
    assert "--escape changes them" in told
    top, text = read_table(tmp_path / "top.csv"), (tmp_path / "top.csv").read_text()
    for user in ("u1", "007", "=u"):
        items = [row["item_id"] for row in top.to_pylist() if row["user_id"] == user]
        assert sorted(items) == sorted(AWKWARD)
        assert user == "=u" or items[0] == "7"
    told = succeed(call, tmp_path, *apply, "--escape", "--out", "safe.csv")
    safe = (tmp_path / "safe.csv").read_text()
    for formula in ("=1+1", "@x", "-x", "=u"):
        assert f'"{formula}"' in text
        assert (f'"\'{formula}"' in safe, f'"{formula}"' in safe) == (True, False)
    assert "so these ids differ from yours" in told
    refused = call(*apply, "--escape", "--out", "top.parquet", cwd=tmp_path)
    assert (refused.returncode, "--escape" in refused.stderr) == (2, True)


def test_apply_without_an_instant_uses_all_that_is_known(call, folder, shop, learned):
    """But one odd event of 2031 is not now."""
    known = shop.events(FIRST, (TODAY - FIRST).days)
    times = pa.chunked_array(
        [pa.array([datetime(2031, 5, 1, 12, tzinfo=UTC)], known["timestamp"].type)]
    )
    odd = known.slice(0, 1).set_column(known.column_names.index("timestamp"), "timestamp", times)
    write_table(known, folder / "known.parquet")
    write_table(pa.concat_tables([known, odd]), folder / "odd.parquet")
    command = (*APPLY, "--model", "reranker", "--out", "now.parquet", "--history")
    told = succeed(call, folder, *command, "known.parquet")
    assert pq.read_table(folder / "now.parquet").equals(learned.apply(shop.tonight, history=known))
    assert " at or after" not in told
    (folder / "now.parquet").unlink()
    done = call(*command, "odd.parquet", cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "2031-05-01 12:00 UTC" in done.stderr
    assert "--as-of" in done.stderr
    assert not (folder / "now.parquet").exists()


def test_a_time_zone_for_timestamps_without_one(call, folder, shop, learned):
    local = pc.local_timestamp(shop.log["timestamp"].cast(pa.timestamp("us", "Asia/Tokyo")))
    write_table(shop.log.set_column(2, "timestamp", local), folder / "naive.parquet")
    words = (*APPLY, "--model", "reranker", "--history", "naive.parquet", "--out", "zoned.parquet")
    refused = call(*words, "--as-of", NOW, cwd=folder)
    assert (refused.returncode, "time zone" in refused.stderr) == (2, True)
    same = ("--as-of", f"{TODAY}T09:00:00", "--tz", "Asia/Tokyo")
    succeed(call, folder, *words, *same)
    expected = learned.rank(shop.tonight, history=shop.log, as_of=NOW).top
    assert pq.read_table(folder / "zoned.parquet").equals(expected)


# Refusals

BAD = {
    "an unknown rule": ((*RERANK, "--set", "widen=all"), ["--set widen=all", "listed"]),
    "an unknown rule for repeats": ((*RERANK, "--set", "repeats=some"), ["--set repeats=some"]),
    "an unknown scale": ((*RERANK, "--set", "scale=cubic"), ["--set scale=cubic", "log"]),
    "no slots": ((*RERANK, "--k", "0"), ["--k 0"]),
    "a setting of biases": ((*RERANK, "--set", "penalty=1"), ["--set penalty=1", "widen"]),
    "an unknown method": ((*FIT, "--method", "best"), ["--method best", "reranker"]),
    "a reranker without history": ((*FIT, "--method", "auto"), ["--method auto: needs --history"]),
    "lists that are missing": ((*FIT, "--lists", "no.parquet"), ["no.parquet: no such file"]),
    "events without users": ((*RERANK, "--history", "counts.csv"), ["history", "'user_id'"]),
    "purchases without times": ((*RERANK, "--events", "bare.csv"), ["events", "'timestamp'"]),
    "lists without scores": ((*RERANK, "--lists", "bare.csv"), ["'score' in lists", "found user"]),
    "the folder of its lists": ((*RERANK, "--out", "."), ["--out .: holds the input --lists"]),
    "a file for a folder": ((*RERANK, "--out", "recs.parquet"), ["recs.parquet"]),
    "no model": ((*RANK, "--model", "none"), ["none: no saved"]),
    "a file for a model": ((*RANK, "--model", "log.parquet"), ["log.parquet"]),
    "a damaged model": ((*RANK, "--model", "damaged"), ["damaged", "checksum"]),
    "a damaged header": ((*RANK, "--model", "beheaded"), ["beheaded", "header.json"]),
    "biases with events": ((*RANK, "--model", "bias"), ["--history log.parquet: needs a rer"]),
    "biases at an instant": (
        (*APPLY, "--model", "bias", "--as-of", NOW), [f"--as-of {NOW}: needs a reranker in"],
    ),
    "counts for a reranker": (
        (*RERANK, "--history", "bare.csv"), ["'timestamp'", "use --method bias"],
    ),
    "a reranker without events": ((*APPLY, "--model", "reranker"), ["reranker", "add --history"]),
    "no lists": ((*RANK, "--lists", "no.parquet"), ["no.parquet: no such file"]),
    "events without times": ((*RANK, "--history", "bare.csv"), ["'timestamp'"]),
    "no instant": ((*RANK, "--as-of", "soon"), ["--as-of soon"]),
    "an instant without a zone": ((*RANK, "--as-of", str(TODAY)), ["time zone"]),
    "an instant in what was learned": (
        (*RANK, "--as-of", f"{TODAY - timedelta(9)}T00:00:00+00:00"), ["--as-of", "learned from"],
    ),
    "an unknown zone": ((*RANK, "--tz", "Mars/Base"), ["--tz Mars/Base"]),
    "a depth that is no number": ((*RANK, "--depth", "deep"), ["--depth deep", "all"]),
    "a file of another kind": ((*RANK, "--out", "top.txt"), ["top.txt", ".parquet"]),
    "its own lists": ((*RANK, "--out", "tonight.parquet"), ["is the input --lists"]),
    "its own lists, by a link": ((*RANK, "--out", "link.parquet"), ["is the input --lists"]),
    "its own lists, by an address": (
        (*RANK, "--lists", "ADDRESS", "--out", "tonight.parquet"), ["is the input --lists file:"],
    ),
    "its own events": ((*RANK, "--out", "./log.parquet"), ["is the input --history log.parquet"]),
    "its own pairs": (
        (*RANK, "--exclude", "pairs.csv", "--out", "pairs.csv"), ["is the input --exclude"],
    ),
    "its own model": ((*RANK, "--out", "reranker/t.csv"), ["is inside the input --model reranker"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def bad(folder, tmp_path_factory) -> Path:
    """A copy of the files, and some that cannot be used."""
    place = tmp_path_factory.mktemp("bad") / "copy"
    shutil.copytree(folder, place)
    (place / "counts.csv").write_text("item_id,count\n1,5\n")
    (place / "bare.csv").write_text("user_id,item_id\n1,5\n")
    (place / "link.parquet").symlink_to(place / "tonight.parquet")
    for name in ("damaged", "beheaded"):
        shutil.copytree(place / "reranker", place / name)
    (table,) = (place / "damaged").glob("*.parquet")
    table.write_bytes(table.read_bytes()[:-9])
    (place / "beheaded" / "header.json").write_text("{")
    return place


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    stats = {str(path): path.stat() for path in folder.rglob("*")}
    return {name: (one.st_size, one.st_mtime_ns) for name, one in stats.items()}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused_is_named_and_writes_nothing(call, bad, case):
    command, named = BAD[case]
    words = [str(word).replace("ADDRESS", (bad / "tonight.parquet").as_uri()) for word in command]
    if "--out" not in words:
        words += ["--out", "fit" if words[0] == "fit" else "out.parquet"]
    before = contents(bad)
    done = call(*words, cwd=bad)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("trimtab: ")
    assert [text for text in named if text not in done.stderr] == [], done.stderr
    assert contents(bad) == before


# evaluate


def test_evaluate_prints_what_python_finds(call, folder, shop, bias):
    words = ("evaluate", "--lists", "tonight.parquet", "--events", "later.parquet", "--k", 5)
    later = pq.read_table(folder / "later.parquet")
    expected = tt.evaluate(shop.tonight, later, k=5)
    for read in (words, as_csv(words)):
        assert json.loads(succeed(call, folder, *read, "--json")) == expected
    shown = succeed(call, folder, *words)
    for metric in ("acc", "map", "ndcg"):
        assert f"{metric.upper()}@5" in shown
        assert f"{expected[metric]:.6f}" in shown
    assert f"{expected['n_users']} users" in shown
    write_table(bias.apply(shop.tonight, k=5), folder / "judged.parquet")
    words = (*words, "--lists", "judged.parquet", "--baseline", "tonight.csv", "--weight", "price")
    expected = tt.evaluate(
        bias.apply(shop.tonight, k=5), later, 5, weight="price", baseline=shop.tonight
    )  # fmt: skip
    assert json.loads(succeed(call, folder, *words, "--json")) == expected
    shown = succeed(call, folder, *words)
    figures = [expected[f"ndcg_{part}"] for part in ("lift", "low", "high")]
    assert f"{figures[0]:+.1%}" in shown
    assert "{:+.1%} to {:+.1%}".format(*figures[1:]) in shown
    for name in ("hit rate@5", "recall@5", "MRR@5", "coverage@5"):
        assert name in shown
    assert "hits count by price" in shown
    refused = call(*words[:7], "--weight", "cost", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("trimtab: missing column 'cost' in events; found")
