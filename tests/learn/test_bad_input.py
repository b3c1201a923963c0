"""Invalid input is refused in one sentence that names it, in Python and on the command line.

Each of `CASES` runs twice: in Python, and with the installed `trimtab` command, which must leave no
files behind. `MORE` are variants that run only in Python. Tests look for names and values in the
messages, not for their wording.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from blocked_imports import WITHOUT_OPTIONAL
from changed_tables import as_text, with_column

USERS = [user for user in range(1, 7) for _ in range(3)]
RECS = pa.table({"user_id": USERS, "item_id": [7, 8, 9] * 6, "score": [0.9, 0.6, 0.3] * 6})
RECENT = pa.table({"user_id": [1, 2, 3, 4], "item_id": [8, 8, 9, 7]})
WEIGHTS = pa.table({"user_id": [1, 2], "weight": [1.0, 2.0]})
FAR = pa.array([-(2**62), 0, 0, 0]).cast(pa.timestamp("us", "UTC"))
PAIRS = pa.table({"user_id": [1], "item_id": [7]})
NEEDED = {
    "fit": {"recs": RECS, "recent": RECENT},
    "apply": {"recs": RECS},
    "evaluate": {"topk": RECS, "truth": RECENT},
}


def change(table: pa.Table, name: str, *values: Any, kind: Any = None) -> pa.Table:
    """The table with other values in the first rows of a column."""
    rest = table[name].to_pylist()[len(values) :]
    return with_column(table, name, pa.array([*values, *rest], kind))


class Case(NamedTuple):
    """Tables and settings that must be refused, and the names and values of the message."""

    command: str
    words: tuple[str, ...]
    error: type[Exception]
    settings: dict[str, Any]
    tables: dict[str, pa.Table]


def refused(command: str, words: str, *, settings=None, error=tt.DataError, **tables) -> Case:
    return Case(command, tuple(words.split(" | ")), error, settings or {}, tables)


fit, apply, evaluate = (partial(refused, command) for command in ("fit", "apply", "evaluate"))

CASES = {
    "missing column": fit(
        "'score' | recs | user_id, item_id", recs=RECS.drop_columns("score")
    ),
    "no rows": fit("recs", recs=RECS.slice(0, 0)),
    "nan": fit("'score' | recs | nan | row 1", recs=change(RECS, "score", 0.5, float("nan"))),
    "missing score": fit("'score' | recs | 2 of 18", recs=change(RECS, "score", None, None)),
    "float ids": fit(
        "'item_id' | recs | double", recs=change(RECS, "item_id", 7.0, kind=pa.float64())
    ),
    "a pair twice": fit(
        "recs | user_id 1 | item_id 8 | duplicates=", recs=change(RECS, "item_id", 8)
    ),
    "users of two types": fit(
        "'user_id' | integers | recs | strings | recent", recent=as_text(RECENT, "user_id")
    ),
    "items of two types": fit(
        "'item_id' | strings | recs | integers | recent", recs=as_text(RECS, "item_id")
    ),
    "items of another type than the biases": apply(
        "'item_id' | strings | recs | integers | bias", recs=as_text(RECS, "item_id")
    ),
    "other users": fit(
        "recent has user_id 91 | recs has user_id 1",
        recent=change(RECENT, "user_id", 91, 92, 93, 94),
    ),
    "other items": fit(
        "recent has item_id 97 | recs has item_id 7",
        recent=change(RECENT, "item_id", 97, 98, 97, 98),
    ),
    "negative score": fit(
        "'score' | recs | -0.5 | unlisted='zero'",
        recs=change(RECS, "score", -0.5),
        settings={"unlisted": "zero"},
    ),
    "logarithm of zero": fit(
        "'score' | recs | 0 | scale='log' | scale='additive'",
        recs=change(RECS, "score", 0.0),
        settings={"scale": "log", "method": "ascent"},
    ),
    "k below one": fit("k=0", settings={"k": 0}, error=tt.SettingError),
    "a time outside the calendar": fit(
        "'timestamp' | recent | -4611686018427387904 | years 2 to 9998",
        recent=RECENT.append_column("timestamp", FAR),
    ),
}  # fmt: skip
MORE = {
    "no weight at all": fit(
        "'weight' | weights | 0",
        weights=pa.table({"user_id": [1, 2, 3, 4], "weight": [0, 0, 0, 0]}),
    ),
    "no purchases": fit("recent", recent=RECENT.slice(0, 0)),
    "nothing allowed": apply("allowed", allowed=PAIRS.slice(0, 0)),
    "infinite": apply(
        "'score' | recs | -inf | row 0", recs=change(RECS, "score", float("-inf"))
    ),
    "scores in words": fit("'score' | recs | string", recs=as_text(RECS, "score")),
    "a pair twice in apply": apply(
        "recs | user_id 1 | item_id 8", recs=change(RECS, "item_id", 8)
    ),
    "other users in truth": evaluate(
        "truth has user_id 91 | topk | user_id 1",
        truth=change(RECENT, "user_id", 91, 92, 93, 94),
    ),
    "other windows": fit(
        "recent has user_id 1 in window 2026-11-08 | recs",
        recs=RECS.append_column("window", pa.array(["2026-11-01"] * 18)),
        recent=RECENT.append_column("window", pa.array(["2026-11-08"] * 4)),
    ),
    "windows in one table": fit(
        "recs | 'window' | recent", recs=RECS.append_column("window", pa.array([1] * 18))
    ),
    "k below one in apply": apply("k=0", settings={"k": 0}, error=tt.SettingError),
    "k below one in evaluate": evaluate("k=-3", settings={"k": -3}, error=tt.SettingError),
    "k too large for a kernel": evaluate(
        f"k={10**20}: must be at most", settings={"k": 10**20}, error=tt.SettingError
    ),
    "unknown metric": fit(
        "metric='mrr' | acc, map, ndcg", settings={"metric": "mrr"}, error=tt.SettingError
    ),
    "negative weight": fit("'weight' | weights | -1", weights=change(WEIGHTS, "weight", -1.0)),
    "a weight twice": fit("'user_id' | weights | 2", weights=change(WEIGHTS, "user_id", 2)),
    "infinite weight": fit(
        "'weight' | weights | inf | row 0", weights=change(WEIGHTS, "weight", float("inf"))
    ),
}  # fmt: skip


pytestmark = pytest.mark.xdist_group("bad-input")  # all commands run once, in 10 seconds


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


def test_every_table_is_checked(bias):
    """Columns that are missing, ids of another type than in the lists, and ids that are missing."""
    for command, name, table in (
        ("fit", "recent", RECENT), ("fit", "weights", WEIGHTS), ("apply", "exclude", PAIRS),
        ("evaluate", "truth", RECENT), ("evaluate", "topk", RECS),
    ):  # fmt: skip
        for column in table.column_names:
            damaged = [(table.drop_columns(column), (f"'{column}'", name))]
            if column in ("user_id", "item_id"):
                damaged.append((as_text(table, column), (f"'{column}'", "integers", "strings")))
                damaged.append(
                    (change(table, column, None), (f"'{column}'", name, "no value in 1 of"))
                )
            for other, words in damaged:
                with pytest.raises(tt.DataError) as caught:
                    run_in_python(refused(command, "", **{name: other}), bias)
                assert all(word in str(caught.value) for word in words), str(caught.value)


def run_in_python(case: Case, bias: tt.ItemBias) -> Any:
    settings, tables = {"k": 2, **case.settings}, {**NEEDED[case.command], **case.tables}
    if case.command == "fit":
        return tt.BiasLearner(**settings).fit(**tables)
    return (bias.apply if case.command == "apply" else tt.evaluate)(**settings, **tables)


def test_evaluate_refuses_the_same_weights():
    for weights, words in (
        (change(WEIGHTS, "weight", -1.0), "'weight' of weights .*-1"),
        (change(WEIGHTS, "user_id", 2), "'user_id' of weights .*2"),
        (pa.table({"user_id": [1, 2, 3, 4], "weight": [0] * 4}), "'weight' of weights .*0"),
        (as_text(WEIGHTS, "user_id"), "'user_id' .*integers.* topk .*strings.* weights"),
    ):
        with pytest.raises(tt.DataError, match=words):
            tt.evaluate(RECS, RECENT, k=2, weights=weights)


def test_something_other_than_a_frame():
    for frame in ("recs.parquet", {"user_id": [1]}, None, RECS["score"]):
        with pytest.raises(tt.DataError, match=f"recs .*{type(frame).__name__}"):
            tt.BiasLearner(method="ascent", k=2).fit(frame, RECENT)


def test_a_pandas_column_of_mixed_types():
    recs = RECS.to_pandas().astype({"item_id": object})
    for value in ("seven", object()):
        recs.loc[3, "item_id"] = value
        with pytest.raises(tt.DataError, match=r"recs .*item_id"):
            tt.BiasLearner(method="ascent", k=2).fit(recs, RECENT)


def test_two_columns_with_the_same_name():
    twice = RECS.append_column("user_id", RECS["user_id"])
    with pytest.raises(tt.DataError, match=r"recs .*column"):
        tt.BiasLearner(method="ascent", k=2).fit(twice, RECENT)


def test_an_unknown_way_to_merge(bias):
    for duplicates in ("first", None):
        message = f"duplicates={duplicates!r}.* error, max, mean, sum"
        with pytest.raises(tt.SettingError, match=message):
            bias.apply(RECS, k=2, duplicates=duplicates)
        with pytest.raises(tt.SettingError, match=message):
            tt.BiasLearner(method="ascent", k=2).fit(RECS, RECENT, duplicates=duplicates)


# Warnings --------------------------------------------------------------------------------------

STRANGERS = pa.table({"user_id": [1, *range(100, 120)], "item_id": [8] * 21})
NOVELTIES = pa.table({"user_id": [1] * 21, "item_id": [8, *range(100, 120)]})
WARNINGS = {
    "few users in common": ("1 of 21 .*recent .*user_id .*recs", {"recent": STRANGERS}, 2),
    "few items in common": ("1 of 21 .*recent .*item_id .*recs", {"recent": NOVELTIES}, 2),
    "k beyond the lists": ("k=4.* 3", {}, 4),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_python_warns(name):
    pattern, tables, k = WARNINGS[name]
    with pytest.warns(tt.TrimtabWarning) as seen:
        tt.BiasLearner(method="ascent", k=k).fit(RECS, tables.get("recent", RECENT))
    (warning,) = seen
    assert re.search(pattern, str(warning.message))
    assert warning.filename == __file__


def test_a_tenth_in_common_is_enough():
    recent = pa.table({"user_id": [1, *range(100, 109)], "item_id": [8] * 10})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.BiasLearner(method="ascent", k=2).fit(RECS, recent)


# On the command line ---------------------------------------------------------------------------


class Run(NamedTuple):
    """A command that ran in its own folder."""

    result: subprocess.CompletedProcess[str]
    before: set[str]
    after: set[str]

    @property
    def stderr(self) -> list[str]:
        """Lines on stderr, without the notice about compiling."""
        lines = self.result.stderr.splitlines()
        return [line for line in lines if not line.startswith("trimtab: compiling kernels")]


def found_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


TYPED = {  # on the command line, for words of Python
    "recs": "lists", "recent": "events", "k=0": "--k 0", "duplicates=": "--duplicates max",
    "unlisted='zero'": "--set unlisted=zero", "scale='log'": "--set scale=log",
    "scale='additive'": "--set scale=additive",
}  # fmt: skip
OPTIONS = {"recs": "lists", "recent": "events", "topk": "lists", "truth": "events"}


def command_line(case: Case, folder: Path) -> list[str]:
    """Write the tables of a case; returns the arguments for its tables and settings."""
    settings, tables = {"k": 2, **case.settings}, {**NEEDED[case.command], **case.tables}
    arguments = [case.command, "--k", str(settings.pop("k"))]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        arguments += [f"--{OPTIONS.get(name, name)}", f"{name}.parquet"]
    if case.command == "fit":
        arguments += ["--out", "out"]
    if case.command == "apply":
        arguments += ["--model", "bias", "--out", "out.parquet"]
    return arguments


FIT = ("fit", "--k", "2", "--lists", "recs.parquet", "--events", "recent.parquet")
APPLY = ("apply", "--k", "2", "--lists", "recs.parquet", "--model", "bias")


def after(change: Callable[[Path], object], *arguments: str) -> Callable[[Path], list[str]]:
    """Valid tables in a folder, what changes it, and these arguments."""

    def prepare(folder: Path) -> list[str]:
        pq.write_table(RECS, folder / "recs.parquet")
        pq.write_table(RECENT, folder / "recent.parquet")
        (folder / "file").write_text("x")
        change(folder)
        return list(arguments)

    return prepare


def with_arguments(*arguments: str) -> Callable[[Path], list[str]]:
    return after(lambda folder: None, *arguments)


def with_recs(content: bytes, name: str = "recs.parquet") -> Callable[[Path], list[str]]:
    """A fit with lists from a file with this content."""
    arguments = ("fit", "--k", "2", "--lists", name, "--events", "recent.parquet", "--out", "out")
    return after(lambda folder: (folder / name).write_bytes(content), *arguments)


def with_bias(damage: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """Saved biases that were damaged."""
    return after(lambda folder: damage(folder / "bias"), *APPLY, "--out", "out.csv")


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


FILES = {
    "cut in half": (
        with_recs(parquet_bytes()[: len(parquet_bytes()) // 2]), "recs.parquet | Parquet | CSV"
    ),
    "a picture": (with_recs(b"\x89PNG\r\n\x1a\n" + bytes(64)), "recs.parquet | Parquet"),
    "an empty file": (with_recs(b""), "recs.parquet | Parquet"),
    "a CSV file with an empty id": (
        with_recs(b"user_id,item_id,score\n1,,0.5\n", "recs.csv"),
        "'item_id' | recs | 1 of 1",
    ),
    "a missing file": (
        with_arguments("fit", "--lists", "no.parquet", "--events", "no.parquet", "--out", "out"),
        "no.parquet",
    ),
    "a folder without a header": (
        with_bias(lambda folder: (folder / "header.json").unlink()), "bias | header.json"
    ),
    "a newer format": (with_bias(lambda folder: edit_header(folder, version=4)), "version 4 | 3"),
    "a checksum that does not match": (with_bias(damage_table), "bias | checksum"),
    "an unknown setting": (
        with_arguments(*FIT, "--out", "out", "--set", "penality=1"),
        "--set | penality=1 | names are method, scale",
    ),
    "an unknown ending": (
        with_arguments(*APPLY, "--out", "out.xlsx"), "out.xlsx | .parquet | .csv"
    ),
    "a folder that cannot be made": (
        with_arguments(*FIT, "--out", "file/out"), "file/out"
    ),
    "a file that cannot be made": (
        with_arguments(*APPLY, "--out", "file/out.csv"), "file"
    ),
}  # fmt: skip


def jobs() -> dict[str, Callable[[Path], list[str]]]:
    """By name: a function that prepares a folder and returns the arguments of a command."""
    cases = dict(CASES)
    for name, (_, tables, k) in WARNINGS.items():
        cases[name] = fit("", settings={"k": k}, **tables)
    prepared = {name: partial(command_line, case) for name, case in cases.items()}
    return prepared | {name: prepare for name, (prepare, _) in FILES.items()}


@pytest.fixture(scope="module")
def runs(trimtab, bias, tmp_path_factory) -> dict[str, Run]:
    """All commands, where nothing optional is found; one of them by the installed script."""
    folders = {name: tmp_path_factory.mktemp("run") for name in jobs()}
    commands = []
    for name, prepare in jobs().items():
        bias.save(folders[name] / "bias")
        commands.append({"folder": str(folders[name]), "arguments": prepare(folders[name])})
    before = {name: found_in(folder) for name, folder in folders.items()}
    by_script = trimtab(*commands[0]["arguments"], cwd=folders["missing column"])
    hooks = tmp_path_factory.mktemp("hooks")
    (hooks / "sitecustomize.py").write_text(WITHOUT_OPTIONAL)
    paths = [str(hooks), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_commands.py"))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
        input=json.dumps(commands), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = [subprocess.CompletedProcess((), **result) for result in json.loads(done.stdout)]
    found = {
        name: Run(result, before[name], found_in(folders[name]))
        for name, result in zip(folders, results, strict=True)
    }
    first = found["missing column"]
    return {**found, "by the installed script": Run(by_script, first.before, first.after)}


def test_the_installed_script_says_the_same(runs):
    script, forked = (runs[name].result for name in ("by the installed script", "missing column"))
    assert (script.returncode, script.stdout) == (forked.returncode, forked.stdout)
    assert runs["by the installed script"].stderr == runs["missing column"].stderr


@pytest.mark.parametrize("name", [*CASES, *FILES])
def test_the_command_refuses(name, runs):
    words = CASES[name].words if name in CASES else FILES[name][1].split(" | ")
    run = runs[name]
    assert run.result.returncode == 2
    assert run.result.stdout == ""
    (line,) = run.stderr
    assert line.startswith("trimtab: ")
    for part in words:
        assert TYPED.get(part, part) in line
    assert run.after == run.before


@pytest.mark.parametrize("name", WARNINGS)
def test_the_command_warns(name, runs):
    run = runs[name]
    assert run.result.returncode == 0
    line, guard = run.stderr
    assert re.search(r"too little to tell: \d+ users .* at least 10", guard)
    said = WARNINGS[name][0].replace("k=", "--k ")
    assert re.match(f"trimtab: warning: .*{said}", line)
    assert "out/header.json" in run.after
