"""The service without HTTP: ranking, buckets of an A/B test, exposures and status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from trimtab.abtest.buckets import CONTROL
from trimtab.serve.counters import Counters
from trimtab.serve.exposures import ExposureLog, make_exposure
from trimtab.serve.lookup import count_unknown
from trimtab.serve.refusals import RefusalError
from trimtab.serve.served_version import ServedVersion, current_time
from trimtab.serve.settings import Settings
from trimtab.serve.store_watcher import StoreWatcher
from trimtab.serve.wire import (
    ExperimentStatus,
    ExposureStatus,
    Ranked,
    RecentUse,
    RerankRequest,
    StatusAnswer,
)
from trimtab.store import Store


class Service:
    """Re-ranks lists with the current version of a store.

    Args:
        store: The daily job's store.
        settings: Settings of the service.
        counters: Counts of this worker; new ones if left out.
        on_reload: Called when a client asks for a check of the store, to tell other workers.
    """

    def __init__(
        self, store: Store, settings: Settings, counters: Counters | None = None,
        on_reload: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.counters = counters or Counters()
        self._on_reload = on_reload
        self.watcher = StoreWatcher(store, settings, self.counters)
        self.exposures = (
            None
            if settings.exposures is None
            else ExposureLog(settings.exposures, settings, self.counters)
        )
        self._experiment = settings.experiment
        self._started_at = current_time()

    def load(self) -> None:
        """Load the current version, and make the folder for exposures.

        Raises:
            StoreError: if either fails.
        """
        self.watcher.load()
        if self.exposures is not None:
            self.exposures.make_folder()

    def start(self) -> None:
        """Start the threads; load the version if it is not loaded yet."""
        if self.watcher.served is None:
            self.load()
        if self.exposures is not None:
            self.exposures.start()
        self.watcher.start()

    def stop(self) -> None:
        """Stop the threads, and write the rest of the exposure log."""
        self.watcher.stop()
        if self.exposures is not None:
            self.exposures.stop()

    def served(self) -> ServedVersion:
        """Return the version to answer a request with; call it once per request."""
        served = self.watcher.served
        if served is None:
            raise RefusalError(503, "no version is loaded yet: try again", {"Retry-After": "1"})
        return served

    def reload(self) -> bool:
        """Check the store now; return whether there was another version."""
        return self.watcher.check(always=True)

    def reload_all(self) -> bool:
        """Check the store now, in all workers; return whether there was another version."""
        changed = self.reload()
        if self._on_reload is not None:
            self._on_reload()
        return changed

    def rank(self, served: ServedVersion, asked: RerankRequest) -> Ranked:
        """Return a list re-ranked; the caller has checked it."""
        user = asked.user_id
        if self._experiment is None or served.control is None or isinstance(user, UnsetType):
            return _rank_treated(served, asked)
        bucket: Any = self._experiment.bucket(user)
        if bucket != CONTROL:
            return _rank_treated(served, asked, bucket)
        unknown = _count_unknown(served, asked)
        return Ranked(served.control.rank(asked), unknown, bucket, _unused(asked))

    def record(
        self, served: ServedVersion, lists: Sequence[RerankRequest], ranked: Sequence[Ranked]
    ) -> None:
        """Count lists that were re-ranked, and log who is shown what."""
        self.counters.lists.add(len(lists))
        self.counters.items.add(sum(len(asked.items) for asked in lists))
        self.counters.unknown_items.add(sum(one.unknown_items for one in ranked))
        self._count_recent(ranked)
        if self.exposures is not None:
            for asked, answer in zip(lists, ranked, strict=True):
                self._log_exposure(self.exposures, asked, answer, served.number)

    def status(self) -> StatusAnswer:
        """Return the answer of /admin/status."""
        counters = self.counters
        return StatusAnswer(
            store=str(self.watcher.store.folder),
            started_at=self._started_at,
            requests_now=counters.requests_now.value,
            swaps=counters.swaps.value,
            refusals=counters.refusals.value,
            served=self.served().describe(self.watcher.refused),
            experiment=self._experiment_status(),
            exposures=self._exposure_status(),
            limits=self.settings.limits(),
        )

    def _count_recent(self, ranked: Sequence[Ranked]) -> None:
        uses = [one.recent for one in ranked if not isinstance(one.recent, UnsetType)]
        n_personal = sum(use.used > 0 for use in uses)
        self.counters.personal.add(n_personal)
        self.counters.not_personal.add(len(uses) - n_personal)
        self.counters.unknown_recent.add(sum(use.unknown_items for use in uses))
        self.counters.later_recent.add(sum(use.later for use in uses))

    @staticmethod
    def _log_exposure(log: ExposureLog, asked: RerankRequest, answer: Ranked, version: int) -> None:
        if not isinstance(asked.user_id, UnsetType):
            bucket = None if isinstance(answer.bucket, UnsetType) else answer.bucket
            items = [item.item_id for item in answer.items]
            log.record(make_exposure(asked.user_id, bucket, version, asked.k, items))

    def _experiment_status(self) -> ExperimentStatus | None:
        experiment = self._experiment
        return None if experiment is None else ExperimentStatus(experiment.salt, experiment.share)

    def _exposure_status(self) -> ExposureStatus | None:
        if self.exposures is None:
            return None
        written, dropped = self.counters.written.value, self.counters.dropped.value
        waiting = self.counters.buffered.value
        return ExposureStatus(str(self.exposures.folder), waiting, written, dropped)


def _rank_treated(served: ServedVersion, asked: RerankRequest, bucket: Any = UNSET) -> Ranked:
    """Return a list ranked by the user's recent items if possible, else by the biases."""
    unknown = _count_unknown(served, asked)
    if served.personal is None or isinstance(asked.recent, UnsetType):
        return Ranked(served.treatment.rank(asked), unknown, bucket, _unused(asked))
    items, use = served.personal.rank(asked)
    return Ranked(items, unknown, bucket, use)


def _count_unknown(served: ServedVersion, asked: RerankRequest) -> int:
    """Return how many listed items the version does not know."""
    return count_unknown(served.treatment.lookup, [item.item_id for item in asked.items])


def _unused(asked: RerankRequest) -> RecentUse | UnsetType:
    """Return what became of recent items that are not used, if there are any."""
    return UNSET if isinstance(asked.recent, UnsetType) else RecentUse(0, 0, 0)
