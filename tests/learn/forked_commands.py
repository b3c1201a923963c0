"""Runs `trimtab` commands, each in a forked process: imports and compiled kernels load only once.

Reads a JSON list of {"folder", "arguments"} from stdin and prints a JSON list of {"returncode",
"stdout", "stderr"}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import trimtab as tt
from trimtab.cli import main

RECS = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 8], "score": [0.9, 0.8, 0.5]})


def run_command(folder: str, arguments: list[str]) -> dict[str, Any]:
    """Run one command in a folder, as the installed script would."""
    with tempfile.TemporaryDirectory() as outputs:
        paths = [Path(outputs) / name for name in ("stdout", "stderr")]
        child = os.fork()
        if child == 0:
            for number, path in enumerate(paths, start=1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            os.chdir(folder)
            sys.argv = ["trimtab", *arguments]
            try:
                main()
            except SystemExit as finished:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(finished.code or 0))
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stdout, stderr = (path.read_text() for path in paths)
    return {"returncode": status, "stdout": stdout, "stderr": stderr}


def load_kernels() -> None:
    """Load what most commands need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bias = tt.BiasLearner(k=1).fit(RECS, RECS)
    tt.evaluate(bias.apply(RECS, k=1), RECS, k=1)


if __name__ == "__main__":
    load_kernels()
    jobs = json.load(sys.stdin)
    print(json.dumps([run_command(**job) for job in jobs]))
