"""Commands that are told to end remove their temporary files, whatever they were doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from made_biases import make_bias
from shops import AS_OF, Shop

pytestmark = pytest.mark.xdist_group("shop")
LISTS = f"lists/{AS_OF}.parquet"
# Treats lists of any size as large, and sends itself a signal once a temporary file exists.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from trimtab.cli import main
from trimtab.replay import dated_lists
pattern, number = sys.argv[1], int(sys.argv[2])
is_watching = True
def watch(event, _):
    global is_watching
    if is_watching and event in {"open", "os.chmod", "os.rename"}:
        is_watching = False
        is_watching = not any(path.is_file() for path in Path().glob(pattern))
        if not is_watching:
            os.kill(os.getpid(), number)
dated_lists.LARGE = 10
sys.addaudithook(watch)
main(sys.argv[3:])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("temporary", "command"),
    [
        ("temp/trimtab-*/*", f"fit --lists {LISTS} --events events.parquet --out out/biases"),
        ("out/.*.part", f"apply --model biases --lists {LISTS} --out out/top.parquet"),
        (
            "store/.staging-*/**/*",
            f"refresh --lists lists --events events.parquet --store store --as-of {AS_OF}",
        ),
    ],
    ids=["fit", "apply", "refresh"],
)
def test_a_signal_leaves_no_temporary_files(shop: Shop, temporary, command, number):
    make_bias(dict.fromkeys(range(10), 0.1)).save(shop.folder / "biases")
    for name in ("temp", "out"):
        (shop.folder / name).mkdir()
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, temporary, str(number.value), *command.split()],
        cwd=shop.folder, env={**os.environ, "TMPDIR": str(shop.folder / "temp")}, text=True,
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 128 + number, run.stderr
    assert run.stderr.splitlines()[-1] == "trimtab: stopped; finished work is kept"
    left = [*shop.folder.glob("temp/*"), *shop.folder.glob("out/*"), *shop.folder.glob(temporary)]
    assert left == []
