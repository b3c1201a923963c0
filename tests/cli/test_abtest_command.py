"""`trimtab abtest`, as people run it."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import made_emails as made
import trimtab as tt
from made_verdicts import make_users
from trimtab.abtest import Settings
from trimtab.abtest.buckets import Experiment

TOTALS = (
    "--control", "emails=400000,opens=60000,clicks=9000,orders=12",
    "--treatment", "emails=400000,opens=60120,clicks=9320,orders=21",
)  # fmt: skip


@pytest.fixture
def table(tmp_path):
    pq.write_table(made.SMALL, tmp_path / "users.parquet")
    return tmp_path


def test_totals(call, tmp_path):
    run = call("abtest", *TOTALS, "--out", "verdict.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    printed = run.stdout.replace("\N{NO-BREAK SPACE}", " ")
    (clicks,) = re.findall(r"^Clicks per open .*", printed, re.M)
    assert re.search(r"15.0 % +15.5 % +\+3.3 % +\+0.\d to \+6.\d % +significant", clicks)
    assert "p 0.01" in printed
    assert (tmp_path / "verdict.html").as_uri() in printed
    assert (tmp_path / "verdict.html").stat().st_size > 100_000


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_wrong_split_has_no_verdict_and_a_status_of_its_own(call, tmp_path, flags):
    lost = (*TOTALS[:3], "emails=380000,opens=57000,clicks=9320,orders=21")
    run = call("abtest", *lost, *flags, "--out", "verdict.html", cwd=tmp_path)
    page = (tmp_path / "verdict.html").read_text()
    assert run.returncode == 5, run.stderr
    assert "blocked" in run.stdout
    assert "blocked" in page
    assert "significant" not in run.stdout
    assert "by more than chance explains" not in page


def test_json(call, table):
    run = call("abtest", "--table", "users.parquet", "--json", cwd=table)
    found = json.loads(run.stdout)
    assert found["findings"][0]["reading"]["error"] == pytest.approx(0.1124365390, abs=5e-11)
    assert found["settings"]["name"] == "users"


def test_a_csv_with_other_labels(call, tmp_path):
    names = ["A" if bucket == "control" else "B" for bucket in made.BOTH]
    pc.write_csv(made.SMALL.set_column(0, "bucket", pa.array(names)), tmp_path / "users.csv")
    flags = ("abtest", "--table", "users.csv", "--labels", "A,B", "--margin", "2%")
    run = call(*flags, "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    expected = tt.abtest.analyse(made.SMALL, Settings(margin=0.02)).to_dict()
    found = json.loads(run.stdout)["findings"]
    assert [row["reading"] for row in found] == [row["reading"] for row in expected["findings"]]


def test_raw_logs(call, tmp_path):
    (tmp_path / "logs").mkdir()
    tables = {"emails": made.EMAILS, "opens": made.OPENS, "clicks": made.CLICKS}
    for name, own in tables.items():
        pq.write_table(own, tmp_path / "logs" / f"{name}.parquet")
    pc.write_csv(made.ORDERS, tmp_path / "logs" / "orders.csv")
    run = call("abtest", "--logs", "logs", "--json", "--out", "verdict.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = {row["metric"]["title"]: row for row in json.loads(run.stdout)["findings"]}
    assert found["Orders per open"]["control"]["numerator"] == 2
    assert found["Opens per email"]["control"]["numerator"] == 2  # of three
    said = "An email counts as opened, and as clicked, at most once"
    assert said in (tmp_path / "verdict.html").read_text()
    assert said in call("abtest", "--logs", "logs", cwd=tmp_path).stdout


def test_ids_in_csv_logs_are_joined_as_they_are_written(call, tmp_path):
    (tmp_path / "logs").mkdir()
    emails = "email_id,user_id,bucket\n7,a,control\nx8,b,treatment\n9,c,control\n010,d,treatment\n"
    clicks = "email_id,timestamp\n7,2026-11-02 10:00:00\n9,2026-11-02 10:00:00\n"
    orders = "user_id,timestamp,revenue\na,2026-11-02 10:05:00,5\n"
    logs = {"emails": emails, "opens": "email_id\n7\n9\n", "clicks": clicks, "orders": orders}
    for name, text in logs.items():
        (tmp_path / "logs" / f"{name}.csv").write_text(text)
    run = call("abtest", "--logs", "logs", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = {row["metric"]["title"]: row for row in json.loads(run.stdout)["findings"]}
    assert found["Orders per email"]["control"]["numerator"] == 1


def test_a_split_of_70_to_30(call, tmp_path):
    users = make_users(("control", "treatment"), 400).slice(0, 400).to_pandas()
    kept = users[(users.bucket == "control") | (users.index % 14 < 6)]
    pq.write_table(pa.Table.from_pandas(kept, preserve_index=False), tmp_path / "users.parquet")
    flags = ("--users", "users.parquet", "--count", "clicks/impressions")
    wrong = call("abtest", *flags, cwd=tmp_path)
    assert (wrong.returncode, "pass --share 0.3 if that was" in wrong.stdout.lower()) == (5, True)
    pages = []
    for given in (("--shares", "0.7,0.3"), ("--share", "0.3")):
        run = call("abtest", *flags, *given, "--out", "v.html", "--name", "autumn", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        pages.append((tmp_path / "v.html").read_text())
    assert pages[0] == pages[1]
    assert "autumn." in pages[0]


def test_plan(call, table):
    totals = ("--plan", "--control", "emails=100000,opens=15000,clicks=2250")
    run = call("abtest", *totals, "--lift", "5%", "--json", cwd=table)
    (clicks, *_) = json.loads(run.stdout)
    assert clicks["emails"] == pytest.approx(484_089, abs=2)
    assert call("abtest", *totals, "--lift", "0.05", "--json", cwd=table).stdout == run.stdout
    doubled = call("abtest", *totals, "--lift", "100%", "--json", cwd=table)
    assert json.loads(doubled.stdout)[0]["lift"] == 1
    in_words = call("abtest", *totals, "--planned", "484085", cwd=table)
    assert "480K" in in_words.stdout
    clicks_row = in_words.stdout.replace("\N{NO-BREAK SPACE}", " ").splitlines()[2]
    assert "+5.0 %" in clicks_row.split("32K")[1]


OWN = ("--count", "clicks/impressions", "--count", "orders/user", "--amount", "revenue/user")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_metrics_of_ones_own(call, tmp_path, ending):
    made_users = make_users(("control", "treatment"), 200).drop(["date"])
    write = pq.write_table if ending == "parquet" else pc.write_csv
    write(made_users, tmp_path / f"users.{ending}")
    run = call("abtest", "--users", f"users.{ending}", *OWN, "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    options = {"counts": ["clicks/impressions", "orders/user"], "amounts": ["revenue/user"]}
    expected = tt.abtest.analyse(made_users, Settings(name="users"), **options).to_dict()
    assert json.loads(run.stdout) == json.loads(json.dumps(expected))


def test_a_plan_of_users(call, tmp_path):
    pq.write_table(make_users(("control", "treatment"), 400), tmp_path / "users.parquet")
    flags = ("abtest", "--plan", "--users", "users.parquet", *OWN, "--lift", "10%")
    clicks, orders, revenue = json.loads(call(*flags, "--json", cwd=tmp_path).stdout)
    assert clicks["metric"] == "Clicks per impression"
    assert 100 < clicks["users"] < orders["users"] < revenue["users"]
    assert "Users in both groups together" in call(*flags, cwd=tmp_path).stdout


def test_several_treatments(call, tmp_path):
    pc.write_csv(make_users(n=300).drop(["date"]), tmp_path / "users.csv")
    flags = ("--users", "users.csv", "--labels", "old,A,B", *OWN[:2], "--covariate", "orders")
    run = call("abtest", *flags, "--out", "verdict.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    printed = run.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"^A: Clicks per impression .* % \* ", printed, re.M)
    assert re.search(r"^B: (not clear yet|worse|better).*\.$", printed, re.M)
    assert "intervals of 97.5 % and p-values multiplied by 2" in printed
    assert "Treatments against control" in (tmp_path / "verdict.html").read_text()
    wrong = call("abtest", *flags, "--shares", "0.6,0.2,0.2", "--json", cwd=tmp_path)
    assert wrong.returncode == 5
    assert '"blocked"' in wrong.stdout
    assert "significant" not in wrong.stdout


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), ["--table", "--users", "--logs", "--control", "--treatment"]),
        (("--users", "users.parquet"), ["no metric", "clicks/impressions"]),
        (("--users", "users.parquet", "--count", "clicks"), ["count clicks", "orders/user"]),
        (("--users", "users.parquet", "--count", "views/user"), ["'views'", "found bucket"]),
        (("--table", "users.parquet", "--count", "a/b"), ["--count a/b", "--users"]),
        (("--users", "users.parquet", "--table", "users.parquet"), ["one of --table, --users"]),
        (("--table", "users.parquet", "--covariate", "age"), ["'age'", "found bucket"]),
        (("--control", "emails=5", "--covariate", "age"), ["--covariate age", "--control"]),
        (("--table", "users.parquet", "--labels", "A,B,A"), ["--labels A,B,A", "each once"]),
        (
            ("--table", "users.parquet", "--labels", "a,b,c", "--salt", "x"),
            ["--salt x", "--labels"],
        ),
        (("--table", "users.parquet", "--labels", "a,b,c", "--share", "0.2"), ["--shares"]),
        (("--table", "users.parquet", "--shares", "0.5,0.6"), ["--shares 0.5,0.6", "add up to 1"]),
        (
            ("--table", "users.parquet", "--labels", "a,b,c", "--shares", "1,x,2"),
            ["--shares x", "0.02"],
        ),
        (("--plan", "--users", "users.parquet"), ["no metric", "clicks/impressions"]),
        (("--plan", "--users", "users.parquet", "--table", "x", "--count", "a/b"), ["--users or"]),
        (("--table", "users.parquet", "--alpha", "1e-10"), ["--alpha 1e-10", "1e-09"]),
        (("--control", "emails=5"), ["--control", "--treatment"]),
        ((*TOTALS, "--labels", "A,B"), ["--labels A,B", "--control and --treatment"]),
        ((*TOTALS, "--salt", "x"), ["--salt x", "--control and --treatment"]),
        ((*TOTALS, "--session-minutes", "5"), ["--session-minutes 5", "--control and --treatment"]),
        ((*TOTALS, "--count", "clicks/user"), ["--count clicks/user", "--users"]),
        ((*TOTALS, "--table", "users.parquet"), ["one of --table, --users"]),
        (("--table", "users.parquet", "--session-minutes", "5"), ["--session-minutes 5", "--logs"]),
        (("--table", "users.parquet", "--shares", "0.7,0.3", "--share", "0.3"), ["--share 0.3"]),
        (("--table", "users.parquet", "--primary", "a/b"), ["--primary a/b", "clicks/opens"]),
        (("--table", "users.parquet", "--draws", "0"), ["--draws 0", "no bootstrap any more"]),
        (("--control", "emails", "--treatment", "emails=5"), ["'emails'", "name=number"]),
        (("--control", "emails=5,emails=7", "--treatment", "emails=5"), ["'emails=7'", "once"]),
        (("--table", "no.parquet"), ["no.parquet"]),
        (("--table", "users.parquet", "--labels", "A"), ["--labels A"]),
        (("--table", "users.parquet", "--lift", "3%"), ["--lift 3%", "--plan"]),
        (("--table", "users.parquet", "--margin", "x"), ["--margin x"]),
        (("--table", "users.parquet", "--out", "page.txt"), ["--out page.txt", ".html"]),
        (("--table", "users.parquet", "--salt", "x"), ["'user_id'"]),
        (
            ("--plan", "--control", "emails=500,opens=50", "--lift", "10"),
            ["--lift 10: ", "+1000 %", "0.1 or 10%"],
        ),
        (("--plan", "--control", "emails=500,opens=50", "--lift", "1"), ["0.01 or 1%"]),
        (("--plan", "--control", "emails=500,opens=50", "--lift", "150%"), ["--lift 1.5", "1"]),
        (("--plan",), ["--plan", "--table", "--control"]),
        (("--plan", "--control", "emails=5", "--salt", "x"), ["--salt x", "--plan"]),
        (("--logs", "."), ["--logs .", "emails.parquet", "emails.csv"]),
    ],
)
def test_refusals_name_the_option_and_its_value(call, table, flags, named):
    run = call("abtest", *flags, cwd=table)
    assert run.returncode == 2
    assert (run.stdout, run.stderr.count("\n")) == ("", 1)
    assert run.stderr.startswith("trimtab: ")
    assert [text for text in named if text not in run.stderr] == []


def test_lists_in_two_buckets(call, tmp_path, data):
    bias = tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())
    bias.save(tmp_path / "bias")
    pq.write_table(data.recs(), tmp_path / "recs.parquet")
    flags = ("--model", "bias", "--lists", "recs.parquet", "--out", "top.parquet", "--k", 5)
    run = call("apply", *flags, "--salt", "may", "--share", 0.3, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    expected = Experiment("may", 0.3).apply(bias, data.recs(), k=5)
    assert pq.read_table(tmp_path / "top.parquet").equals(expected)
