"""Locks on a store: one process at a time holds a lock, and it is freed when that process ends."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from trimtab.errors import BusyError, StoreError

WRITER_LOCK, SWITCH_LOCK = ".writer.lock", ".switch.lock"
# Added to the lock's name, because filelock may empty the lock file itself.
_HOLDER = ".holder"
_POLL_SECONDS = 0.002  # locks that are waited for are held for milliseconds


def now() -> str:
    """Return the time as a store writes it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def cannot_write(folder: Path, error: OSError) -> StoreError:
    """Return the error for a folder that cannot be written in."""
    return StoreError(f"cannot write to {folder}: {error.strerror or error}")


@contextlib.contextmanager
def hold_lock(path: Path, wait: bool) -> Iterator[None]:
    """Hold a lock: wait for it, or raise BusyError at once and name the process that holds it."""
    holder = path.with_name(path.name + _HOLDER)
    try:
        lock = FileLock(path, mode=_create(path))
        lock.acquire(timeout=-1 if wait else 0, poll_interval=_POLL_SECONDS)
    except Timeout as error:
        raise BusyError(
            f"{path.parent}: another refresh is running ({_read_holder(holder)}); let it finish"
        ) from error
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    try:
        if not wait:  # a process that waits is never told who holds the lock
            _write_holder(holder)
        yield
    finally:
        if not wait:
            _remove(holder)
        lock.release()


def _create(path: Path) -> int:
    """Create a lock file unless it is there; return its mode, which filelock would change."""
    handle = os.open(path, os.O_CREAT | os.O_RDONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(handle).st_mode) | 0o600  # which filelock insists on
    finally:
        os.close(handle)


def _write_holder(path: Path) -> None:
    """Name this process; a new file, because a killed process of another user may own the old."""
    _remove(path)
    with contextlib.suppress(OSError):  # a full disk must not prevent locking
        path.write_text(f"process {os.getpid()} since {now()}")


def _read_holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text() or "it has just begun"
    return "it has just begun"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
