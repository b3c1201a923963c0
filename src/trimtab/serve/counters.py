"""Metrics of the service, for Prometheus: of all its processes, whichever of them is asked.

With several processes, `PROMETHEUS_MULTIPROC_DIR` names the folder where each keeps its counts; it
must be set before this module is imported.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess

from trimtab.serve.settings import COUNTS_FOLDER

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_OWN = CollectorRegistry()
_counter = functools.partial(Counter, namespace="trimtab", registry=_OWN)


def _gauge(name: str, about: str, combine: Any) -> Gauge:
    """Return a gauge; `combine` says how prometheus_client combines those of the processes."""
    return Gauge(name, about, namespace="trimtab", registry=_OWN, multiprocess_mode=combine)


requests = _counter("requests", "Requests answered.", ["route", "status"])
seconds = Histogram(
    "request_seconds", "Time until an answer was ready.", ["route"], namespace="trimtab",
    registry=_OWN, buckets=_BUCKETS,
)  # fmt: skip
requests_now = _gauge("requests_now", "Requests being answered.", "livesum")
refused = _gauge(
    "version_refused", "1 while the current version of the store cannot be loaded.", "livemax"
)
buffered = _gauge("exposures_buffered", "Lists not written yet.", "livesum")
lists = _counter("lists", "Lists re-ranked.")
items = _counter("items", "Items on the lists received.")
unknown_items = _counter(
    "unknown_items", "Items on the lists received that the version does not know."
)
unknown_recent = _counter(
    "recent_unknown_items", "Recent items left out: neither learned nor listed."
)
later_recent = _counter("recent_later_items", "Recent items left out: at or after as_of.")
swaps = _counter("version_swaps", "Changes to another version, by each worker.")
refusals = _counter("version_refusals", "Versions refused, by each worker.")
written = _counter("exposures_written", "Lists written to the exposure log.")
dropped = _counter("exposures_dropped", "Lists dropped from the exposure log.")
failures = _counter("exposures_failures", "Exposure files that could not be written.")
restarts = _counter("worker_restarts", "Workers that ended and were replaced.")


def set_version(number: int) -> None:
    """Note the version that this process serves."""
    for gauge in _version_gauges():
        gauge.set(number)


@functools.cache
def _version_gauges() -> tuple[Gauge, Gauge]:
    """Return gauges that a process without a version does not have."""
    return (
        _gauge("version", "Version being served; the lowest of all workers.", "livemin"),
        _gauge("worker_version", "Version that a worker serves.", "liveall"),
    )


def to_text() -> bytes:
    """Return the metrics of all processes of the service in Prometheus' text format."""
    found = _OWN
    if COUNTS_FOLDER in os.environ:
        found = CollectorRegistry()
        multiprocess.MultiProcessCollector(found)  # type: ignore[no-untyped-call]
    return prometheus_client.generate_latest(found)


def forget_process(pid: int) -> None:
    """Leave out what a process is doing now; what it has done stays."""
    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


def forget_dead_processes() -> None:
    """Leave out what processes that were killed are doing now."""
    files = Path(os.environ[COUNTS_FOLDER]).glob("gauge_live*.db")
    for pid in {int(file.stem.rpartition("_")[2]) for file in files}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            forget_process(pid)
