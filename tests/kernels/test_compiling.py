"""The notice about compiling: said when kernels are compiled, not when they are slow."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimtab.kernels import compiling
from trimtab.kernels.compiling import compile_notice

KERNEL = """
from trimtab.kernels.compiling import helper, kernel

@helper
def add_one(x):
    return x + 1

@kernel
def add_all(values):
    total = 0.0
    for value in values:
        total += add_one(value)
    return total
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch) -> Iterator[Path]:
    """A file with a kernel, and an empty cache; no notice has been printed yet."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernels_of_a_test.py").write_text(KERNEL)
    compiling.cache_folder.cache_clear()
    compiling._print_notice.cache_clear()
    yield tmp_path / "kernels_of_a_test.py"
    compiling.cache_folder.cache_clear()
    compiling._print_notice.cache_clear()


def load(path: Path) -> ModuleType:
    """Import a file as a new process would: what it compiled before is only on disk."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notice_is_for_compiling_only(kernels, capfd):
    """A busy machine that reads compiled kernels slowly is no reason to say it."""
    compiled = load(kernels)
    with compile_notice(seconds=0):
        assert compiled.add_all(np.ones(3)) == 6
    assert capfd.readouterr().err.count("compiling kernels") == 1
    compiling._print_notice.cache_clear()
    cached = load(kernels)
    with compile_notice(seconds=0):
        assert cached.add_all(np.ones(3)) == 6
        time.sleep(0.05)
    assert sum(cached.add_all.stats.cache_hits.values()) == 1
    assert capfd.readouterr().err == ""


def test_quick_compiling_is_not_worth_a_notice(kernels, capfd):
    with compile_notice(seconds=60):
        load(kernels).add_all(np.ones(3))
    assert capfd.readouterr().err == ""
