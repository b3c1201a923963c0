"""How kernels are compiled: once per machine, cached on disk, and without the interpreter's lock.

Numba's own cache notices a change in a kernel's file, but not in the files it calls. Our cache
folder is therefore named after the content of all kernel files together.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, event
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

from trimtab.arrays import Codes, Floats, Ints, Singles

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


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on arrays: cached, and run without the interpreter's lock."""
    # Numba reads the folder when it decorates a function; other libraries keep their own.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = cache_folder()
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call; without an entry from Python it is quicker."""
    return numba.njit(no_cpython_wrapper=True, **_OPTIONS)(function)


_ELEMENT_TYPES: dict[Any, Any] = {
    Ints: types.int64,
    Codes: types.int32,
    Floats: types.float64,
    Singles: types.float32,
}
_NUMBER_TYPES: dict[Any, Any] = {int: types.int64, bool: types.boolean}


def _unpacked_type(hint: Any) -> Any:
    if hint in _ELEMENT_TYPES:
        return types.CPointer(_ELEMENT_TYPES[hint])
    if hint in _NUMBER_TYPES:
        return _NUMBER_TYPES[hint]
    return types.NamedTuple([_unpacked_type(h) for h in get_type_hints(hint).values()], hint)


@functools.cache
def _dtypes(kind: Any) -> dict[str, Any]:
    """Dtypes of the arrays of a named tuple, None for other fields; reading hints is slow."""
    return {
        name: as_dtype(_ELEMENT_TYPES[hint]) if hint in _ELEMENT_TYPES else None
        for name, hint in get_type_hints(kind).items()
    }


def pack(group: Any) -> Ints:
    """A named tuple of arrays, integers and such tuples, as a table of addresses and integers.

    The caller keeps the arrays alive. A kernel that takes this table compiles several times faster
    than one that takes the arrays; `unpacker` restores the fields.
    """
    words: list[int] = []
    kind: Any = type(group)
    for (name, dtype), value in zip(_dtypes(kind).items(), group, strict=True):
        if dtype is not None:
            assert value.dtype == dtype and value.flags.c_contiguous, name  # noqa: PT018
            words.append(value.ctypes.data)
        elif isinstance(value, tuple):
            words.extend(pack(value).tolist())
        else:
            words.append(int(value))
    return np.array(words, np.int64)


def unpacker(kind: Any) -> Any:
    """A function for kernels that restores the named tuple from the table of `pack`.

    Arrays become plain pointers: indices are flat and not checked, and there is no reference count,
    which would cost more than the work of most kernels.
    """
    result = _unpacked_type(kind)

    @intrinsic
    def unpack(typingctx: Any, table: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            positions = itertools.count()

            def read(hint: Any) -> Any:
                if hint not in _ELEMENT_TYPES and hint not in _NUMBER_TYPES:
                    parts = [read(h) for h in get_type_hints(hint).values()]
                    return context.make_tuple(builder, _unpacked_type(hint), parts)
                word = builder.load(
                    builder.gep(data, [ir.Constant(ir.IntType(64), next(positions))])
                )
                if hint in _ELEMENT_TYPES:
                    return builder.inttoptr(word, context.get_value_type(_unpacked_type(hint)))
                return word if hint is int else builder.trunc(word, ir.IntType(1))

            return read(kind)

        return result(table), codegen

    return unpack


@intrinsic
def prefetch(typingctx: Any, pointer: Any, index: Any) -> Any:
    """Load the cache line of pointer[index] ahead of its use."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        builder.call(function, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen


@functools.cache
def _print_notice() -> None:
    print(_NOTICE, file=sys.stderr)


class _CompileTimer(event.Listener):  # type: ignore[misc]  # numba has no types
    """Prints a notice once compiling has taken long; reading the cache is no event."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._depth = 0  # a kernel compiles the functions that it calls
        self._timer = threading.Timer(seconds, _print_notice)

    def on_start(self, _: Any) -> None:
        """Start the timer."""
        self._depth += 1
        if self._depth == 1:
            self._started = time.monotonic()
            self._timer = threading.Timer(max(self._left, 0), _print_notice)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, _: Any) -> None:
        """Stop the timer."""
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            self._left -= time.monotonic() - self._started


@contextlib.contextmanager
def compile_notice(seconds: float = _NOTICE_AFTER_SECONDS) -> Iterator[None]:
    """Print a notice on stderr if compiling takes longer than some seconds."""
    with event.install_listener("numba:compile", _CompileTimer(seconds)):
        yield
