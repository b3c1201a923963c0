"""Backtests, reports and the demo from the command line, and their errors."""

from __future__ import annotations

import re
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shops import run_in_process
from trimtab.cli.experiments import DEMO
from trimtab.datasets import generate_log, make_log
from trimtab.datasets.generated_log import generate_items
from trimtab.replay import make_plan
from trimtab.replay.results import load_results
from trimtab.report import build_page
from trimtab.tables.files import write_table

HOSTILE = "</script><img src=x onerror=alert(1)>"
N_ITEMS = 60
FLAGS = (
    "--events", "events.parquet", "--items", "items.parquet", "--engine", "markov", "--engine",
    "category", "--method", "default", "--metric", "ndcg", "--k", "5", "--set", "n_listed=15",
)  # fmt: skip
DATE = ("--date", "2026-02-20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("experiments")
    log = generate_log(
        n_users=150, n_items=N_ITEMS, days=60, purchases_per_user=20, drift=1, seed=6
    )
    write_table(log, place / "events.parquet")
    naive = log.set_column(2, "timestamp", log["timestamp"].cast(pa.timestamp("us")))
    write_table(naive, place / "naive.parquet")
    categories = [f"c{c}" for c in generate_items(N_ITEMS, 1, 6).category]
    names = [f"{HOSTILE} {item}" for item in range(N_ITEMS)]
    catalogue = pa.table({"item_id": np.arange(N_ITEMS), "name": names, "aisle": categories})
    write_table(catalogue, place / "items.parquet")
    # One event on the first of January, and no others before the sixth.
    late = log.filter(pa.array(log["timestamp"].to_numpy() >= np.datetime64("2026-01-06")))
    first_day = pa.array([np.datetime64("2026-01-01", "us")]).cast(log.schema[2].type)
    gap = pa.concat_tables([late.slice(0, 1).set_column(2, "timestamp", first_day), late])
    write_table(gap, place / "gap.parquet")
    (place / "broken.toml").write_text("dates = [")
    (place / "odd.toml").write_text('colour = "red"')
    (place / "plan.toml").write_text(
        'log = "naive.parquet"\ndates = ["2026-02-20"]\nengines = ["popularity"]\n'
        'methods = ["ratio"]\nmetrics = ["acc"]\n'
    )
    return place


def test_flags_results_and_page(folder, trimtab_with_extras):
    run = trimtab_with_extras("backtest", *FLAGS, *DATE, "--out", "out", cwd=folder)
    assert run.returncode == 0, run.stderr
    assert "4 results in out/results.parquet" in run.stdout
    assert "the bias with default settings" in run.stdout.lower()
    assert "on markov" in run.stdout
    table = pq.read_table(folder / "out" / "results.parquet")
    assert set(table["method"].to_pylist()) == {"long", "default"}
    page = (folder / "out" / "report.html").read_text()
    named = build_page(load_results(folder / "out"), all_tables=True)
    assert HOSTILE not in page + named
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in named
    (folder / "out" / "report.html").unlink()
    again = run_in_process("report", "--results", folder / "out")
    assert again.returncode == 0, again.stderr
    assert (folder / "out" / "report.html").read_text() == page


def test_a_file_with_flags_over_it(folder, monkeypatch):
    monkeypatch.chdir(folder)
    series = ("--first", "2026-02-10", "--last", "2026-02-20", "--set", "every=10d")
    run = run_in_process(
        "backtest", "plan.toml", *series, "--tz", "Europe/London", "--out", "filed", "--no-report"
    )
    assert run.returncode == 0, run.stderr
    table = pq.read_table(folder / "filed" / "results.parquet")
    assert set(table["date"].to_pylist()) == {"2026-02-10", "2026-02-20"}
    assert set(table["engine"].to_pylist()) == {"popularity"}
    assert not (folder / "filed" / "report.html").exists()


def test_errors_are_one_sentence(folder, monkeypatch):
    monkeypatch.chdir(folder)
    early, gap = ("--date", "2026-01-06"), ("--window", "1d", "--events", "gap.parquet")
    series = ("--first", "2026-02-10", "--last", "2026-02-20")
    for arguments, message in (
        ([*FLAGS, "--date", "2031-01-01"], "--date 2031-01-01.*2026-01-05"),
        ([*FLAGS, *early, *gap], "recent window, 2026-01-05 to 2026-01-05"),
        ([*FLAGS, *early], "no buyer of the recent window, 2026-01-03 to 2026-01-05"),
        ([*FLAGS, "--events", "naive.parquet", *DATE], "'timestamp' of events.*--tz"),
        ([*FLAGS], "dates.*first.*last"),
        ([*FLAGS, *DATE, *series], "--date.*--first.*--last"),
        ([*FLAGS, *DATE, "--set", "every=3d"], "--set every=3.*--first.*--last"),
        (["nothing.toml"], "nothing.toml"),
        (["broken.toml"], "broken.toml.*TOML"),
        (["odd.toml"], "'colour' in odd.toml.*log, tz"),
        ([*FLAGS, "--events", "no.parquet", *DATE], "no.parquet"),
    ):
        run = run_in_process("backtest", *arguments, "--out", "refused")
        assert run.returncode == 2
        assert re.fullmatch(f"trimtab: .*{message}.*\n", run.stderr)
        assert not (folder / "refused").exists()
    run = run_in_process("report", "--results", "nowhere")
    assert (run.returncode, "nowhere" in run.stderr) == (2, True)


def test_an_interrupt_ends_the_run_and_leaves_a_page_of_finished_cells(folder):
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    days = ("--first", "2026-01-20", "--last", "2026-02-20", "--set", "every=1d")
    command = [script, "backtest", *FLAGS, *days, "--out", "stopped"]
    run = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        patience = time.monotonic() + 120
        while not list((folder / "stopped").rglob("about.json")):
            assert time.monotonic() < patience
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        _, words = run.communicate(timeout=60)
    finally:
        run.kill()
    *lines, last = words.splitlines()
    assert (run.returncode, last[:16]) == (130, "trimtab: stopped")
    for place, line in enumerate(lines, 1):
        assert re.match(rf"{place} of 64: 2026-01-2\d \w+, ", line)
    (title,) = re.findall("<h1>.*</h1>", (folder / "stopped" / "report.html").read_text())
    assert re.search(r"\(incomplete: \d of 64 finished\)", title)


def test_a_missing_library_is_named(folder, trimtab):
    rival = ("--events", "events.parquet", "--engine", "factorization", "--method", "ratio")
    for arguments, names in (
        (FLAGS, ("vl-convert", "trimtab[report]")),
        ((*rival, "--no-report"), ("SciPy", "trimtab[engines]")),
    ):
        run = trimtab("backtest", *arguments, *DATE, "--out", "bare", cwd=folder)
        assert run.returncode == 2
        assert all(name in run.stderr for name in names)


def test_the_demo_is_the_papers_experiment(folder):
    """The demo itself takes a minute; this checks its plan."""
    log = make_log(pq.read_table(folder / "events.parquet"))
    plan = make_plan(DEMO, log)
    assert [str(day) for day in plan.dates] == ["2010-07-07", "2010-11-10"]
    assert (plan.k, plan.window, plan.test, plan.n_listed) == (10, "3d", "7d", 50)
    assert set(plan.engines) == {"markov", "factorization"}
    names = "long truncate decay distrdiff ratio bestsellers-1 bestsellers-3 bestsellers-7 paper"
    assert [method.name for method in plan.methods] == [*names.split(), "default", "reranker"]
    assert plan.training_windows == (7, 30, 91, 182)
