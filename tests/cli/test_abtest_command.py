"""`trimtab abtest` and `trimtab simulate --online`, as people run them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import made_mails as made
import trimtab as tt
from trimtab.abtest.buckets import Experiment
from trimtab.cli import app

TOTALS = (
    "--control", "mails=400000,opens=60000,clicks=9000,orders=12",
    "--treatment", "mails=400000,opens=60120,clicks=9320,orders=21",
)  # fmt: skip


@pytest.fixture
def table(tmp_path):
    pq.write_table(made.SMALL, tmp_path / "users.parquet")
    return tmp_path


def test_totals(trimtab_with_extras, tmp_path):
    run = trimtab_with_extras("abtest", *TOTALS, "--out", "verdict.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "Yes: better in clicks per open." in run.stdout
    assert "p 0.015" in run.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert (tmp_path / "verdict.html").stat().st_size > 100_000


def test_json(trimtab_with_extras, table):
    run = trimtab_with_extras("abtest", "--table", "users.parquet", "--json", cwd=table)
    found = json.loads(run.stdout)["findings"]
    assert found[0]["readings"][0]["p"] == pytest.approx(0.0326149132, abs=5e-11)


def test_a_csv_with_labels_of_its_own(trimtab_with_extras, tmp_path):
    names = ["A" if bucket == "control" else "B" for bucket in made.BOTH]
    pc.write_csv(made.SMALL.set_column(0, "bucket", pa.array(names)), tmp_path / "users.csv")
    flags = ("abtest", "--table", "users.csv", "--labels", "A,B", "--margin", "2%")
    run = trimtab_with_extras(*flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "Not known yet." in run.stdout


def test_raw_logs(trimtab_with_extras, tmp_path):
    (tmp_path / "logs").mkdir()
    tables = {"mails": made.MAILS, "opens": made.OPENS, "clicks": made.CLICKS}
    for name, own in tables.items():
        pq.write_table(own, tmp_path / "logs" / f"{name}.parquet")
    pc.write_csv(made.ORDERS, tmp_path / "logs" / "orders.csv")
    run = trimtab_with_extras("abtest", "--logs", "logs", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = {row["metric"]["title"]: row for row in json.loads(run.stdout)["findings"]}
    assert found["Orders per open"]["control"]["numerator"] == 2


def test_plan(trimtab_with_extras, table):
    totals = ("--plan", "--control", "mails=100000,opens=15000,clicks=2250")
    run = trimtab_with_extras("abtest", *totals, "--lift", "5%", "--json", cwd=table)
    (clicks, *_) = json.loads(run.stdout)
    assert clicks["mails"] == pytest.approx(484_085, abs=2)
    told = trimtab_with_extras("abtest", *totals, "--planned", "484085", cwd=table)
    assert "480K" in told.stdout
    assert (
        "+5.0 %" in told.stdout.replace("\N{NO-BREAK SPACE}", " ").splitlines()[2].split("32K")[1]
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give one of --table, --logs, or --control with --treatment"),
        (("--control", "mails=5"), "--control and --treatment go together"),
        (("--control", "mails", "--treatment", "mails=5"), "'mails': totals must be name=number"),
        (("--table", "no.parquet"), "no.parquet"),
        (("--table", "users.parquet", "--labels", "A"), "--labels A: must be two names"),
        (("--table", "users.parquet", "--lift", "3%"), "--lift 3%: goes with --plan"),
        (("--table", "users.parquet", "--margin", "x"), "margin=x: must be a number like 0.02"),
        (("--table", "users.parquet", "--out", "page.txt"), "--out page.txt: must end in .html"),
        (("--plan",), "--plan needs what is known now"),
        (("--plan", "--control", "mails=5", "--salt", "x"), "--salt x: does not go with --plan"),
        (("--control", "mails=5,mails=7", "--treatment", "mails=5"), "'mails=7': totals must be"),
        (("--logs", "."), "has no mails.parquet or mails.csv"),
        (("--table", "users.parquet", "--salt", "x"), "missing column 'user_id' in table"),
    ],
)
def test_what_is_refused(monkeypatch, table, flags, message):
    monkeypatch.chdir(table)
    refused = CliRunner().invoke(app, ["abtest", *flags]).exception
    assert isinstance(refused, tt.TrimtabError)  # which becomes one sentence and status 2
    assert message in str(refused)


def test_without_scipy(trimtab, tmp_path):
    run = trimtab("abtest", *TOTALS, cwd=tmp_path)
    assert run.returncode == 2
    assert "pip install 'trimtab[abtest]'" in run.stderr


def test_lists_in_two_buckets(trimtab, tmp_path, data):
    bias = tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())
    bias.save(tmp_path / "bias")
    pq.write_table(data.recs(), tmp_path / "recs.parquet")
    flags = ("--bias", "bias", "--recs", "recs.parquet", "--out", "top.parquet", "--k", 5)
    run = trimtab("apply", *flags, "--salt", "may", "--share", 0.3, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    expected = Experiment("may", 0.3).apply(bias, data.recs(), k=5)
    assert pq.read_table(tmp_path / "top.parquet").equals(expected)


def test_a_test_on_generated_customers(trimtab_with_extras, tmp_path):
    flags = ("--online", "--users", 300, "--days", 3, "--drift", 1.0, "--out", "online")
    run = trimtab_with_extras("simulate", *flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "true lift of clicks per open: +" in run.stdout
    assert "How often so many mails would have shown it" in run.stdout
    kept = sorted(path.name for path in (tmp_path / "online").iterdir())
    assert kept == ["mails.parquet", "truth.parquet", "verdict.html", "verdicts.json"]
    again = trimtab_with_extras("abtest", "--table", "online/mails.parquet", cwd=tmp_path)
    assert "Clicks per open" in again.stdout
    refused = trimtab_with_extras("simulate", "--online", "--log", "x.csv", cwd=tmp_path)
    assert "--log x.csv: does not go with --online" in refused.stderr
