"""After `python -m trimtab.compile`, a refresh and a service find every kernel in the cache."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import trimtab.kernels
from trimtab.compile import compile_kernels

# Kernels that neither a refresh nor a service uses: of backtests, the paper's method, metrics, A/B
# tests and `apply(explore=)`.
ELSEWHERE = {
    "engines", "ascent_rows", "ascent_steps", "ordered_weights", "counting.find_relevance",
    "counting.sum_lists", "counting.sum_redistributed", "ranking.merge_explored",
}  # fmt: skip


def all_kernels() -> dict[str, object]:
    """Kernels that the cache holds, by name."""
    (folder,) = trimtab.kernels.__path__
    stems = {path.stem for path in Path(folder).glob("*.py")} - {"__init__", *ELSEWHERE}
    modules = {stem: import_module(f"trimtab.kernels.{stem}") for stem in sorted(stems)}
    return {
        f"{stem}.{name}": value
        for stem, module in modules.items()
        for name, value in vars(module).items()
        if hasattr(value, "signatures")
        and value.__module__ == module.__name__
        and type(value._cache).__name__ != "NullCache"
    }


def test_every_kernel_of_a_refresh_and_a_service_is_compiled():
    compile_kernels()
    kernels = all_kernels()
    assert len(kernels) > 20
    missing = {name for name, value in kernels.items() if not value.signatures}
    assert missing <= ELSEWHERE
