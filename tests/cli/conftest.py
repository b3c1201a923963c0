"""The command line, called within the test's own process."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.cli import main

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def call() -> Call:
    """Calls `main` in a given folder, and returns the status and what was printed."""
    return _call


def _call(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in arguments]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    out, err = io.StringIO(), io.StringIO()
    try:
        with (
            contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
            warnings.catch_warnings(action="default"), pytest.raises(SystemExit) as ended,
        ):  # fmt: skip
            main(words)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return subprocess.CompletedProcess(
        words, int(ended.value.code or 0), out.getvalue(), err.getvalue()
    )
