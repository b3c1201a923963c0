"""Locks on a store: held by one process at a time, and gone when that process ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from trimtab.errors import BusyError, StoreError

WRITER_LOCK, SWITCH_LOCK = ".writer.lock", ".switch.lock"
_HOLDER = ".holder"  # after the lock's name; the lock's own file is emptied by whoever tries it


def now() -> str:
    """The time as a store writes it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def hold_lock(path: Path, wait: bool) -> Iterator[None]:
    """Hold a lock; wait for it, or refuse at once."""
    holder = path.with_name(path.name + _HOLDER)
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout as error:
        raise BusyError(
            f"{path.parent}: another refresh is running ({_read_holder(holder)}); let it finish"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with contextlib.suppress(OSError):  # a full disk must not keep anyone from the lock
            holder.write_text(f"process {os.getpid()} since {now()}")
        yield
    finally:
        lock.release()


def _read_holder(path: Path) -> str:
    try:
        return path.read_text() or "it has just begun"
    except OSError:
        return "it has just begun"
