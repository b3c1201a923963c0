"""docs/code.md names files and functions that exist, and lists folders in the order of imports."""

from __future__ import annotations

import re
from pathlib import Path

from test_layers import LINES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "trimtab"
TEXT = (ROOT / "docs" / "code.md").read_text()
FILE = r"(?:[\w-]+/)*[\w-]+\.py"


def find(path: str) -> Path:
    base = ROOT if path.startswith(("src/", "tests/", "docs/", "benchmarks/")) else PACKAGE
    return base / path


def is_defined(name: str, path: str) -> bool:
    defined = rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.* = "
    return re.search(defined, find(path).read_text(), re.M) is not None


def test_every_path_exists() -> None:
    paths = set(re.findall(rf"`({FILE}|(?:[\w-]+/)+)`", TEXT))
    assert len(paths) > 80
    assert sorted(path for path in paths if not find(path).exists()) == []


def test_every_name_is_defined_in_the_file_before_it() -> None:
    named = [
        (path, name)
        for path, names in re.findall(rf"`({FILE})` \((`\w+`(?:, `\w+`)*)\)", TEXT)
        for name in re.findall(r"\w+", names)
    ]
    assert len(named) > 40
    assert [(path, name) for path, name in named if not is_defined(name, path)] == []


def test_folders_are_listed_in_the_order_of_imports() -> None:
    table = TEXT.partition("## What is where")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w/.]+)` \|", table, re.M)
    expected = [line.replace(".", "/") for line in LINES if line]
    assert [path.removesuffix(".py").removesuffix("/") for path in listed] == expected
