"""The service apart from HTTP: one version at a time, buckets, and what is logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UnsetType

from trimtab.abtest.buckets import CONTROL
from trimtab.serve.counters import Counters
from trimtab.serve.exposures import ExposureLog, exposed_now
from trimtab.serve.refusals import RefusalError
from trimtab.serve.served_version import Served, Watcher, now
from trimtab.serve.settings import Settings
from trimtab.serve.shapes import (
    ExperimentStatus,
    ExposureStatus,
    Ranked,
    RerankRequest,
    StatusAnswer,
)
from trimtab.store import Store


class Service:
    """Re-ranks lists by the version of a store that is served.

    Args:
        store: of the daily job.
        settings: all of it.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.watcher = Watcher(store, settings, self.counters)
        self.exposures = (
            None
            if settings.exposures is None
            else ExposureLog(settings.exposures, settings, self.counters)
        )
        self._experiment = settings.experiment
        self._started_at = now()
        self._show_numbers()

    def load(self) -> None:
        """Load the version that is served, and see that exposures can be written.

        Raises:
            StoreError: if either cannot be.
        """
        self.watcher.load()
        if self.exposures is not None:
            self.exposures.make_folder()

    def start(self) -> None:
        """Begin to watch and to log; loads, if that was not done."""
        if self.watcher.served is None:
            self.load()
        if self.exposures is not None:
            self.exposures.start()
        self.watcher.start()

    def stop(self) -> None:
        """Watch no longer, and write what is left to log."""
        self.watcher.stop()
        if self.exposures is not None:
            self.exposures.stop()

    def served(self) -> Served:
        """The version to answer a request by: take it once."""
        served = self.watcher.served
        if served is None:
            raise RefusalError(503, "no version is loaded yet: try again", {"Retry-After": "1"})
        return served

    def rank_all(self, served: Served, lists: Sequence[RerankRequest]) -> list[Ranked]:
        """Lists that were checked, re-ranked, counted and logged."""
        ranked = [self._rank(served, asked) for asked in lists]
        self.counters.lists.add(len(lists))
        self.counters.items.add(sum(len(asked.items) for asked in lists))
        if self.exposures is not None:
            for asked, answer in zip(lists, ranked, strict=True):
                self._expose(self.exposures, asked, answer, served.number)
        return ranked

    def status(self) -> StatusAnswer:
        """How the service fares."""
        counters = self.counters
        return StatusAnswer(
            store=str(self.watcher.store.folder),
            started_at=self._started_at,
            requests_now=counters.inside,
            swaps=counters.swaps.value,
            refusals=counters.refusals.value,
            served=self.served().about(self.watcher.refused),
            experiment=self._experiment_status(),
            exposures=self._exposure_status(),
            limits=self.settings.limits(),
        )

    def _rank(self, served: Served, asked: RerankRequest) -> Ranked:
        user = asked.user_id
        if self._experiment is None or served.control is None or isinstance(user, UnsetType):
            return Ranked(served.treatment.rank(asked))
        bucket: Any = self._experiment.bucket(user)
        ranker = served.control if bucket == CONTROL else served.treatment
        return Ranked(ranker.rank(asked), bucket)

    @staticmethod
    def _expose(log: ExposureLog, asked: RerankRequest, answer: Ranked, version: int) -> None:
        if not isinstance(asked.user_id, UnsetType):
            bucket = None if isinstance(answer.bucket, UnsetType) else answer.bucket
            items = [item.item_id for item in answer.items]
            log.record(exposed_now(asked.user_id, bucket, version, asked.k, items))

    def _experiment_status(self) -> ExperimentStatus | None:
        experiment = self._experiment
        return None if experiment is None else ExperimentStatus(experiment.salt, experiment.share)

    def _exposure_status(self) -> ExposureStatus | None:
        if self.exposures is None:
            return None
        written, dropped = self.counters.written.value, self.counters.dropped.value
        folder, waiting = str(self.exposures.folder), self.exposures.buffered()
        return ExposureStatus(folder, waiting, written, dropped)

    def _show_numbers(self) -> None:
        gauge, watcher = self.counters.gauge, self.watcher
        gauge(
            "version", "The version that is served.",
            lambda: 0 if watcher.served is None else watcher.served.number,
        )  # fmt: skip
        gauge(
            "version_refused", "1 while the store names a version that is refused.",
            lambda: watcher.refused is not None,
        )  # fmt: skip
        if self.exposures is not None:
            gauge("exposures_buffered", "Lists that wait to be written.", self.exposures.buffered)
