"""How kernels are compiled: once per machine, cached on disk, never holding the interpreter's lock."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_NOTICE_AFTER_SECONDS = 1.5
_NOTICE = "trimtab: compiling kernels, first run only (up to 20 s); later runs use the cached code"


def _ensure_cache_folder() -> None:
    """Point numba at a writable folder when neither the package's nor the user's is."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return
    beside_source = Path(__file__).parent / "__pycache__"
    candidates = [beside_source if beside_source.exists() else beside_source.parent]
    with contextlib.suppress(RuntimeError):
        candidates.append(Path.home())
    if not any(os.access(folder, os.W_OK) for folder in candidates):
        fallback = Path(tempfile.gettempdir()) / f"trimtab-kernels-{os.getuid()}"
        fallback.mkdir(mode=0o700, exist_ok=True)
        os.environ["NUMBA_CACHE_DIR"] = str(fallback)


_ensure_cache_folder()

import numba  # noqa: E402  (its cache folder is read at import)


def kernel(function: F) -> F:
    """Compile a function over arrays: no Python objects, cached, free of the interpreter's lock."""
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def helper(function: F) -> F:
    """Compile a small function that kernels call, inlined by the compiler where that pays."""
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


@contextlib.contextmanager
def compile_notice() -> Iterator[None]:
    """Tell the user on stderr why nothing seems to happen, if compiling takes its time."""
    timer = threading.Timer(_NOTICE_AFTER_SECONDS, lambda: print(_NOTICE, file=sys.stderr))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
