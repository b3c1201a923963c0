"""Check that a release is complete: its files, its version, and what its wheel and sdist hold.

    python benchmarks/check_package.py --tag v0.2.0     the tag, version.py and CHANGELOG.md agree
    python benchmarks/check_package.py dist             the wheel and the sdist hold what they need

`make package` builds both and runs this. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
NEEDED_SOURCES = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile",
    "README.md", "SECURITY.md", "compose.yaml", "constraints.txt", "pyproject.toml",
)  # fmt: skip
FORBIDDEN = re.compile(r"__pycache__|\.pyc$|\.venv|\.git/|_build/|\.ruff_cache|\.egg-info")


def read_version() -> str:
    """The version, from the one place that has it."""
    text = (SOURCE / "trimtab" / "version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.M)
    assert found, 'src/trimtab/version.py: no line like __version__ = "0.2.0"'
    return found[1]


def package_files() -> set[str]:
    """All files of the package, as a wheel names them."""
    folder = SOURCE / "trimtab"
    return {
        path.relative_to(SOURCE).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def check_names(kind: str, found: set[str], needed: set[str]) -> list[str]:
    """What a file lacks, and what it should not have."""
    missing = [f"{kind} lacks {name}" for name in sorted(needed - found)]
    return missing + [f"{kind} has {n}" for n in sorted(found) if FORBIDDEN.search(n)]


def check_wheel(path: Path) -> list[str]:
    """Problems of a wheel: it must hold the package with all its files, and the licence."""
    with zipfile.ZipFile(path) as wheel:
        found = set(wheel.namelist())
    info = f"trimtab-{read_version()}.dist-info"
    own = {f"{info}/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE")}
    strangers = {name for name in found if not name.startswith(("trimtab/", info))}
    return check_names("wheel", found, package_files() | own) + [
        f"wheel has {name}" for name in sorted(strangers)
    ]


def check_sdist(path: Path) -> list[str]:
    """Problems of an sdist: it must hold what builds, tests and documents the package."""
    with tarfile.open(path) as sdist:
        found = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {f"src/{name}" for name in package_files()} | set(NEEDED_SOURCES)
    return check_names("sdist", found, needed | {"tests/conftest.py", "docs/index.md"})


def check_folder(folder: Path) -> list[str]:
    """Problems of a folder with one wheel and one sdist of this version."""
    expected = {
        f"trimtab-{read_version()}-py3-none-any.whl": check_wheel,
        f"trimtab-{read_version()}.tar.gz": check_sdist,
    }
    found = {path.name for path in folder.glob("*")}
    if found != set(expected):
        return [f"{folder} must hold {' and '.join(expected)}; found {', '.join(sorted(found))}"]
    return [problem for name, check in expected.items() for problem in check(folder / name)]


def check_tag(tag: str) -> list[str]:
    """Problems of a tag: it must be the version, with a date in the changelog."""
    version = read_version()
    problems = [] if tag == f"v{version}" else [f"tag {tag}, but version.py says {version}"]
    heading = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not heading or not re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", heading[1]):
        problems.append(f"CHANGELOG.md must begin with '## {version}, ' and the date")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tag")
    asked = parser.parse_args()
    problems = check_tag(asked.tag) if asked.tag else []
    problems += check_folder(asked.folder) if asked.folder else []
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
