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
from trimtab.tables.columns import with_column

CONTROL = ("--control", "emails=400000,opens=60000,clicks=9000,orders=12")
TOTALS = (*CONTROL, "--treatment", "emails=400000,opens=60120,clicks=9320,orders=21")
METRICS = ("--count", "clicks/impressions", "--count", "orders/user", "--amount", "revenue/user")


@pytest.fixture
def run(call, tmp_path):
    """Run the command on two tables, and return what it printed."""
    pq.write_table(made.SMALL, tmp_path / "small.parquet")
    pc.write_csv(make_users(("control", "treatment")).drop(["date"]), tmp_path / "users.csv")

    def run_command(*flags, status=0):
        result = call("abtest", *flags, cwd=tmp_path)
        assert result.returncode == status, result.stderr
        return result.stdout.replace("\N{NO-BREAK SPACE}", " ") if status != 2 else result

    return run_command


def test_totals(run, tmp_path):
    printed = run(*TOTALS, "--out", "verdict.html")
    (clicks,) = re.findall(r"^Clicks per open .*", printed, re.M)
    assert re.search(r"15.0 % +15.5 % +\+3.3 % +\+0.\d to \+6.\d % +significant", clicks)
    assert "p 0.01" in printed
    assert (tmp_path / "verdict.html").as_uri() in printed
    assert (tmp_path / "verdict.html").stat().st_size > 100_000


def test_a_wrong_split_has_no_verdict_and_a_status_of_its_own(run, tmp_path):
    lost = (*TOTALS[:3], "emails=380000,opens=57000,clicks=9320,orders=21")
    for flags in ((), ("--json",)):
        printed = run(*lost, *flags, "--out", "verdict.html", status=5)
        page = (tmp_path / "verdict.html").read_text()
        assert ("blocked" in printed, "significant" in printed) == (True, False)
        assert ("blocked" in page, "by more than chance explains" in page) == (True, False)


def test_tables(run, tmp_path):
    found = json.loads(run("--table", "small.parquet", "--margin", "2%", "--json"))
    assert found["findings"][0]["reading"]["error"] == pytest.approx(0.1124365390, abs=5e-11)
    expected = tt.abtest.analyse(made.SMALL, Settings(margin=0.02, name="small")).to_dict()
    assert found == json.loads(json.dumps(expected))
    names = pa.array(["A" if bucket == "control" else "B" for bucket in made.BOTH])
    pc.write_csv(with_column(made.SMALL, "bucket", names), tmp_path / "renamed.csv")
    flags = ("--table", "renamed.csv", "--labels", "A,B", "--margin", "2%", "--json")
    findings = json.loads(run(*flags))["findings"]
    assert [{**own, "bucket": "treatment"} for own in findings] == found["findings"]
    own = {"counts": ["clicks/impressions", "orders/user"], "amounts": ["revenue/user"]}
    users = make_users(("control", "treatment")).drop(["date"])
    pq.write_table(users, tmp_path / "users.parquet")
    for name in ("users.csv", "users.parquet"):
        found = json.loads(run("--table", name, *METRICS, "--json"))
        assert found == tt.abtest.analyse(users, Settings(name="users"), **own).to_dict()


def test_a_split_of_70_to_30(run, tmp_path):
    users = make_users(("control", "treatment"), 400).to_pandas()
    kept = users[(users.bucket == "control") | (users.index % 14 < 6)]
    kept.to_csv(tmp_path / "uneven.csv", index=False)
    flags = ("--table", "uneven.csv", *METRICS[:2])
    assert "Pass --share 0.3 if that was intended" in run(*flags, status=5)
    pages = []
    for given in (("--shares", "0.7,0.3"), ("--share", "0.3")):
        run(*flags, *given, "--out", "v.html")
        pages.append((tmp_path / "v.html").read_text())
    assert pages[0] == pages[1]
    assert "uneven." in pages[0]


def test_plans(run):
    totals = ("--plan", "--control", "emails=100000,opens=15000,clicks=2250")
    five, again = (json.loads(run(*totals, "--lift", lift, "--json"))[0] for lift in ("5%", "0.05"))
    assert five == again
    assert five["emails"] == pytest.approx(484_089, abs=2)
    assert re.search(r"^Clicks per open .* 480K +120K +32K", run(*totals), re.M)
    flags = ("--plan", "--table", "users.csv", *METRICS, "--lift", "10%")
    clicks, orders, revenue = json.loads(run(*flags, "--json"))
    assert clicks["metric"] == "Clicks per impression"
    assert 100 < clicks["users"] < orders["users"] < revenue["users"]
    assert "Users in both groups together" in run(*flags)


