"""Invalid input is refused in one sentence that names it, in Python and on the command line.

Each of `CASES` runs twice: in Python, and as a command, which must leave no files behind. `MORE`
run only in Python. Tests look for names and values in the messages, not for their wording.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from changed_tables import as_text, with_column
from shops import run_in_process

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


USER, ITEM, INF = "user_id", "item_id", float("inf")


def change(table: pa.Table, name: str, *values: Any, kind: Any = None) -> pa.Table:
    """The table with other values in the first rows of a column."""
    rest = table[name].to_pylist()[len(values) :]
    return with_column(table, name, pa.array([*values, *rest], kind))


class Case(NamedTuple):
    """Tables and settings that must be refused, and the names and values of the message."""

    command: str
    words: str
    tables: dict[str, pa.Table]
    settings: dict[str, Any] = {}  # noqa: RUF012


def recs(name: str, *values: Any, kind: Any = None) -> dict[str, pa.Table]:
    return {"recs": change(RECS, name, *values, kind=kind)}


def recent(name: str, *values: Any) -> dict[str, pa.Table]:
    return {"recent": change(RECENT, name, *values)}


def weights(name: str, *values: Any) -> dict[str, pa.Table]:
    return {"weights": change(WEIGHTS, name, *values)}


NO_SCORE = {"recs": RECS.drop_columns("score")}
OTHERS = (91, 92, 93, 94)
IN_WINDOWS = {
    "recs": RECS.append_column("window", pa.array(["2026-11-01"] * 18)),
    "recent": RECENT.append_column("window", pa.array(["2026-11-08"] * 4)),
}
LEARNER = tt.BiasLearner(method="ascent", k=2)
CASES = {
    "missing column": Case("fit", "'score' | recs | user_id, item_id", NO_SCORE),
    "no rows": Case("fit", "recs", {"recs": RECS.slice(0, 0)}),
    "nan": Case("fit", "'score' | recs | nan | row 1", recs("score", 0.5, float("nan"))),
    "missing score": Case("fit", "'score' | recs | 2 of 18", recs("score", None, None)),
    "float ids": Case("fit", "'item_id' | recs | double", recs("item_id", 7.0, kind=pa.float64())),
    "a pair twice": Case("fit", "recs | user_id 1 | item_id 8 | duplicates=", recs("item_id", 8)),
    "users of two types": Case(
        "fit", "'user_id' | integers | recs | strings | recent", {"recent": as_text(RECENT, USER)}
    ),
    "items of two types": Case(
        "fit", "'item_id' | strings | recs | integers | recent", {"recs": as_text(RECS, ITEM)}
    ),
    "items of another type than the biases": Case(
        "apply", "'item_id' | strings | recs | integers | bias", {"recs": as_text(RECS, ITEM)}
    ),
    "other users": Case("fit", "recent has user_id 91 | recs has user_id 1", recent(USER, *OTHERS)),
    "other items": Case("fit", "recent has item_id 91 | recs has item_id 7", recent(ITEM, *OTHERS)),
    "negative score": Case(
        "fit", "'score' | recs | -0.5 | unlisted='zero'", recs("score", -0.5), {"unlisted": "zero"}
    ),
    "logarithm of zero": Case(
        "fit", "'score' | recs | 0 | scale='log' | scale='additive'", recs("score", 0.0),
        {"scale": "log", "method": "ascent"},
    ),
    "k below one": Case("fit", "k=0", {}, {"k": 0}),
    "a time outside the calendar": Case(
        "fit", "'timestamp' | recent | -4611686018427387904 | years 2 to 9998",
        {"recent": RECENT.append_column("timestamp", FAR)},
    ),
}  # fmt: skip
NO_WEIGHT = {"weights": pa.table({"user_id": [1, 2, 3, 4], "weight": [0] * 4})}
MORE = {
    "no weight at all": Case("fit", "'weight' | weights | 0", NO_WEIGHT),
    "no purchases": Case("fit", "recent", {"recent": RECENT.slice(0, 0)}),
    "nothing allowed": Case("apply", "allowed", {"allowed": PAIRS.slice(0, 0)}),
    "infinite": Case("apply", "'score' | recs | -inf | row 0", recs("score", -INF)),
    "scores in words": Case("fit", "'score' | recs | string", {"recs": as_text(RECS, "score")}),
    "a pair twice in apply": Case("apply", "recs | user_id 1 | item_id 8", recs("item_id", 8)),
    "other users in truth": Case(
        "evaluate",
        "truth has user_id 91 | topk | user_id 1",
        {"truth": change(RECENT, USER, *OTHERS)},
    ),
    "other windows": Case("fit", "recent has user_id 1 in window 2026-11-08 | recs", IN_WINDOWS),
    "windows in one table": Case(
        "fit", "recs | 'window' | recent", {"recs": IN_WINDOWS["recs"], "recent": RECENT}
    ),
    "k below one in apply": Case("apply", "k=0", {}, {"k": 0}),
    "k below one in evaluate": Case("evaluate", "k=-3", {}, {"k": -3}),
    "k too large for a kernel": Case("evaluate", f"k={10**20}: must be", {}, {"k": 10**20}),
    "unknown metric": Case("fit", "metric='mrr' | acc, map, ndcg", {}, {"metric": "mrr"}),
    "negative weight": Case("fit", "'weight' | weights | -1", weights("weight", -1.0)),
    "a weight twice": Case("fit", "'user_id' | weights | 2", weights(USER, 2)),
    "infinite weight": Case("fit", "'weight' | weights | inf | row 0", weights("weight", INF)),
}


@pytest.fixture(scope="module")
def bias() -> tt.ItemBias:
    return LEARNER.fit(RECS, RECENT)


# In Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_python_refuses(name, bias):
    case = {**CASES, **MORE}[name]
    with pytest.raises(tt.DataError if case.tables else tt.SettingError) as caught:
        run_in_python(case, bias)
    message = str(caught.value)
    assert isinstance(caught.value, tt.TrimtabError)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in message
    assert [words for words in case.words.split(" | ") if words not in message] == []


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
                    run_in_python(Case(command, "", {name: other}), bias)
                assert all(word in str(caught.value) for word in words), str(caught.value)


def run_in_python(case: Case, bias: tt.ItemBias) -> Any:
    settings, tables = {"k": 2, **case.settings}, {**NEEDED[case.command], **case.tables}
    if case.command == "fit":
        return tt.BiasLearner(**settings).fit(**tables)
    return (bias.apply if case.command == "apply" else tt.evaluate)(**settings, **tables)


def test_evaluate_refuses_the_same_weights():
    for own, words in (
        (weights("weight", -1.0), "'weight' of weights .*-1"),
        (weights(USER, 2), "'user_id' of weights .*2"),
        (NO_WEIGHT, "'weight' of weights .*0"),
        ({"weights": as_text(WEIGHTS, USER)}, "'user_id' .*integers.* topk .*strings.* weights"),
    ):
        with pytest.raises(tt.DataError, match=words):
            tt.evaluate(RECS, RECENT, k=2, **own)


def test_frames_that_cannot_be_read():
    """No frames, columns of mixed types, and two columns of one name."""
    mixed = RECS.to_pandas().astype({"item_id": object})
    for frame, words in (
        *((frame, type(frame).__name__) for frame in ("recs.csv", {USER: [1]}, None, RECS[USER])),
        (mixed.assign(item_id=[*RECENT[ITEM].to_pylist(), *["seven"] * 14]), "item_id"),
        (mixed.assign(item_id=[*RECENT[ITEM].to_pylist(), *[object()] * 14]), "item_id"),
        (RECS.append_column(USER, RECS[USER]), "column"),
    ):
        with pytest.raises(tt.DataError, match=f"recs .*{words}"):
            LEARNER.fit(frame, RECENT)


def test_an_unknown_way_to_merge(bias):
    for duplicates in ("first", None):
        message = f"duplicates={duplicates!r}.* error, max, mean, sum"
        with pytest.raises(tt.SettingError, match=message):
            bias.apply(RECS, k=2, duplicates=duplicates)
        with pytest.raises(tt.SettingError, match=message):
            LEARNER.fit(RECS, RECENT, duplicates=duplicates)


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
        LEARNER.fit(RECS, recent)


# On the command line ---------------------------------------------------------------------------

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


FIT = ("fit", "--k", "2", "--lists", "recs.parquet", "--events", "recent.parquet", "--out", "out")
APPLY = ("apply", "--k", "2", "--lists", "recs.parquet", "--model", "bias", "--out", "out.csv")


WITH_CSV = ("fit", "--lists", "recs.csv", "--events", "recent.parquet", "--out", "out")


def writing(content: bytes, name: str = "recs.parquet") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def nothing(folder: Path) -> None:
    pass


def parquet_bytes() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(RECS, sink)
    return bytes(sink.getvalue())


def make_newer(folder: Path) -> None:
    path = folder / "bias" / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 4}))


def damage_table(folder: Path) -> None:
    (table,) = folder.glob("bias/bias-*.parquet")
    table.write_bytes(table.read_bytes().replace(b"PAR1", b"PAR2"))


def lose_header(folder: Path) -> None:
    (folder / "bias" / "header.json").unlink()


MISSING = ("fit", "--lists", "no.parquet", "--events", "no.parquet", "--out", "out")
NO_ID = writing(b"user_id,item_id,score\n1,,0.5\n", "recs.csv")
PICTURE, HALF = b"\x89PNG\r\n\x1a\n" + bytes(64), parquet_bytes()[: len(parquet_bytes()) // 2]
FILES = {  # what changes a folder with valid tables, a command, and the words of its refusal
    "cut in half": (writing(HALF), FIT, "recs.parquet | Parquet | CSV"),
    "a picture": (writing(PICTURE), FIT, "recs.parquet | Parquet"),
    "an empty file": (writing(b""), FIT, "recs.parquet | Parquet"),
    "a CSV file with an empty id": (NO_ID, WITH_CSV, "'item_id' | recs | 1 of 1"),
    "a missing file": (nothing, MISSING, "no.parquet"),
    "a folder without a header": (lose_header, APPLY, "bias | header.json"),
    "a newer format": (make_newer, APPLY, "version 4 | 3"),
    "a checksum that does not match": (damage_table, APPLY, "bias | checksum"),
    "an unknown setting": (
        nothing, (*FIT, "--set", "penality=1"), "--set | penality=1 | names are method, scale"
    ),
    "an unknown ending": (nothing, (*APPLY[:-1], "out.xlsx"), "out.xlsx | .parquet | .csv"),
    "a folder that cannot be made": (nothing, (*FIT[:-1], "file/out"), "file/out"),
    "a file that cannot be made": (nothing, (*APPLY[:-1], "file/out.csv"), "file"),
}  # fmt: skip


@pytest.fixture
def folder(bias, tmp_path, monkeypatch) -> Path:
    """An empty folder with saved biases, in which commands run."""
    monkeypatch.chdir(tmp_path)
    bias.save(tmp_path / "bias")
    return tmp_path


def found_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def said(stderr: str) -> list[str]:
    """Lines on stderr, without the notice about compiling."""
    lines = stderr.splitlines()
    return [line for line in lines if not line.startswith("trimtab: compiling kernels")]


@pytest.mark.parametrize("name", [*CASES, *FILES])
def test_the_command_refuses(name, folder):
    if name in CASES:
        arguments, words = command_line(CASES[name], folder), CASES[name].words
    else:
        change, arguments, words = FILES[name]
        pq.write_table(RECS, folder / "recs.parquet")
        pq.write_table(RECENT, folder / "recent.parquet")
        (folder / "file").write_text("x")
        change(folder)
    before = found_in(folder)
    ran = run_in_process(*arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = said(ran.stderr)
    assert line.startswith("trimtab: ")
    for part in words.split(" | "):
        assert TYPED.get(part, part) in line
    assert found_in(folder) == before


def test_the_installed_script_says_the_same(trimtab, folder):
    arguments = command_line(CASES["missing column"], folder)
    script, ran = trimtab(*arguments, cwd=folder), run_in_process(*arguments)
    assert (script.returncode, script.stdout) == (ran.returncode, ran.stdout)
    assert said(script.stderr) == said(ran.stderr)


def test_the_command_warns(folder, trimtab):
    ran = trimtab(*command_line(Case("fit", "", {}, {"k": 4}), folder), cwd=folder)
    assert ran.returncode == 0
    line, guard = said(ran.stderr)
    assert re.search(r"too little to tell: \d+ users .* at least 10", guard)
    assert re.match(r"trimtab: warning: .*--k 4.* 3", line)
    assert "out/header.json" in found_in(folder)
