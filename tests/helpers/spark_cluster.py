"""A standalone cluster on loopback, from the PySpark package: a master and two workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
DRIVER = Path(__file__).parent / "spark_driver.py"
PATIENCE = 240  # seconds


def environment() -> dict[str, str]:
    """What Spark's processes need: loopback only, and this Python."""
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",  # short lives: compile less
    }


@dataclass
class Process:
    """A process of ours with all that it starts, and what it says."""

    arguments: list[str]
    log: Path
    started: subprocess.Popen = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("wb") as out:
            self.started = subprocess.Popen(
                self.arguments, stdout=out, stderr=subprocess.STDOUT, env=environment(),
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, happened: Callable[[str], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened(self.said()):
            ended = self.started.poll() is not None and not happened(self.said())
            assert not ended, self.said()[-3000:]
            assert time.monotonic() < end, self.said()[-3000:]
            time.sleep(0.05)

    def finish(self) -> str:
        """Wait until it has ended by itself; what it said."""
        assert self.started.wait(PATIENCE) == 0, self.said()[-3000:]
        return self.said()

    def kill(self) -> None:
        """SIGKILL, as when a machine dies: whatever it started dies with it."""
        with suppress(ProcessLookupError):
            os.killpg(self.started.pid, signal.SIGKILL)
        self.started.wait(30)


@dataclass
class Cluster:
    """Where the master is, and the workers."""

    url: str
    workers: list[Process]
    folder: Path

    def drive(self, *arguments: object) -> Process:
        """A driver in a process of its own."""
        count = len(list(self.folder.glob("driver-*")))
        log = self.folder / f"driver-{count}.log"
        return Process([sys.executable, str(DRIVER), self.url, *map(str, arguments)], log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def start_cluster(folder: Path, memory: str = "1g") -> Iterator[Cluster]:
    """One master and two workers with a core each; killed in the end."""
    run = [str(HOME / "bin" / "spark-class")]
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    started = []
    try:
        named = "org.apache.spark.deploy.master.Master"
        master = Process([*run, named, *here, "--port", str(port)], folder / "master.log")
        started.append(master)
        master.wait_for(lambda said: "New state: ALIVE" in said)
        for number in range(2):
            work = [
                "--cores",
                "1",
                "--memory",
                memory,
                "--work-dir",
                str(folder / f"work-{number}"),
            ]
            named = "org.apache.spark.deploy.worker.Worker"
            started.append(
                Process([*run, named, *here, *work, url], folder / f"worker-{number}.log")
            )
        for worker in started[1:]:
            worker.wait_for(lambda said: "Successfully registered with master" in said)
        yield Cluster(url, started[1:], folder)
    finally:
        for process in started:
            process.kill()
