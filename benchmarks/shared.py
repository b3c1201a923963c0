"""What several benchmarks need: clocks, processes of their own, and the tests' generated drift."""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from ascents import count_for_ascent
from drift import DriftData, generate_drift
from trimtab.arrays import Lists, Sets
from trimtab.learn.ascent import Solution, ascend
from trimtab.learn.settings import LearnerSettings

__all__ = ["DriftData", "ascend_alone", "generate_drift"]


def ascend_alone(lists: Lists, bought: Sets, n_items: int, settings: LearnerSettings) -> Solution:
    """Count what the ascent needs, and ascend."""
    counted = count_for_ascent(lists, bought, n_items, settings.k)
    return ascend(lists, bought, n_items, settings, **counted)


def seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    """How long a job takes, and its result."""
    began = time.perf_counter()
    result = job()
    return time.perf_counter() - began, result


def peak_memory() -> float:
    """The most memory that this process ever held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _send(function: Callable[..., Any], given: tuple[Any, ...], sender: Any) -> None:
    sender.send(function(*given))


def in_process(function: Callable[..., Any], *given: Any) -> Any:
    """What a function returns in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=_send, args=(function, given, sender))
    worker.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        worker.join()


def start_service(store: Path, *options: Any) -> tuple[subprocess.Popen[str], int]:
    """Start `trimtab serve`; return its process and its port."""
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    command = [script, "serve", "--store", store, "--port", 0, *options]
    service = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    line = service.stdout.readline()
    return service, int(line.split(" at http://")[1].split(",")[0].split(":")[1])
