"""Backtests, reports and the demo from the command line, and their errors."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import sysconfig
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.cli import main
from trimtab.cli.experiments import DEMO, QUICK_DEMO
from trimtab.datasets import generate_items, generate_log, make_log
from trimtab.replay import make_plan
from trimtab.replay.results import load_results
from trimtab.report import build_page
from trimtab.tables.files import write_table

HOSTILE = "</script><img src=x onerror=alert(1)>"
N_ITEMS = 60


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
    write_table(with_a_gap(log), place / "gap.parquet")
    (place / "broken.toml").write_text("dates = [")
    (place / "odd.toml").write_text('colour = "red"')
    return place


def with_a_gap(log: pa.Table) -> pa.Table:
    """Return a log with one event on the first of January, and no others before the sixth."""
    late = log.filter(pa.array(log["timestamp"].to_numpy() >= np.datetime64("2026-01-06")))
    first_day = pa.array([np.datetime64("2026-01-01", "us")]).cast(log.schema[2].type)
    return pa.concat_tables([late.slice(0, 1).set_column(2, "timestamp", first_day), late])


@pytest.fixture
def run_main(folder, monkeypatch, capsys):
    """Runs the command in this process: exit status and stderr."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["trimtab", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr().err

    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


FLAGS = (
    "--events", "events.parquet", "--items", "items.parquet", "--engine", "markov", "--engine",
    "category", "--method", "default", "--metric", "ndcg", "--k", "5", "--set", "n_listed=15",
)  # fmt: skip


def test_flags_results_and_page(folder, trimtab_with_extras):
    run = trimtab_with_extras(
        "backtest", *FLAGS, "--date", "2026-02-20", "--out", "out", cwd=folder
    )
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

    again = trimtab_with_extras("report", "--results", "out", "--out", "again.html", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert (folder / "again.html").read_text() == page


def test_a_file_with_flags_over_it(folder, trimtab_with_extras):
    (folder / "plan.toml").write_text(
        'log = "naive.parquet"\ndates = ["2026-02-20"]\nengines = ["popularity"]\n'
        'methods = ["ratio"]\nmetrics = ["acc"]\n'
    )
    run = trimtab_with_extras(
        "backtest", "plan.toml", "--first", "2026-02-10", "--last", "2026-02-20",
        "--set", "every=10", "--tz", "Europe/London", "--out", "filed", "--no-report", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    table = pq.read_table(folder / "filed" / "results.parquet")
    assert set(table["date"].to_pylist()) == {"2026-02-10", "2026-02-20"}
    assert set(table["engine"].to_pylist()) == {"popularity"}
    assert not (folder / "filed" / "report.html").exists()


REFUSALS = [
    ([*FLAGS, "--date", "2031-01-01"], "as_of=2031-01-01.*2026-01-05"),
    (
        [*FLAGS, "--date", "2026-01-06", "--set", "recent_days=1", "--events", "gap.parquet"],
        "recent window, 2026-01-05 to 2026-01-05",
    ),
    (
        [*FLAGS, "--date", "2026-01-06", "--set", "recent_days=3"],
        "no buyer of the recent window, 2026-01-03 to 2026-01-05",
    ),
    (
        [*FLAGS, "--date", "2026-02-20", "--set", "level=shelf"],
        "--set level=shelf of engine category.*aisle",
    ),
    (
        [*FLAGS, "--events", "naive.parquet", "--date", "2026-02-20"],
        "'timestamp' of events.*--tz",
    ),
    ([*FLAGS], "dates.*first.*last"),
    (
        [*FLAGS, "--date", "2026-02-20", "--first", "2026-02-10", "--last", "2026-02-20"],
        "--date.*--first.*--last",
    ),
    (
        [*FLAGS[:2], "--engine", "markov", "--date", "2026-02-20", "--set", "level=aisle"],
        "--set level=aisle.*--engine category",
    ),
    ([*FLAGS, "--date", "2026-02-20", "--set", "every=3"], "--set every=3.*--first.*--last"),
    (["nothing.toml"], "nothing.toml"),
    (["broken.toml"], "broken.toml.*TOML"),
    (["odd.toml"], "'colour' in odd.toml.*log, tz"),
    ([*FLAGS, "--events", "no.parquet", "--date", "2026-02-20"], "no.parquet"),
]


def test_errors_are_one_sentence(folder, run_main):
    for arguments, message in REFUSALS:
        status, stderr = run_main("backtest", *arguments, "--out", "refused")
        assert status == 2
        assert re.match(f"trimtab: .*{message}.*\n$", stderr)
        assert not (folder / "refused").exists()
    status, stderr = run_main("report", "--results", "nowhere")
    assert (status, "nowhere" in stderr) == (2, True)


def test_an_interrupt_ends_the_run_and_leaves_a_page_of_finished_cells(folder):
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    days = ("--first", "2026-01-20", "--last", "2026-02-20", "--set", "every=1")
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
    assert run.returncode == 130
    *lines, last = words.splitlines()
    assert re.match("trimtab: stopped", last)
    assert all(
        re.match(rf"{place} of 64: 2026-01-2\d \w+, ", line) for place, line in enumerate(lines, 1)
    )
    (title,) = re.findall("<h1>.*</h1>", (folder / "stopped" / "report.html").read_text())
    assert re.search(r"\(incomplete: \d of 64 finished\)", title)


def test_a_missing_library_is_named(folder, trimtab):
    run = trimtab("backtest", *FLAGS, "--date", "2026-02-20", "--out", "bare", cwd=folder)
    assert run.returncode == 2
    assert "vl-convert" in run.stderr
    assert "trimtab[report]" in run.stderr
    run = trimtab(
        "backtest", "--events", "events.parquet", "--engine", "factorization", "--method", "ratio",
        "--date", "2026-02-20", "--out", "bare", "--no-report", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 2
    assert "SciPy" in run.stderr
    assert "trimtab[engines]" in run.stderr


def test_the_demo_is_the_papers_experiment(folder):
    """The demo itself takes a minute; this checks its plan."""
    log = make_log(pq.read_table(folder / "events.parquet"))
    plan, quick = (make_plan(own, log) for own in (DEMO, QUICK_DEMO))
    assert [str(day) for day in plan.dates] == ["2010-07-07", "2010-11-10"]
    assert (plan.k, plan.recent_days, plan.test_days, plan.n_listed) == (10, 3, 7, 50)
    assert set(plan.engines) == {"markov", "factorization"}
    assert (quick.dates, set(quick.engines)) == (plan.dates[1:], {"markov"})
    assert [method.name for method in quick.methods] == [method.name for method in plan.methods]
    assert [method.name for method in plan.methods] == [
        "long", "truncate", "decay", "distrdiff", "ratio", "bestsellers-1", "bestsellers-3",
        "bestsellers-7", "paper", "default", "reranker",
    ]  # fmt: skip
    assert plan.training_windows == (7, 30, 91, 182)
