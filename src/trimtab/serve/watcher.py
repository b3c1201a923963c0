"""The version being served, and the watcher that loads another one whenever it is published."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from trimtab.abtest.buckets import neutral
from trimtab.errors import StoreError, TrimtabError
from trimtab.serve import counters
from trimtab.serve.ranking import Lookup, Ranker
from trimtab.serve.settings import Settings
from trimtab.serve.wire import RefusalError, RefusedVersion, RerankerAnswer, VersionAnswer
from trimtab.store import Store
from trimtab.tables.times import as_datetime

log = logging.getLogger("trimtab.serve")
POLL_SECONDS = 0.5  # between checks of the store
RETRY_SECONDS = 5.0  # between checks while a version cannot be loaded
_STOP_SECONDS = 10.0


class ServedVersion(NamedTuple):
    """A version that is ready to rank lists; it never changes."""

    about: VersionAnswer  # what /version says
    manifest: Mapping[str, Any]
    treatment: Ranker
    control: Ranker | None  # only in an A/B test

    @property
    def number(self) -> int:
        """The version's number."""
        return self.about.version


def load_version(store: Store, settings: Settings) -> ServedVersion:
    """Return the current version ready to rank lists; all its files must be whole.

    The biases of a version with a reranker are those of the reranker.
    """
    version, bias, reranker = store.read(None, lambda v: (v, v.bias(), v.reranker()))
    about = None
    if reranker is None:
        bias = bias.with_strength(settings.strength)
    else:
        reranker = reranker.with_strength(settings.strength)
        bias, until = reranker.bias, as_datetime(reranker.learned_until).isoformat()
        kept, sources = reranker.summary.kept, list(reranker.summary.sources)
        about = RerankerAnswer(kept, sources, until, reranker.has_zone)
    lookup, manifest, summary = Lookup(bias.item_ids), version.manifest, bias.summary
    treatment = Ranker(bias, lookup, reranker)
    control = None if settings.experiment is None else Ranker(neutral(bias), lookup)
    answer = VersionAnswer(
        version.number, str(manifest["as_of"]), str(manifest["created"]), len(bias), bias.scale,
        bias.unlisted, summary.metric, summary.k, treatment.depth, summary.strength, about,
        _current_time(),
    )  # fmt: skip
    return ServedVersion(answer, manifest, treatment, control)


def _current_time() -> str:
    """Return the current time in UTC as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class StoreWatcher:
    """Holds the version being served, and checks the store for another one in a thread.

    `current` changes in one assignment, so a request that reads it once uses one version only.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.current: ServedVersion | None = None
        self.refused: RefusedVersion | None = None
        self._settings = settings
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trimtab-watch", daemon=True)

    def served(self) -> ServedVersion:
        """Return the version to answer a request with; call it once per request."""
        if self.current is None:
            raise RefusalError(503, "no version is loaded yet: try again", {"Retry-After": "1"})
        return self.current

    def about(self) -> VersionAnswer:
        """Return the answer of /version."""
        return replace(self.served().about, refused=self.refused)

    def load(self) -> None:
        """Load the current version.

        Raises:
            StoreError: if it cannot be loaded.
        """
        self.check()
        if self.refused is not None:
            raise StoreError(self.refused.reason)

    def start(self) -> None:
        """Load the current version, and start the thread that watches."""
        self.load()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; one that hangs on a dead disk is abandoned."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def check(self) -> bool:
        """Load another version if the store has one; return whether it had."""
        with self._lock:
            try:
                return self._update()
            except Exception as error:  # a damaged store can cause any error; keep serving
                self._refuse(error)
                return False

    def _watch(self) -> None:
        while not self._stopping.wait(RETRY_SECONDS if self.refused else POLL_SECONDS):
            self.check()

    def _update(self) -> bool:
        version, before = self.store.current(), self.current
        if before and (before.number, before.manifest) == (version.number, version.manifest):
            self._set_refused(None)
            return False
        self.current = now = load_version(self.store, self._settings)
        counters.set_version(now.number)
        self._set_refused(None)
        if before is not None:
            counters.swaps.inc()
            log.info("now serving version %d (was %d)", now.number, before.number)
        return True

    def _refuse(self, error: Exception) -> None:
        number = None
        with suppress(Exception):  # the pointer itself may be damaged
            number = self.store.serving()
        refused = RefusedVersion(number, _reason(error), _current_time())
        counters.refusals.inc()
        is_new = self.refused is None or self.refused.reason != refused.reason
        if is_new and self.current is not None:
            name = "the store" if number is None else f"version {number}"
            log.warning("cannot load %s: %s", name, refused.reason)
        self._set_refused(refused)

    def _set_refused(self, refused: RefusedVersion | None) -> None:
        self.refused = refused
        counters.refused.set(refused is not None)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TrimtabError) else f"cannot be read ({error!r})"
