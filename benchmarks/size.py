"""Files and lines of code by folder: without blank lines, comments and docstrings.

python benchmarks/size.py
python benchmarks/size.py src/trimtab tests
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def count_lines(file: Path) -> int:
    """Lines that hold code."""
    with file.open("rb") as opened:
        tokens = [own for own in tokenize.tokenize(opened.readline) if own.type not in NO_CODE]
    lines = {line for own in tokens for line in range(own.start[0], own.end[0] + 1)}
    return len(lines - docstring_lines(ast.parse(file.read_bytes())))


def docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of all docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            found |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def report(folder: Path) -> None:
    """Print a row for each part of a folder, and one for all."""
    files, lines = Counter[str](), Counter[str]()
    for file in sorted(folder.rglob("*.py")):
        part, *rest = file.relative_to(folder).parts
        name = f"{part}/" if rest else "files of its own"
        files[name] += 1
        lines[name] += count_lines(file)
    for name in (*sorted(files), "all"):
        n_files, n_lines = (
            (files.total(), lines.total()) if name == "all" else (files[name], lines[name])
        )
        print(f"{name:>20} {n_files:>5} files {n_lines:>7,} lines of code")


if __name__ == "__main__":
    for given in sys.argv[1:] or [ROOT / "src" / "trimtab"]:
        print(Path(given).resolve().relative_to(ROOT))
        report(Path(given).resolve())
