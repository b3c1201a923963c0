"""What cannot be used is refused in one sentence that names it, in Python and on the command line.

Each of `CASES` is run twice: through the library, and through the installed `trimtab` command,
which must leave nothing behind. `MORE` are their variants.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt

USERS = [user for user in range(1, 7) for _ in range(3)]
RECS = pa.table({"user_id": USERS, "item_id": [7, 8, 9] * 6, "score": [0.9, 0.6, 0.3] * 6})
RECENT = pa.table({"user_id": [1, 2, 3, 4], "item_id": [8, 8, 9, 7]})
WEIGHTS = pa.table({"user_id": [1, 2], "weight": [1.0, 2.0]})
PAIRS = pa.table({"user_id": [1], "item_id": [7]})


def change(table: pa.Table, name: str, *values: Any, kind: Any = None) -> pa.Table:
    """The table with other values at the top of a column."""
    rest = table[name].to_pylist()[len(values) :]
    place = table.column_names.index(name)
    return table.set_column(place, name, pa.array([*values, *rest], kind))


def as_text(table: pa.Table, name: str) -> pa.Table:
    return change(table, name, *map(str, table[name].to_pylist()))


@dataclass
class Case:
    """Tables and settings that must be refused, and what the sentence must say."""

    words: tuple[str, ...]
    command: str = "fit"
    error: type[Exception] = tt.DataError
    tables: dict[str, pa.Table] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def fit(words: str, *, error: type[Exception] = tt.DataError, settings=None, **tables) -> Case:
    return Case(tuple(words.split(" | ")), "fit", error, tables, settings or {})


def apply(words: str, *, settings=None, error: type[Exception] = tt.DataError, **tables) -> Case:
    return Case(tuple(words.split(" | ")), "apply", error, tables, settings or {})


def evaluate(words: str, *, settings=None, error: type[Exception] = tt.DataError, **tables) -> Case:
    return Case(tuple(words.split(" | ")), "evaluate", error, tables, settings or {})


CASES = {
    "missing column": fit(
        "missing column 'score' in recs; found user_id, item_id. | Rename",
        recs=RECS.drop_columns("score"),
    ),
    "no rows": fit("recs is empty: it needs at least one row", recs=RECS.slice(0, 0)),
    "nan": fit(
        "column 'score' of recs has nan in row 1 (from 0): it must be finite; mend or drop",
        recs=change(RECS, "score", 0.5, float("nan")),
    ),
    "missing score": fit(
        "column 'score' of recs lacks a value in 2 of 18 rows; drop those rows",
        recs=change(RECS, "score", None, None),
    ),
    "float ids": fit(
        "column 'item_id' of recs holds double: ids must be integers or strings; cast the column",
        recs=change(RECS, "item_id", 7.0, kind=pa.float64()),
    ),
    "a pair twice": fit(
        "recs has user_id 1 with item_id 8 more than once; drop the repeats or pass duplicates=",
        recs=change(RECS, "item_id", 8),
    ),
    "users of two kinds": fit(
        "column 'user_id' holds integers in recs but strings in recent; cast one of them",
        recent=as_text(RECENT, "user_id"),
    ),
    "items of two kinds": fit(
        "column 'item_id' holds strings in recs but integers in recent; cast",
        recs=as_text(RECS, "item_id"),
    ),
    "items of another kind than the biases'": apply(
        "column 'item_id' holds strings in recs but integers in the bias table; cast",
        recs=as_text(RECS, "item_id"),
    ),
    "other users": fit(
        "no user_id of recent is in recs (recent has user_id 91, recs user_id 1) | same ids",
        recent=change(RECENT, "user_id", 91, 92, 93, 94),
    ),
    "other items": fit(
        "no item_id of recent is in recs (recent has item_id 97, recs item_id 7) | same ids",
        recent=change(RECENT, "item_id", 97, 98, 97, 98),
    ),
    "negative score": fit(
        "column 'score' of recs has -0.5: unlisted='zero' needs scores of at least 0; shift",
        recs=change(RECS, "score", -0.5),
        settings={"unlisted": "zero"},
    ),
    "logarithm of zero": fit(
        "column 'score' of recs has 0: scale='log' needs scores above 0 when | scale='additive'",
        recs=change(RECS, "score", 0.0),
        settings={"scale": "log", "method": "ascent"},
    ),
    "k below one": fit("k=0: must be at least 1", settings={"k": 0}, error=tt.SettingError),
    "negative weight": fit(
        "column 'weight' of weights has -1: weights must be at least 0",
        weights=change(WEIGHTS, "weight", -1.0),
    ),
    "a weight twice": fit(
        "column 'user_id' of weights has 2 more than once; give each user one weight",
        weights=change(WEIGHTS, "user_id", 2),
    ),
    "no weight at all": fit(
        "column 'weight' of weights is 0 for every user who bought something: give at least one",
        weights=pa.table({"user_id": [1, 2, 3, 4], "weight": [0, 0, 0, 0]}),
    ),
}  # fmt: skip
MORE = {
    "missing column in recent": fit(
        "missing column 'user_id' in recent; found customer, item_id.",
        recent=RECENT.rename_columns(["customer", "item_id"]),
    ),
    "missing column of weights": fit(
        "missing column 'weight' in weights; found user_id, w.",
        weights=WEIGHTS.rename_columns(["user_id", "w"]),
    ),
    "missing column of topk": evaluate(
        "missing column 'score' in topk; found user_id, item_id.", topk=RECS.drop_columns("score")
    ),
    "missing column of exclude": apply(
        "missing column 'item_id' in exclude", exclude=PAIRS.drop_columns("item_id")
    ),
    "no purchases": fit("recent is empty", recent=RECENT.slice(0, 0)),
    "nothing allowed": apply("allowed is empty", allowed=PAIRS.slice(0, 0)),
    "infinite": apply(
        "column 'score' of recs has -inf in row 0", recs=change(RECS, "score", float("-inf"))
    ),
    "missing user": fit(
        "column 'user_id' of recent lacks a value in 1 of 4 rows; drop",
        recent=change(RECENT, "user_id", None),
    ),
    "missing item": evaluate(
        "column 'item_id' of truth lacks a value in 1 of 4 rows",
        truth=change(RECENT, "item_id", None),
    ),
    "scores in words": fit(
        "column 'score' of recs holds string: it must be numbers; cast", recs=as_text(RECS, "score")
    ),
    "a pair twice in apply": apply(
        "recs has user_id 1 with item_id 8 more than once", recs=change(RECS, "item_id", 8)
    ),
    "weights of another kind": fit(
        "column 'user_id' holds integers in recs but strings in weights",
        weights=as_text(WEIGHTS, "user_id"),
    ),
    "truth of another kind": evaluate(
        "column 'item_id' holds integers in topk but strings in truth",
        truth=as_text(RECENT, "item_id"),
    ),
    "pairs of another kind": apply(
        "column 'user_id' holds integers in recs but strings in exclude",
        exclude=as_text(PAIRS, "user_id"),
    ),
    "other users in truth": evaluate(
        "no user_id of truth is in topk (truth has user_id 91, topk user_id 1) | same ids",
        truth=change(RECENT, "user_id", 91, 92, 93, 94),
    ),
    "other windows": fit(
        "no (user_id, window) of recent is in recs | recent has user_id 1 in window 2026-11-08",
        recs=RECS.append_column("window", pa.array(["2026-11-01"] * 18)),
        recent=RECENT.append_column("window", pa.array(["2026-11-08"] * 4)),
    ),
    "windows in one table": fit(
        "recs has a column 'window' but recent has none; give it to both or to neither",
        recs=RECS.append_column("window", pa.array([1] * 18)),
    ),
    "k below one in apply": apply(
        "k=0: must be at least 1", settings={"k": 0}, error=tt.SettingError
    ),
    "k below one in evaluate": evaluate(
        "k=-3: must be at least 1", settings={"k": -3}, error=tt.SettingError
    ),
    "unknown metric": fit(
        "metric='mrr': must be one of acc, map, ndcg",
        settings={"metric": "mrr"},
        error=tt.SettingError,
    ),
    "infinite weight": fit(
        "column 'weight' of weights has inf in row 0",
        weights=change(WEIGHTS, "weight", float("inf")),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bias() -> tt.ItemBias:
    return tt.BiasLearner(method="ascent", k=2).fit(RECS, RECENT)


# In Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_python_refuses(name, bias):
    case = {**CASES, **MORE}[name]
    with pytest.raises(case.error) as caught:
        run_in_python(case, bias)
    message = str(caught.value)
    assert isinstance(caught.value, tt.TrimtabError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in message
    for words in case.words:
        assert words in message


def run_in_python(case: Case, bias: tt.ItemBias) -> Any:
    tables = dict(case.tables)
    settings = {"k": 2, **case.settings}
    if case.command == "fit":
        recs, recent = tables.pop("recs", RECS), tables.pop("recent", RECENT)
        return tt.BiasLearner(**settings).fit(recs, recent, **tables)
    if case.command == "apply":
        return bias.apply(tables.pop("recs", RECS), **settings, **tables)
    topk, truth = tables.pop("topk", RECS), tables.pop("truth", RECENT)
    return tt.evaluate(topk, truth, **settings, **tables)


def test_evaluate_refuses_the_same_weights():
    for weights, words in (
        (change(WEIGHTS, "weight", -1.0), "has -1: weights must be at least 0"),
        (change(WEIGHTS, "user_id", 2), "has 2 more than once"),
        (pa.table({"user_id": [1, 2, 3, 4], "weight": [0] * 4}), "is 0 for every user who bought"),
        (as_text(WEIGHTS, "user_id"), "holds integers in topk but strings in weights"),
    ):
        with pytest.raises(tt.DataError, match=words):
            tt.evaluate(RECS, RECENT, k=2, weights=weights)


@pytest.mark.parametrize("frame", ["recs.parquet", {"user_id": [1]}, None, RECS["score"]])
def test_something_that_is_no_frame(frame):
    kind = type(frame).__name__
    with pytest.raises(tt.DataError, match=f"recs is a {kind}: pass a pandas, polars or pyarrow"):
        tt.BiasLearner(method="ascent", k=2).fit(frame, RECENT)


def test_a_pandas_column_of_mixed_types():
    recs = RECS.to_pandas().astype({"item_id": object})
    for value in ("seven", object()):
        recs.loc[3, "item_id"] = value
        with pytest.raises(tt.DataError, match=r"recs cannot be read .*item_id.* one type"):
            tt.BiasLearner(method="ascent", k=2).fit(recs, RECENT)


def test_two_columns_of_one_name():
    twice = RECS.append_column("user_id", RECS["user_id"])
    with pytest.raises(tt.DataError, match="recs has two columns of one name; drop or rename one"):
        tt.BiasLearner(method="ascent", k=2).fit(twice, RECENT)


@pytest.mark.parametrize("duplicates", ["first", None])
def test_an_unknown_way_to_merge(duplicates, bias):
    message = f"duplicates={duplicates!r}: must be one of error, max, mean, sum"
    with pytest.raises(tt.SettingError, match=message):
        bias.apply(RECS, k=2, duplicates=duplicates)
    with pytest.raises(tt.SettingError, match=message):
        tt.BiasLearner(method="ascent", k=2).fit(RECS, RECENT, duplicates=duplicates)


# Warnings --------------------------------------------------------------------------------------

STRANGERS = pa.table({"user_id": [1, *range(100, 120)], "item_id": [8] * 21})
NOVELTIES = pa.table({"user_id": [1] * 21, "item_id": [8, *range(100, 120)]})
WARNINGS = {
    "few users in common": (
        "only 1 of 21 rows of recent have user_id that is in recs: little can be learned",
        {"recent": STRANGERS},
        2,
    ),
    "few items in common": (
        "only 1 of 21 rows of recent have item_id that is in recs",
        {"recent": NOVELTIES},
        2,
    ),
    "k beyond the lists": (
        "k=4 is longer than the longest list (3): places stay empty; lower k or list more",
        {},
        4,
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_python_warns(name):
    message, tables, k = WARNINGS[name]
    with pytest.warns(tt.TrimtabWarning) as seen:
        tt.BiasLearner(method="ascent", k=k).fit(RECS, tables.get("recent", RECENT))
    assert [str(warning.message).startswith(message) for warning in seen] == [True]
    assert seen[0].filename == __file__


def test_a_tenth_in_common_is_enough():
    recent = pa.table({"user_id": [1, *range(100, 109)], "item_id": [8] * 10})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.BiasLearner(method="ascent", k=2).fit(RECS, recent)


# On the command line ---------------------------------------------------------------------------


@dataclass
class Run:
    """A command that was run in a folder of its own."""

    result: subprocess.CompletedProcess[str]
    before: set[str]
    after: set[str]

    @property
    def stderr(self) -> list[str]:
        """Lines on stderr, but for that of a first run's compilation."""
        lines = self.result.stderr.splitlines()
        return [line for line in lines if not line.startswith("trimtab: compiling kernels")]


