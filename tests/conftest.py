"""Fixtures shared by tests: generated data, and the real command line."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drift import DriftData, generate_drift
from shops import Shop, make_shop

# Workers share the cores: each with one thread for linear algebra. They get this from here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
BROWSER_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# Code for a process in which no optional library can be imported.
WITHOUT_OPTIONAL = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars", "scipy", "ranx", "altair", "vl_convert", "duckdb",
                    "hypothesis", "pytest"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def data() -> DriftData:
    """Data of a few hundred users, quick to learn from."""
    return generate_drift(n_users=400, n_items=120, n_listed=20, drift=1.0, seed=3)


@pytest.fixture(scope="session")
def many() -> DriftData:
    """Data with enough users to use several threads."""
    return generate_drift(n_users=5_000, n_items=300, n_listed=15, drift=1.0, seed=4)


@pytest.fixture(scope="session")
def trimtab(tmp_path_factory) -> Cli:
    """Run the installed `trimtab` command in a folder, without optional libraries."""
    hooks = tmp_path_factory.mktemp("hooks")
    (hooks / "sitecustomize.py").write_text(WITHOUT_OPTIONAL)
    return functools.partial(_run, [str(hooks)])


@pytest.fixture(scope="session")
def trimtab_with_extras() -> Cli:
    """Run the installed `trimtab` command in a folder, with all extras."""
    return functools.partial(_run, [])


def _run(hooks: list[str], *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    paths = [*hooks, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    return subprocess.run(
        [str(script), *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="session")
def bytes_of() -> Callable[[pa.Table], bytes]:
    """Return a table as bytes, to compare every bit."""

    def serialise(table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return bytes(sink.getvalue())

    return serialise


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser; without one tests are skipped, or fail if TRIMTAB_REQUIRE_BROWSER is set."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        if os.environ.get("TRIMTAB_REQUIRE_BROWSER"):
            pytest.fail("no chromium found, and TRIMTAB_REQUIRE_BROWSER is set")
        pytest.skip("no chromium found: apt-get install chromium")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=BROWSER_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def made_shop(tmp_path_factory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("made") / "shop")


@pytest.fixture
def shop(made_shop, tmp_path) -> Shop:
    """A copy of the shop that a test may change."""
    shutil.copytree(made_shop.folder, tmp_path / "shop")
    return Shop(tmp_path / "shop", made_shop.log)
