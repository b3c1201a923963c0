"""Threads: kernels run over ranges of users on several, linear algebra on one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from trimtab.errors import SettingError

LEAST_SPLIT = 4096  # smaller inputs run on one thread


def thread_count() -> int:
    """Return `TRIMTAB_THREADS` if set, otherwise the number of cores this process may use."""
    text = os.environ.get("TRIMTAB_THREADS")
    if text is None:
        with contextlib.suppress(AttributeError):  # only Linux tells
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise SettingError(f"TRIMTAB_THREADS={text!r}: must be a whole number of at least 1")
    return int(text)


def ranges(n: int, parts: int) -> list[tuple[int, int]]:
    """Split 0..n into at most `parts` contiguous ranges of nearly equal length."""
    parts = max(1, min(parts, n))
    edges = [n * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))


def run_ranges(
    kernel: Callable[..., Any], n: int, *arrays: Any, n_ranges: int | None = None
) -> list[Any]:
    """Call `kernel(start, stop, *arrays)` on ranges of 0..n, on several threads; keep the order.

    There is one range per thread, or a fixed number of them where sums depend on it.
    """
    n_threads = thread_count()
    parts = ranges(n, n_ranges or (n_threads if n >= LEAST_SPLIT else 1))
    if min(len(parts), n_threads) == 1:
        return [kernel(start, stop, *arrays) for start, stop in parts]
    # Numba asks for numpy.ma, which NumPy imports when first asked. A thread that asks just as
    # another one finishes that import fails with a RecursionError.
    import numpy.ma  # noqa: F401

    with ThreadPoolExecutor(min(len(parts), n_threads)) as pool:
        jobs = [pool.submit(kernel, start, stop, *arrays) for start, stop in parts]
        return [job.result() for job in jobs]


def one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Keep NumPy's linear algebra to one thread, where threadpoolctl is installed.

    Its threads spin while they wait: beside other work on the same cores, an engine would train ten
    times as long, and small matrices gain little by them.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")
