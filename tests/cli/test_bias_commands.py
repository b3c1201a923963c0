"""The command line gives the same numbers as Python, on Parquet and on CSV."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import trimtab as tt
from trimtab.tables.files import read_table, write_table

AWKWARD = ["007", "1e5", "7", "=1+1", "@x", "-x", "'q", "NA", "\U0001f600", "a,b"]


def call_all(call, folder: Path, commands: dict[str, list[object]]) -> dict[str, object]:
    results = {name: call(*words, cwd=folder) for name, words in commands.items()}
    for name, result in results.items():
        assert result.returncode == 0, f"{name}: {result.stderr}"
    return results


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory) -> Path:
    """The same tables as Parquet and as CSV, some with awkward ids."""
    folder = tmp_path_factory.mktemp("cli")
    recs, recent = data.recs(), data.recent_events()
    for kind in ("parquet", "csv"):
        write_table(recs, folder / f"recs.{kind}")
        write_table(recent, folder / f"recent.{kind}")
    weights = pa.table({"user_id": np.arange(400), "weight": np.arange(400) % 5 / 2})
    pq.write_table(weights, folder / "weights.parquet")
    pq.write_table(recent.slice(0, 50), folder / "pairs.parquet")
    pq.write_table(pa.table({"item_id": np.arange(0, 120, 2)}), folder / "allowed.parquet")
    n = len(AWKWARD)
    users = [user for user in ("u1", "007", "=u") for _ in range(n)]
    csv.write_csv(  # as another program would write them: nothing defused
        pa.table({"user_id": users, "item_id": AWKWARD * 3, "score": np.linspace(1, 0.5, 3 * n)}),
        folder / "awkward.csv",
    )
    (folder / "digits.csv").write_text("user_id,item_id\nu1,7\n007,7\n")
    return folder


@pytest.fixture(scope="module")
def fitted(call, folder):
    common = ["--k", 5, "--json"]
    return call_all(
        call,
        folder,
        {
            "parquet": ["fit", "--recs", "recs.parquet", "--recent", "recent.parquet",
                        "--out", "parquet", *common],
            "csv": ["fit", "--recs", "recs.csv", "--recent", "recent.csv", "--out", "csv",
                    *common],
            "paper": ["fit", "--recs", "recs.csv", "--recent", "recent.parquet", "--out", "paper",
                      "--paper", "--metric", "map", "--set", "max_cycles=3", *common],
            "settings": ["fit", "--recs", "recs.parquet", "--recent", "recent.parquet",
                         "--out", "deep/settings", "--weights", "weights.parquet",
                         "--set", "max_bias=none", "--set", "penalty=0.25",
                         "--set", "exclude_unsold=true", "--set", "scale=log", "--k", 5],
            "awkward": ["fit", "--recs", "awkward.csv", "--recent", "digits.csv",
                        "--out", "awkward", "--k", 2, "--set", "penalty=0", "--json"],
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def learned(data):
    return tt.BiasLearner(k=5).fit(data.recs(), data.recent_events())


@pytest.fixture(scope="module")
def applied(call, folder, fitted):
    return call_all(
        call,
        folder,
        {
            "parquet": ["apply", "--bias", "parquet", "--recs", "recs.parquet",
                        "--out", "top.parquet", "--k", 5],
            "csv": ["apply", "--bias", "csv", "--recs", "recs.csv", "--out", "new/top.csv",
                    "--k", 5],
            "limited": ["apply", "--bias", "parquet", "--recs", "recs.parquet", "--k", 5,
                        "--out", "limited.csv", "--exclude", "pairs.parquet",
                        "--allowed", "allowed.parquet"],
            "shallow": ["apply", "--bias", "parquet", "--recs", "recs.parquet",
                        "--out", "shallow.parquet", "--k", 5, "--depth", 3],
            "whole": ["apply", "--bias", "parquet", "--recs", "recs.parquet",
                      "--out", "whole.parquet", "--k", 5, "--depth", "all"],
            "awkward": ["apply", "--bias", "awkward", "--recs", "awkward.csv",
                        "--out", "awkward-top.csv", "--k", 10],
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def judged(call, folder, applied):
    return call_all(
        call,
        folder,
        {
            "parquet": ["evaluate", "--topk", "top.parquet", "--truth", "recent.parquet",
                        "--k", 5, "--json"],
            "csv": ["evaluate", "--topk", "new/top.csv", "--truth", "recent.csv", "--k", 5,
                    "--json"],
            "words": ["evaluate", "--topk", "recs.csv", "--truth", "recent.parquet", "--k", 5],
        },
    )  # fmt: skip


def test_fit_prints_and_saves_what_python_learns(folder, fitted, learned, bytes_of):
    for kind in ("parquet", "csv"):
        printed = json.loads(fitted[kind].stdout)
        assert printed == {**learned.summary, "lift": learned.summary.lift}
        saved = tt.ItemBias.load(folder / kind)
        assert bytes_of(saved.table()) == bytes_of(learned.table())
        assert saved.settings == learned.settings


def test_fit_with_the_settings_of_the_paper(folder, fitted, data, bytes_of):
    learner = tt.BiasLearner.paper(k=5, metric="map", max_cycles=3)
    expected = learner.fit(data.recs(), data.recent_events())
    assert bytes_of(tt.ItemBias.load(folder / "paper").table()) == bytes_of(expected.table())
    assert json.loads(fitted["paper"].stdout)["after"] == expected.summary.after


def test_fit_with_any_setting(folder, fitted, data, bytes_of):
    learner = tt.BiasLearner(k=5, max_bias=None, penalty=0.25, exclude_unsold=True, scale="log")
    weights = pq.read_table(folder / "weights.parquet")
    expected = learner.fit(data.recs(), data.recent_events(), weights=weights)
    saved = tt.ItemBias.load(folder / "deep" / "settings")
    assert bytes_of(saved.table()) == bytes_of(expected.table())
    assert tt.BiasLearner(**saved.settings) == learner


def test_fit_prints_the_figures(fitted, data, folder):
    shown = fitted["settings"].stdout
    summary = tt.ItemBias.load(folder / "deep" / "settings").summary
    assert "NDCG@5" in shown
    assert f"{summary.before:.6f}" in shown
    assert f"{summary.after:.6f}" in shown
    assert f"{summary.lift:+.2%}" in shown
    for figure in ("n_users", "cycles", "updates"):
        assert f" {summary[figure]} {figure.removeprefix('n_')}" in shown
    assert "deep/settings" in shown


def test_apply_writes_what_python_gives(folder, applied, learned, data):
    expected = learned.apply(data.recs(), k=5)
    assert pq.read_table(folder / "top.parquet").equals(expected)
    assert read_table(folder / "new" / "top.csv").equals(expected)
    assert applied["parquet"].stdout.count("\n") == 1
    assert f"{len(expected)} rows to top.parquet; 0 items" in applied["parquet"].stdout


def test_apply_down_to_a_depth(folder, applied, learned, data):
    for name, depth in (("shallow", 3), ("whole", "all")):
        expected = learned.apply(data.recs(), k=5, depth=depth)
        assert pq.read_table(folder / f"{name}.parquet").equals(expected)
    assert learned.apply(data.recs(), k=5) == expected
    assert learned.apply(data.recs(), k=5, depth=3) != expected


def test_apply_with_excluded_pairs_and_allowed_items(folder, applied, learned, data):
    expected = learned.apply(
        data.recs(),
        k=5,
        exclude=pq.read_table(folder / "pairs.parquet"),
        allowed=pq.read_table(folder / "allowed.parquet"),
    )
    assert read_table(folder / "limited.csv").equals(expected)
    assert set(expected["item_id"].to_pylist()) <= set(range(0, 120, 2))


def test_evaluate_prints_what_python_finds(judged, learned, data, folder):
    expected = tt.evaluate(learned.apply(data.recs(), k=5), data.recent_events(), k=5)
    assert json.loads(judged["parquet"].stdout) == expected
    assert json.loads(judged["csv"].stdout) == expected
    assert expected["ndcg"] == pytest.approx(learned.summary.after, abs=1e-9)
    before = tt.evaluate(data.recs(), data.recent_events(), k=5)
    shown = judged["words"].stdout
    for metric in ("acc", "map", "ndcg"):
        assert f"{metric.upper()}@5" in shown
        assert f"{before[metric]:.6f}" in shown
    assert f"{before['n_users']} users" in shown


def test_awkward_ids_survive_csv(folder, applied):
    top = read_table(folder / "awkward-top.csv")
    assert set(top["user_id"].to_pylist()) == {"u1", "007", "=u"}
    for user in ("u1", "007", "=u"):
        items = [row["item_id"] for row in top.to_pylist() if row["user_id"] == user]
        assert sorted(items) == sorted(AWKWARD)
        assert user == "=u" or items[0] == "7"
    assert tt.ItemBias.load(folder / "awkward").table()["item_id"].to_pylist() == sorted(AWKWARD)


def test_ids_that_look_like_formulas_are_kept_and_told(folder, applied):
    text = (folder / "awkward-top.csv").read_text()
    for written in ("=1+1", "@x", "-x", "'q", "=u", "007", "1e5"):
        assert f'"{written}"' in text
    assert "19 texts in awkward-top.csv begin with =" in applied["awkward"].stdout
    assert "--escape changes them" in applied["awkward"].stdout


def test_formulas_are_escaped_on_request(call, folder, fitted, tmp_path):
    out = tmp_path / "safe.csv"
    arguments = ["apply", "--bias", "awkward", "--recs", "awkward.csv", "--k", 10, "--escape"]
    done = call(*arguments, "--out", out, cwd=folder)
    assert done.returncode == 0
    text = out.read_text()
    for formula in ("=1+1", "@x", "-x", "=u"):
        assert f'"\'{formula}"' in text
        assert f'"{formula}"' not in text
    assert "so these ids differ from yours" in done.stdout
    refused = call(*arguments, "--out", tmp_path / "top.parquet", cwd=folder)
    assert (refused.returncode, "--escape" in refused.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["file", "link", "exclude", "address"])
def test_apply_never_overwrites_its_input(call, folder, fitted, tmp_path, kind):
    recs = shutil.copy(folder / "recs.parquet", tmp_path / "recs.parquet")
    pairs = shutil.copy(folder / "pairs.parquet", tmp_path / "pairs.parquet")
    out = {"link": tmp_path / "link.parquet", "exclude": pairs}.get(kind, recs)
    given = recs.as_uri() if kind == "address" else recs
    if kind == "link":
        out.symlink_to(recs)
    before = recs.read_bytes(), pairs.read_bytes()
    run = call(
        "apply", "--bias", folder / "parquet", "--recs", given, "--exclude", pairs, "--out", out,
        cwd=tmp_path,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert f"--out {out}: is the input --{'exclude' if kind == 'exclude' else 'recs'}" in run.stderr
    assert (recs.read_bytes(), pairs.read_bytes()) == before


def test_no_other_files_are_left(folder, fitted, applied, judged):
    names = {path.name for path in folder.rglob("*")}
    assert not {name for name in names if name.endswith(".part") or name.startswith(".")}
    assert {path.name.split("-")[0] for path in (folder / "parquet").iterdir()} == {
        "header.json", "bias",
    }  # fmt: skip


def test_nothing_is_printed_on_stderr(fitted, applied, judged):
    for results in (fitted, applied, judged):
        for result in results.values():
            lines = result.stderr.splitlines()
            assert [x for x in lines if not x.startswith("trimtab: compiling kernels")] == []


def test_a_second_fit_starts_from_the_first(call, folder, fitted, data):
    shutil.copytree(folder / "parquet", folder / "yesterday")
    arguments = ["fit", "--recs", "recs.csv", "--recent", "recent.csv", "--k", 5, "--json"]
    result = call(*arguments, "--start", "yesterday", "--out", "yesterday", cwd=folder)
    start = tt.ItemBias.load(folder / "parquet")
    expected = tt.BiasLearner(k=5).fit(data.recs(), data.recent_events(), start=start)
    assert json.loads(result.stdout)["objective_before"] == expected.summary.objective_before
    assert tt.ItemBias.load(folder / "yesterday").summary == expected.summary


def test_fit_with_history_and_categories_then_explore(call, folder, fitted, data, bytes_of):
    pq.write_table(data.history_events(), folder / "past.parquet")
    pq.write_table(data.catalogue(), folder / "items.parquet")
    result = call(
        "fit", "--recs", "recs.parquet", "--recent", "recent.parquet", "--out", "informed",
        "--k", 5, "--history", "past.parquet", "--items", "items.parquet", cwd=folder,
    )  # fmt: skip
    expected = tt.BiasLearner(k=5).fit(
        data.recs(), data.recent_events(), history=data.history_events(), items=data.catalogue()
    )
    saved = tt.ItemBias.load(folder / "informed")
    assert bytes_of(saved.table()) == bytes_of(expected.table())
    assert f"{expected.summary.forecast:+.1%}" in result.stdout
    assert f"{expected.summary.concentration_after:.0%} of all slots" in result.stdout
    call(
        "apply", "--bias", "informed", "--recs", "recs.parquet", "--out", "explored.parquet",
        "--k", 5, "--explore", 2, "--seed", 3, cwd=folder,
    )  # fmt: skip
    shown = expected.apply(data.recs(), k=5, explore=2, seed=3)
    assert pq.read_table(folder / "explored.parquet").equals(shown)


def test_the_lift_over_zero_is_null(fitted):
    printed = json.loads(fitted["awkward"].stdout, parse_constant=pytest.fail)
    assert printed["before"] == 0 < printed["after"]
    assert printed["lift"] is None


def test_evaluate_with_weights(call, tmp_path):
    pq.write_table(
        pa.table({"user_id": [1, 2], "item_id": [7, 8], "rank": [1, 1]}), tmp_path / "t.parquet"
    )
    pq.write_table(pa.table({"user_id": [1, 2], "item_id": [7, 9]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"user_id": [1], "weight": [3.0]}), tmp_path / "w.parquet")
    arguments = ["--topk", tmp_path / "t.parquet", "--truth", tmp_path / "b.parquet", "--k", "1"]
    done = call("evaluate", *arguments, "--weights", tmp_path / "w.parquet", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["acc"] == 0.75


def test_evaluate_compares_with_a_baseline(call, folder, judged, learned, data):
    recent = data.recent_events()
    priced = recent.append_column("price", pc.add(recent["item_id"], 1))
    pq.write_table(priced, folder / "priced.parquet")
    pq.write_table(data.history_events(), folder / "earlier.parquet")
    arguments = ["--topk", "top.parquet", "--truth", "priced.parquet", "--k", "5"]
    arguments += ["--baseline", "recs.csv", "--weight", "price", "--history", "earlier.parquet"]
    printed = call("evaluate", *arguments, "--json", cwd=folder)
    expected = tt.evaluate(
        learned.apply(data.recs(), k=5), priced, k=5, weight="price", baseline=data.recs(),
        history=data.history_events(),
    )  # fmt: skip
    assert json.loads(printed.stdout) == expected
    shown = call("evaluate", *arguments, cwd=folder).stdout
    figures = [expected[f"ndcg_{part}"] for part in ("lift", "low", "high")]
    assert f"{figures[0]:+.1%}" in shown
    assert "{:+.1%} to {:+.1%}".format(*figures[1:]) in shown
    for name in ("hit rate@5", "recall@5", "MRR@5", "coverage@5", "novelty@5, bits"):
        assert name in shown
    assert "hits count by price" in shown
    refused = call("evaluate", *arguments[:6], "--weight", "cost", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("trimtab: missing column 'cost' in truth; found")
