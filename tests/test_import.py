"""`import trimtab` is light: it loads no optional or heavy library."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = [
    "numba", "llvmlite", "pandas", "polars", "scipy", "sklearn", "typer", "click", "rich", "ranx",
    "duckdb", "altair", "plotly", "matplotlib", "pyspark", "starlette", "granian",
    "pyarrow.parquet", "pyarrow.dataset", "pyarrow.csv", "hypothesis", "pytest", "implicit",
    "lightfm", "lenskit", "rectools", "torch", "faiss", "usearch", "hnswlib", "sphinx",
    "adbc_driver_manager", "adbc_driver_postgresql",
]  # fmt: skip


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stderr == ""
    return result.stdout


def loaded_by(statement: str) -> set[str]:
    return set(json.loads(run(f"{statement}; import sys, json; print(json.dumps([*sys.modules]))")))


def test_nothing_heavy_is_imported():
    light = "import trimtab, trimtab.datasets, trimtab.metrics.per_user"
    assert loaded_by(light).isdisjoint(HEAVY)


def test_only_required_libraries_are_imported():
    required = ["numpy", "pyarrow", "narwhals", "filelock", "msgspec"]
    known = f"import {', '.join(required)}, sysconfig; sysconfig.get_config_vars()"
    found = loaded_by("import trimtab") - loaded_by(known)
    packages = {name.partition(".")[0] for name in found}
    assert packages - sys.stdlib_module_names <= {"trimtab", *required}


def test_a_model_is_looked_at_without_importing_its_library():
    table = "pa.table({'user_id': [1], 'item_id': [2], 'score': [3.0]})"
    modules = loaded_by(f"import trimtab, pyarrow as pa; trimtab.recs_from({table})")
    assert "trimtab.adapters.libraries" in modules
    assert modules.isdisjoint({"implicit", "lightfm", "lenskit", "rectools", "torch", "faiss"})


def test_the_command_line_starts_without_the_compiler():
    modules = loaded_by("import trimtab.cli")
    assert modules.isdisjoint({"numba", "llvmlite", "pandas", "polars", "scipy", "ranx"})
    assert "typer" in modules


def test_submodules_come_when_they_are_asked_for():
    assert "trimtab.datasets.shop_logs" in loaded_by("import trimtab as tt; tt.datasets.read_log")
    assert "trimtab.parts.files" in loaded_by("import trimtab as tt; tt.parquet.fit")
    assert "trimtab.replay.windows" in loaded_by("import trimtab as tt; tt.replay.split_log")


def test_all_public_names_are_there():
    import trimtab

    for name in trimtab.__all__:
        assert getattr(trimtab, name) is not None
    assert trimtab.__version__