def test_several_treatments(run, tmp_path):
    pc.write_csv(make_users(n=300).drop(["date"]), tmp_path / "three.csv")
    flags = ("--table", "three.csv", "--labels", "old,A,B", *METRICS[:2])
    before = ("--columns", "pre_clicks=orders")
    printed = run(*flags, *before, "--out", "verdict.html")
    assert re.search(r"^A: Clicks per impression .* % \* ", printed, re.M)
    assert re.search(r"^B: (not clear yet|worse|better).*\.$", printed, re.M)
    assert "intervals of 97.5 % and p-values multiplied by 2" in printed
    assert "Treatments against control" in (tmp_path / "verdict.html").read_text()
    wrong = run(*flags, "--shares", "0.6,0.2,0.2", "--json", status=5)
    assert ('"blocked"' in wrong, "significant" in wrong) == (True, False)


SMALL, USERS, FEW = ("--table", "small.parquet"), ("--table", "users.csv"), "emails=500,opens=50"
REFUSED = [
    ((), ["--table", "--control", "--treatment"]),
    (("--table", "none.csv"), ["none.csv"]),
    ((*USERS, "--count", "clicks"), ["count clicks", "orders/user"]),
    ((*USERS, "--count", "views/user"), ["'views'", "found bucket"]),
    (("--users", "users.csv"), ["--users is now --table"]),
    ((*TOTALS, *SMALL), ["--table, or --control"]),
    (("--control", "emails=5", "--columns", "user=a"), ["--columns user=a", "--control"]),
    ((*SMALL, "--labels", "A,B,A"), ["--labels A,B,A: ", "each once"]),
    ((*SMALL, "--labels", "A"), ["--labels A: "]),
    ((*SMALL, "--labels", "a,b,c", "--salt", "x"), ["--salt x", "one treatment"]),
    ((*SMALL, "--labels", "a,b,c", "--share", "0.2"), ["--share 0.2", "shares"]),
    ((*SMALL, "--shares", "0.5,0.6"), ["--shares 0.5,0.6", "add up to 1"]),
    ((*SMALL, "--labels", "a,b,c", "--shares", "1,x,2"), ["--shares x", "0.02"]),
    ((*SMALL, "--shares", "0.7,0.3", "--share", "0.3"), ["--share 0.3", "--shares"]),
    ((*SMALL, "--set", "alpha=1e-10"), ["--set alpha=1e-10", "1e-09"]),
    (("--control", "emails=5"), ["--control", "--treatment"]),
    ((*TOTALS, "--labels", "A,B"), ["--labels A,B", "--control"]),
    ((*TOTALS, "--salt", "x"), ["--salt x", "--control"]),
    ((*TOTALS, "--count", "clicks/user"), ["--count clicks/user", "--control"]),
    ((*TOTALS, "--amount", "clicks/user"), ["--amount clicks/user", "--control"]),
    ((*SMALL, "--primary", "a/b"), ["--primary a/b", "clicks/opens"]),
    (("--control", "emails", "--treatment", "emails=5"), ["'emails'", "name=number"]),
    (("--control", "emails=5,emails=7", "--treatment", "emails=5"), ["emails=7'", "once"]),
    ((*SMALL, "--lift", "3%"), ["--lift 3%", "--plan"]),
    ((*SMALL, "--margin", "x"), ["--margin x"]),
    ((*SMALL, "--out", "page.txt"), ["--out page.txt", ".html"]),
    ((*SMALL, "--salt", "x"), ["'user_id'"]),
    (("--plan", "--control", FEW, "--lift", "10"), ["--lift 10: ", "below 100 %", "0.1 or 10%"]),
    (("--plan", "--control", FEW, "--lift", "1"), ["0.01 or 1%"]),
    (("--plan", "--control", FEW, "--lift", "150%"), ["--lift 1.5", "below 100 %"]),
    (("--control", FEW, "--treatment", FEW), ["clicks, orders and revenue are missing"]),
    (("--plan",), ["--table", "--control"]),
    (("--plan", "--control", "emails=5", "--salt", "x"), ["--salt x", "--plan"]),
    (("--plan", "--control", "emails=5", "--planned", "9"), ["--planned 9", "--plan"]),
]


def test_refusals_name_the_option_and_its_value(run):
    for flags, named in REFUSED:
        refused = run(*flags, status=2)
        assert (refused.stdout, refused.stderr.count("\n")) == ("", 1), flags
        assert refused.stderr.startswith("trimtab: ")
        assert [text for text in named if text not in refused.stderr] == [], refused.stderr


def test_lists_in_two_buckets(call, tmp_path, data):
    bias = tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())
    bias.save(tmp_path / "bias")
    pq.write_table(data.recs(), tmp_path / "recs.parquet")
    flags = ("--model", "bias", "--lists", "recs.parquet", "--out", "top.parquet", "--k", 5)
    done = call("apply", *flags, "--salt", "may", "--share", 0.3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = Experiment("may", 0.3).apply(bias, data.recs(), k=5)
    assert pq.read_table(tmp_path / "top.parquet").equals(expected)
