"""Metrics of the service, for Prometheus: of all its workers, whichever of them is asked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from trimtab.serve.count_board import N_PLACES, Combine, Count, CountBoard, lowest
from trimtab.serve.routes import LABELS

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_LIMITS = [*map(str, _BUCKETS), "+Inf"]
_STATUSES = (200, 307, 400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 499, 500, 503)
_STATUS_LABELS = (*map(str, _STATUSES), "other")


class Counters:
    """Counts since the start of the service.

    Args:
        board: Where the numbers are; one for this process alone if left out.
        worker: The row of this process.
    """

    def __init__(self, board: CountBoard | None = None, worker: int = 0) -> None:
        self._board = board or CountBoard.of_one()
        self._worker = worker
        self._n_places = 0
        self._described: list[tuple[type[Metric], str, str, Count]] = []
        self._add_gauges()
        self._add_counts()
        self._statuses = {label: self._take(len(_STATUS_LABELS)) for label in LABELS}
        self._seconds = {label: self._take(len(_LIMITS) + 1) for label in LABELS}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def _add_gauges(self) -> None:
        add = self._add_gauge
        self.requests_now = add("requests_now", "Requests being answered.", sum)
        self.version = add("version", "Version being served; the lowest of all workers.", lowest)
        self.refused = add(
            "version_refused", "1 while the current version of the store cannot be loaded.", max
        )
        self.buffered = add("exposures_buffered", "Lists not written yet.", sum)
        self._n_gauges = self._n_places

    def _add_counts(self) -> None:
        add = self._add_counter
        self.lists = add("lists", "Lists re-ranked.")
        self.items = add("items", "Items on the lists received.")
        self.unknown_items = add(
            "unknown_items", "Items on the lists received that the version does not know."
        )
        self.personal = add("personal_lists", "Lists ranked by recent items.")
        self.not_personal = add(
            "recent_unused_lists", "Lists with recent items that were ranked without them."
        )
        self.unknown_recent = add(
            "recent_unknown_items", "Recent items left out: neither learned nor listed."
        )
        self.later_recent = add("recent_later_items", "Recent items left out: at or after as_of.")
        self.swaps = add("version_swaps", "Changes to another version.", max)
        self.refusals = add("version_refusals", "Versions refused.", max)
        self.unread = add(
            "clients_not_reading", "Connections closed because the client did not read."
        )
        self.written = add("exposures_written", "Lists written to the exposure log.")
        self.dropped = add("exposures_dropped", "Lists dropped from the exposure log.")
        self.failures = add("exposures_failures", "Exposure files that could not be written.")
        self.restarts = add("worker_restarts", "Workers that ended and were replaced.")

    def clear_gauges(self) -> None:
        """Set what describes this worker now to 0; its counts stay."""
        for place in range(self._n_gauges):
            self._board.rows[self._worker][place] = 0.0

    def count_request(self, label: str, status: int, seconds: float) -> None:
        """Count a request."""
        row, timed = self._board.rows[self._worker], self._seconds[label]
        number = _STATUSES.index(status) if status in _STATUSES else len(_STATUSES)
        row[self._statuses[label] + number] += 1
        row[timed + bisect_left(_BUCKETS, seconds)] += 1
        row[timed + len(_LIMITS)] += seconds

    def to_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics, as Prometheus' registry asks for them."""
        for kind, name, description, count in self._described:
            yield kind(f"trimtab_{name}", description, value=count.value)  # type: ignore[call-arg]
        yield self._collect_requests()
        yield self._collect_seconds()
        if len(self._board.rows) > 1:
            yield self._collect_versions()

    def _collect_requests(self) -> Metric:
        labels = ["route", "status"]
        found = CounterMetricFamily("trimtab_requests", "Requests answered.", labels=labels)
        for route, place in self._statuses.items():
            for number, status in enumerate(_STATUS_LABELS):
                if total := self._sum(place + number):
                    found.add_metric([route, status], total)
        return found

    def _collect_seconds(self) -> Metric:
        found = HistogramMetricFamily(
            "trimtab_request_seconds", "Time until an answer was ready.", labels=["route"]
        )
        for route, place in self._seconds.items():
            totals = [self._sum(place + number) for number in range(len(_LIMITS))]
            if any(totals):
                buckets = list(zip(_LIMITS, accumulate(totals), strict=True))
                found.add_metric([route], buckets, self._sum(place + len(_LIMITS)))
        return found

    def _collect_versions(self) -> Metric:
        found = GaugeMetricFamily(
            "trimtab_worker_version", "Version that a worker serves.", labels=["worker"]
        )
        for worker in range(len(self._board.rows)):
            version = Counters(self._board, worker).version.own
            found.add_metric([str(worker + 1)], version)
        return found

    def _sum(self, place: int) -> float:
        return sum(row[place] for row in self._board.rows)

    def _take(self, n: int) -> int:
        """Return the first of n places that are still free."""
        first, self._n_places = self._n_places, self._n_places + n
        assert self._n_places <= N_PLACES
        return first

    def _add_gauge(self, name: str, description: str, combine: Combine) -> Count:
        return self._add(GaugeMetricFamily, name, description, combine)

    def _add_counter(self, name: str, description: str, combine: Combine = sum) -> Count:
        return self._add(CounterMetricFamily, name, description, combine)

    def _add(
        self, kind: type[Metric], name: str, description: str,
        combine: Combine,
    ) -> Count:  # fmt: skip
        count = Count(self._board, self._worker, self._take(1), combine)
        self._described.append((kind, name, description, count))
        return count
