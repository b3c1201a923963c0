"""The version that is served: loaded, made ready, and replaced when the store has another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trimtab.abtest.buckets import neutral
from trimtab.bias import ItemBias
from trimtab.bias.table import Summary
from trimtab.errors import StoreError, TrimtabError
from trimtab.serve.counters import Counters
from trimtab.serve.lookup import make_lookup
from trimtab.serve.rerank import Ranker, make_ranker, warm_up
from trimtab.serve.settings import Settings
from trimtab.serve.shapes import RefusedVersion, VersionAnswer
from trimtab.store import Store, Version
from trimtab.tables.store_pointer import POINTER

log = logging.getLogger("trimtab.serve")
_TRIES = 20
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Served:
    """A version, ready to rank lists; never changes."""

    number: int
    manifest: Mapping[str, Any]
    treatment: Ranker
    control: Ranker | None  # where a test is on
    n_items: int
    unlisted: str
    summary: Summary
    loaded_at: str

    def about(self, refused: RefusedVersion | None) -> VersionAnswer:
        """What is told of it."""
        return VersionAnswer(
            self.number, str(self.manifest["as_of"]), str(self.manifest["created"]), self.n_items,
            self.treatment.scale, self.unlisted, self.summary.metric, self.summary.k,
            self.loaded_at, refused,
        )  # fmt: skip


def prepare(version: Version, bias: ItemBias, has_control: bool) -> Served:
    """Make a version ready."""
    lookup = make_lookup(bias.item_ids)
    control = make_ranker(neutral(bias), lookup) if has_control else None
    return Served(
        version.number, version.manifest, make_ranker(bias, lookup), control, len(bias),
        bias.unlisted, bias.summary, now(),
    )  # fmt: skip


class Watcher:
    """Keeps the version of a store that is served, and looks for another in a thread.

    `served` is replaced by one assignment: whoever takes it once has one version to the end.
    """

    def __init__(self, store: Store, settings: Settings, counters: Counters) -> None:
        self.store = store
        self.served: Served | None = None
        self.refused: RefusedVersion | None = None
        self._settings = settings
        self._counters = counters
        self._seen: tuple[int, ...] | None = None
        self._tried = 0.0
        self._looking = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trimtab-watch", daemon=True)

    def load(self) -> None:
        """Load what is served now.

        Raises:
            StoreError: if it cannot be.
        """
        warm_up()
        self._seen = self._signature()
        try:
            self._take_up()
        except Exception as error:
            raise StoreError(_reason(error)) from error

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer; one that hangs on a dead disk is left behind."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def look(self, always: bool = False) -> bool:
        """Look at the store, if anything says that it changed; whether a version was taken up."""
        with self._looking:
            seen = self._signature()
            waited = time.monotonic() - self._tried
            is_due = self.refused is not None and waited >= self._settings.retry
            if not (always or is_due or seen != self._seen):
                return False
            self._seen, self._tried = seen, time.monotonic()
            try:
                return self._take_up()
            except Exception as error:  # whatever a damaged store brings about, serving goes on
                self._refuse(error)
                return False

    def _watch(self) -> None:
        while not self._stopping.wait(self._settings.poll):
            self.look()

    def _signature(self) -> tuple[int, ...] | None:
        """Changes with every replacement of the pointer; None while there is none."""
        try:
            found = (self.store.folder / POINTER).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _take_up(self) -> bool:
        version = self.store.current()
        before = self.served
        if before and (before.number, before.manifest) == (version.number, version.manifest):
            self.refused = None
            return False
        version, bias = self._read()
        self.served = prepare(version, bias, self._settings.experiment is not None)
        self.refused = None
        if before is not None:
            self._counters.swaps.add()
            log.info("version %d is served, after %d", version.number, before.number)
        return True

    def _read(self) -> tuple[Version, ItemBias]:
        """The current version with its biases; again, when it was removed meanwhile."""
        for _ in range(_TRIES):
            version = self.store.current()
            try:
                return version, version.bias()
            except StoreError:
                if self.store.current().number == version.number:
                    raise
        raise StoreError(f"{self.store.folder}: versions go as fast as they can be read")

    def _refuse(self, error: Exception) -> None:
        reason = _reason(error)
        refused = RefusedVersion(self._number(), reason, now())
        self._counters.refusals.add()
        if self.refused is None or self.refused.reason != reason:
            name = "the store" if refused.version is None else f"version {refused.version}"
            log.warning("%s is refused: %s", name, reason)
        self.refused = refused

    def _number(self) -> int | None:
        try:
            return self.store.serving()
        except Exception:  # the pointer itself may be what is damaged
            return None


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TrimtabError) else f"cannot be read ({error!r})"


def now() -> str:
    """This moment in UTC, as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")
