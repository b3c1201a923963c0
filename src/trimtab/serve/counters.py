"""What the service counts, as Prometheus reads it; each service has a registry of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counters:
    """Counts since the start."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "trimtab_requests", "Requests answered.", ("route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "trimtab_request_seconds", "Time to answer.", ("route",), buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        self._children = functools.cache(self._find_children)
        self.inside = 0  # requests being answered
        self.gauge("requests_now", "Requests being answered.", lambda: self.inside)
        self.lists = self._counter("lists", "Lists re-ranked.")
        self.items = self._counter("items", "Items on the lists that came in.")
        self.swaps = self._counter("version_swaps", "Times that another version was taken up.")
        self.refusals = self._counter("version_refusals", "Times that a version was refused.")
        self.written = self._counter("exposures_written", "Lists written to the exposure log.")
        self.dropped = self._counter("exposures_dropped", "Lists that the exposure log lost.")
        self.failures = self._counter("exposures_failures", "Files that could not be written.")

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        count, histogram = self._children(route, status)
        count.inc()
        histogram.observe(seconds)

    def _find_children(self, route: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, str(status)), self._seconds.labels(route)

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Show a number as it is when asked for."""
        Gauge(f"trimtab_{name}", about, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """All counts, in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str) -> Count:
        return Count(Counter(f"trimtab_{name}", about, registry=self._registry))


class Count:
    """A count that can be read back."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.value = 0

    def add(self, n: int = 1) -> None:
        """Count n more."""
        self.value += n
        self._counter.inc(n)