def found_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def command_line(case: Case, folder: Path) -> list[str]:
    """Write the case's tables; the arguments that say the same as its settings."""
    settings = {"k": 2, **case.settings}
    if case.command == "evaluate":
        tables = {"topk": RECS, "truth": RECENT, **case.tables}
    elif case.command == "fit":
        tables = {"recs": RECS, "recent": RECENT, **case.tables}
    else:
        tables = {"recs": RECS, **case.tables}
    arguments = [case.command, "--k", str(settings.pop("k"))]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        arguments += [f"--{name}", f"{name}.parquet"]
    if case.command == "fit":
        arguments += ["--out", "out"]
    if case.command == "apply":
        arguments += ["--bias", "bias", "--out", "out.parquet"]
    return arguments


def with_recs(content: bytes, name: str = "recs.parquet") -> Callable[[Path], list[str]]:
    """A fit whose lists are a file of such content."""

    def prepare(folder: Path) -> list[str]:
        (folder / name).write_bytes(content)
        pq.write_table(RECENT, folder / "recent.parquet")
        return ["fit", "--k", "2", "--recs", name, "--recent", "recent.parquet", "--out", "out"]

    return prepare


def with_arguments(*arguments: str) -> Callable[[Path], list[str]]:
    """Good tables, and other arguments."""

    def prepare(folder: Path) -> list[str]:
        pq.write_table(RECS, folder / "recs.parquet")
        pq.write_table(RECENT, folder / "recent.parquet")
        (folder / "file").write_text("x")
        return list(arguments)

    return prepare


