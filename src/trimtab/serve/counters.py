"""Metrics of the service, for Prometheus; each service has its own registry."""

from __future__ import annotations

import functools
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds


class Counters:
    """Counts since the start."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "trimtab_requests", "Requests answered.", ("route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "trimtab_request_seconds", "Time to answer a request.", ("route",), buckets=_BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self._find_metrics = functools.cache(self._make_metrics)
        self.n_active = 0
        self.add_gauge("requests_now", "Requests being answered.", lambda: self.n_active)
        self.lists = self._add_counter("lists", "Lists re-ranked.")
        self.items = self._add_counter("items", "Items on the lists received.")
        self.unknown_items = self._add_counter(
            "unknown_items", "Items on the lists received that the version does not know."
        )
        self.personal = self._add_counter("personal_lists", "Lists ranked by recent items.")
        self.not_personal = self._add_counter(
            "recent_unused_lists", "Lists with recent items that were ranked without them."
        )
        self.unknown_recent = self._add_counter(
            "recent_unknown_items", "Recent items left out: neither learned nor listed."
        )
        self.later_recent = self._add_counter(
            "recent_later_items", "Recent items left out: at or after as_of."
        )
        self.swaps = self._add_counter("version_swaps", "Changes to another version.")
        self.refusals = self._add_counter("version_refusals", "Versions refused.")
        self.unread = self._add_counter(
            "clients_not_reading", "Connections closed because the client did not read."
        )
        self.written = self._add_counter("exposures_written", "Lists written to the exposure log.")
        self.dropped = self._add_counter(
            "exposures_dropped", "Lists dropped from the exposure log."
        )
        self.failures = self._add_counter(
            "exposures_failures", "Exposure files that could not be written."
        )

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        count, histogram = self._find_metrics(route, status)
        count.inc()
        histogram.observe(seconds)

    def _make_metrics(self, route: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status)), self._seconds.labels(route)

    def add_gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a number that is read when Prometheus asks for it."""
        Gauge(f"trimtab_{name}", description, registry=self._registry).set_function(read)

    def to_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _add_counter(self, name: str, description: str) -> Count:
        return Count(Counter(f"trimtab_{name}", description, registry=self._registry))


class Count:
    """A Prometheus counter whose value can be read."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.value = 0

    def add(self, n: int = 1) -> None:
        """Add n."""
        self.value += n
        self._counter.inc(n)
