"""How kernels are compiled: once per machine, cached on disk, and without the interpreter's lock.

Numba's own cache notices a change in a kernel's file, but not in the files it calls. Our cache
folder is therefore named after the content of all kernel files together.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_NOTICE_AFTER_SECONDS = 1.5
_NOTICE = "trimtab: compiling kernels, first run only (up to 10 s); later runs use the cached code"


def _cache_roots() -> Iterator[Path]:
    """Folders that may hold compiled kernels, the best one first."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"])
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    yield Path(tempfile.gettempdir()) / f"trimtab-{user}"


@functools.cache
def cache_folder() -> str:
    """A writable folder for this version of the kernels; created if missing."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for root in _cache_roots():
        folder = root / "trimtab" / f"kernels-{digest.hexdigest()[:16]}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return str(folder)
    return tempfile.mkdtemp(prefix="trimtab-kernels-")


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function on arrays: cached, and run without the interpreter's lock."""
    # Numba reads the folder when it decorates a function; other libraries keep their own.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = cache_folder()
    try:
        return numba.njit(cache=True, **options, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call; without an entry from Python it is quicker."""
    return numba.njit(no_cpython_wrapper=True, **_OPTIONS)(function)


def bare_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that makes no arrays: it needs no reference counts, which cost time."""
    return kernel(function, _nrt=False)


def bare_helper(function: Callable[..., Any]) -> Any:
    """Compile a helper that makes no arrays, into each kernel that calls it."""
    options = {"no_cpython_wrapper": True, "_nrt": False, "forceinline": True}
    return numba.njit(**options, **_OPTIONS)(function)


@functools.cache
def _print_notice() -> None:
    print(_NOTICE, file=sys.stderr)


@contextlib.contextmanager
def compile_notice(seconds: float = _NOTICE_AFTER_SECONDS) -> Iterator[None]:
    """Print a notice on stderr if the work takes longer than this and no kernel is cached yet."""
    timer = threading.Timer(seconds, _print_notice)
    timer.daemon = True
    if not any(Path(cache_folder()).rglob("*.nbc")):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