def with_bias(break_it: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """Saved biases that were tampered with."""

    def prepare(folder: Path) -> list[str]:
        pq.write_table(RECS, folder / "recs.parquet")
        break_it(folder / "bias")
        return ["apply", "--bias", "bias", "--recs", "recs.parquet", "--out", "out.csv", "--k", "2"]

    return prepare


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(RECS, sink)
    return bytes(sink.getvalue())


def edit_header(folder: Path, **changes: object) -> None:
    path = folder / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def damage_table(folder: Path) -> None:
    (table,) = folder.glob("bias-*.parquet")
    table.write_bytes(table.read_bytes().replace(b"PAR1", b"PAR2"))


FIT = ("fit", "--k", "2", "--recs", "recs.parquet", "--recent", "recent.parquet")
APPLY = ("apply", "--k", "2", "--recs", "recs.parquet", "--bias", "bias")
FILES = {
    "cut in half": (
        with_recs(parquet_bytes()[: len(parquet_bytes()) // 2]),
        "recs.parquet: not a readable Parquet file | write it again as Parquet or CSV",
    ),
    "a picture": (
        with_recs(b"\x89PNG\r\n\x1a\n" + bytes(64)), "recs.parquet: not a readable Parquet file"
    ),
    "an empty file": (with_recs(b""), "recs.parquet: not a readable Parquet file"),
    "a CSV file with an empty id": (
        with_recs(b"user_id,item_id,score\n1,,0.5\n", "recs.csv"),
        "column 'item_id' of recs lacks a value in 1 of 1 rows",
    ),
    "a file that is not there": (
        with_arguments("fit", "--recs", "no.parquet", "--recent", "recent.parquet", "--out", "out"),
        "no.parquet: no such file; check the path",
    ),
    "a folder without a header": (
        with_bias(lambda folder: (folder / "header.json").unlink()),
        "bias: no saved bias here (header.json is missing); check the path",
    ),
    "a newer format": (
        with_bias(lambda folder: edit_header(folder, version=3)),
        "format version 3, but this Trimtab reads up to 2; upgrade trimtab",
    ),
    "a checksum that does not match": (
        with_bias(damage_table), "the checksum does not match the header's | save the bias again"
    ),
    "an unknown setting": (
        with_arguments(*FIT, "--out", "out", "--set", "penality=1"),
        "--set penality=1: must be name=value with one of k, metric, method, scale",
    ),
    "an unknown ending": (
        with_arguments(*APPLY, "--out", "out.xlsx"),
        "out.xlsx: unknown kind of file; end the name in .parquet or .csv",
    ),
    "a folder that cannot be made": (
        with_arguments(*FIT, "--out", "file/out"),
        "cannot write in file/out: | file is not a folder; choose another",
    ),
    "a file that cannot be made": (
        with_arguments(*APPLY, "--out", "file/out.csv"),
        "cannot write in file: file is not a folder",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(trimtab, bias, tmp_path_factory) -> dict[str, Run]:
    """All commands, two at a time."""

    def run(name: str, prepare: Callable[[Path], list[str]]) -> tuple[str, Run]:
        folder = tmp_path_factory.mktemp("run")
        bias.save(folder / "bias")
        arguments = prepare(folder)
        before = found_in(folder)
        return name, Run(trimtab(*arguments, cwd=folder), before, found_in(folder))

    def prepare_case(case: Case) -> Callable[[Path], list[str]]:
        return lambda folder: command_line(case, folder)

    jobs = {name: prepare_case(case) for name, case in CASES.items()}
    jobs |= {name: prepare for name, (prepare, _) in FILES.items()}
    for name, (_, tables, k) in WARNINGS.items():
        jobs[name] = prepare_case(Case((), "fit", tables=tables, settings={"k": k}))
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(lambda job: run(*job), jobs.items()))


@pytest.mark.parametrize("name", [*CASES, *FILES])
def test_the_command_refuses(name, runs):
    words = CASES[name].words if name in CASES else FILES[name][1].split(" | ")
    run = runs[name]
    assert run.result.returncode == 2
    assert run.result.stdout == ""
    (line,) = run.stderr
    assert line.startswith("trimtab: ")
    for part in words:
        assert part in line
    assert run.after == run.before


@pytest.mark.parametrize("name", WARNINGS)
def test_the_command_warns(name, runs):
    run = runs[name]
    assert run.result.returncode == 0
    line, guard = run.stderr
    assert "held-out users bear out no lift" in guard
    assert line.startswith(f"trimtab: warning: {WARNINGS[name][0]}")
    assert "out/header.json" in run.after
