"""Watches a store and loads the version to serve whenever another one is published."""

from __future__ import annotations

import logging
import threading
import time

from trimtab.errors import StoreError, TrimtabError
from trimtab.serve.counters import Counters
from trimtab.serve.ranker import warm_up
from trimtab.serve.served_version import (
    ReadVersion,
    ServedVersion,
    current_time,
    prepare_version,
)
from trimtab.serve.settings import Settings
from trimtab.serve.wire import RefusedVersion
from trimtab.store import Store
from trimtab.tables.folders import POINTER

log = logging.getLogger("trimtab.serve")
_MAX_READS = 20
_STOP_SECONDS = 10.0


class StoreWatcher:
    """Holds the version being served, and checks the store for another one in a thread.

    `served` changes in one assignment, so a request that reads it once uses one version only.
    """

    def __init__(self, store: Store, settings: Settings, counters: Counters) -> None:
        self.store = store
        self.served: ServedVersion | None = None
        self.refused: RefusedVersion | None = None
        self._settings = settings
        self._counters = counters
        self._signature: tuple[int, ...] | None = None
        self._last_try = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trimtab-watch", daemon=True)

    def load(self) -> None:
        """Load the current version.

        Raises:
            StoreError: if it cannot be loaded.
        """
        warm_up()
        self._signature = self._read_signature()
        try:
            self._update()
        except Exception as error:
            raise StoreError(_reason(error)) from error

    def start(self) -> None:
        """Start the thread that watches."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; one that hangs on a dead disk is abandoned."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def check(self, always: bool = False) -> bool:
        """Load another version if the store changed; return whether there was one.

        Args:
            always: Read the store even if it looks unchanged.
        """
        with self._lock:
            signature = self._read_signature()
            waited = time.monotonic() - self._last_try
            is_due = self.refused is not None and waited >= self._settings.retry
            if not (always or is_due or signature != self._signature):
                return False
            self._signature, self._last_try = signature, time.monotonic()
            try:
                return self._update()
            except Exception as error:  # a damaged store can cause any error; keep serving
                self._refuse(error)
                return False

    def _watch(self) -> None:
        while not self._stopping.wait(self._settings.poll):
            self.check()

    def _read_signature(self) -> tuple[int, ...] | None:
        """Return numbers that change whenever the pointer is replaced; None if it is missing."""
        try:
            found = (self.store.folder / POINTER).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _update(self) -> bool:
        version = self.store.current()
        before = self.served
        if before and (before.number, before.manifest) == (version.number, version.manifest):
            self._set_refused(None)
            return False
        self.served = prepare_version(
            self._read().with_strength(self._settings.strength),
            self._settings.experiment is not None,
        )
        self._counters.version.set(self.served.number)
        self._set_refused(None)
        if before is not None:
            self._counters.swaps.add()
            log.info("now serving version %d (was %d)", self.served.number, before.number)
        return True

    def _read(self) -> ReadVersion:
        """Return the current version; read again if it was removed meanwhile."""
        for _ in range(_MAX_READS):
            version = self.store.current()
            try:
                return ReadVersion.read(version)
            except StoreError:
                if self.store.current().number == version.number:
                    raise
        raise StoreError(
            f"{self.store.folder}: versions are removed before they can be read; publish less often"
        )

    def _refuse(self, error: Exception) -> None:
        reason = _reason(error)
        refused = RefusedVersion(self._read_number(), reason, current_time())
        self._counters.refusals.add()
        if self.refused is None or self.refused.reason != reason:
            name = "the store" if refused.version is None else f"version {refused.version}"
            log.warning("cannot load %s: %s", name, reason)
        self._set_refused(refused)

    def _set_refused(self, refused: RefusedVersion | None) -> None:
        self.refused = refused
        self._counters.refused.set(refused is not None)

    def _read_number(self) -> int | None:
        try:
            return self.store.serving()
        except Exception:  # the pointer itself may be damaged
            return None


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TrimtabError) else f"cannot be read ({error!r})"
