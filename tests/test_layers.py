"""Data flows one way: a module imports only from lines above its own, and nothing goes in circles.

Every import counts: those inside functions and those that only a type checker sees, too.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "trimtab"

# From top to bottom. A folder stands for all modules in it; a module in it imports its neighbours
# freely, but not in a circle.
LINES = (
    "version",
    "errors",
    "checks",
    "arrays",
    "threads",
    "progress",
    "kernels",
    "tables",
    "parts",
    "metrics",
    "models",
    "learn",
    "from_parts",
    "parquet",
    "spark",
    "store",
    "engines",
    "adapters",
    "datasets",
    "replay",
    "daily",
    "abtest",
    "serve",
    "report",
    "compile",
    "cli",
    "",  # the package itself, which re-exports the public names
)
MOST_AT_THE_TOP = 12


def find_modules(package: Path) -> dict[str, Path]:
    """Files by the names they are imported by, `trimtab.` left off; "" is the package itself."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def read_imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "trimtab":
                found.add(rest if rest in modules else rest.rpartition(".")[0])
    return found


def line_of(module: str) -> int:
    """The line that a module is on: that of the longest name it begins with."""
    fitting = [name for name in LINES if name and (module + ".").startswith(name + ".")]
    if module and not fitting:
        raise LookupError(f"{module} is on no line: add it to LINES where the data flows")
    return LINES.index(max(fitting, key=len) if module else "")


def against_the_flow(graph: dict[str, set[str]]) -> list[str]:
    """Imports of what is on a lower line."""
    return sorted(
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if line_of(other) > line_of(module)
    )


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Modules that import each other, directly or by way of others."""
    left = {module: set(others) & set(graph) - {module} for module, others in graph.items()}
    while free := {module for module, others in left.items() if not others & set(left)}:
        left = {module: others for module, others in left.items() if module not in free}
    # What is left imports something in a circle; what nobody left imports is not part of one.
    while outer := set(left) - {other for others in left.values() for other in others}:
        left = {module: others for module, others in left.items() if module not in outer}
    return [set(left)] if left else []


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    modules = find_modules(PACKAGE)
    return {module: read_imports(path, modules) for module, path in modules.items()}


def test_imports_follow_the_flow(graph):
    assert against_the_flow(graph) == []


def test_nothing_goes_in_circles(graph):
    # A package's __init__ gives names of its modules to others: for circles it is those modules.
    inits = {name for name, path in find_modules(PACKAGE).items() if path.name == "__init__.py"}
    resolved = {
        module: {other for other in others if other not in inits}
        for module, others in graph.items()
    }
    assert circles(resolved) == []


def test_few_modules_lie_at_the_top():
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_AT_THE_TOP


def test_names_of_files_tell_them_apart():
    """A name may come back where the folder makes the difference obvious: say so here."""
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    twice = {name for name, count in names.items() if count > 1} - {"__init__.py"}
    assert twice <= OBVIOUS


OBVIOUS = {"settings.py", "files.py", "spark.py", "plan.py", "ranking.py"}


@pytest.mark.parametrize(
    "line",
    [
        "from trimtab.cli import main",
        "import trimtab.report.page",
        "def f():\n    from trimtab.learn.counted import Counted",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trimtab.store import Store",
    ],
)
def test_an_import_against_the_flow_is_found(tmp_path, line):
    modules = find_modules(PACKAGE)
    turned = tmp_path / "arrays.py"
    turned.write_text(line)
    assert against_the_flow({"arrays": read_imports(turned, modules)}) != []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []
