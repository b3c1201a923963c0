"""Commands read files as people have them: own names, compressed, separated, numbers as times."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import made_emails as made
import trimtab as tt
from s3_server import ACCESS_KEY, SECRET_KEY, serve_s3
from shops import AS_OF, Shop
from trimtab.store import Store
from trimtab.tables.files import read_table

OWN = {"user_id": "Kunde", "item_id": "Artikel", "score": "Punkte", "timestamp": "Zeit"}
COLUMNS = ("--columns", "user=Kunde,item=Artikel,score=Punkte,time=Zeit")
LISTED = ("--columns", "user=Kunde,item=Artikel,score=Punkte")


def write(table: pa.Table, path: Path) -> None:
    """Write a table with its own names and times in milliseconds, as the file's name says."""
    if "timestamp" in table.column_names:
        times = table["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        place = table.column_names.index("timestamp")
        table = table.set_column(place, "timestamp", times)
    table = table.rename_columns([OWN.get(name, name) for name in table.column_names])
    if path.name.endswith(".parquet"):
        pq.write_table(table, path)
        return
    separator = "\t" if ".tsv" in path.name else ";"
    with pa.output_stream(path, compression="detect") as stream:
        csv.write_csv(table, stream, csv.WriteOptions(delimiter=separator))


def write_own_shop(shop: Shop, folder: Path) -> tuple[object, ...]:
    """Write a shop's lists and events as people have them; returns the options that name them."""
    (folder / "lists").mkdir(parents=True)
    for number, path in enumerate(sorted(shop.lists.iterdir())):
        ending = (".csv.gz", ".tsv", ".parquet")[number % 3]
        write(read_table(path), folder / "lists" / path.with_suffix(ending).name)
    write(read_table(shop.events), folder / "events.csv.gz")
    return ("--lists", folder / "lists", "--events", folder / "events.csv.gz", *COLUMNS)


def succeed(run) -> str:
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write(data.recs(), folder / "lists.csv.gz")
    write(data.recent_events(), folder / "recent.tsv")
    write(data.test_events(), folder / "later.tsv.gz")
    return folder


def test_fit_apply_and_evaluate(call, folder, data, bytes_of):
    files = ("--lists", "lists.csv.gz", *LISTED)
    fit = ("fit", *files, "--events", "recent.tsv", "--out", "biases", "--k", 5)
    succeed(call(*fit, cwd=folder))
    learned = tt.BiasLearner(k=5).fit(data.recs(), data.recent_events())
    assert bytes_of(tt.ItemBias.load(folder / "biases").table()) == bytes_of(learned.table())
    apply = ("apply", "--model", "biases", *files, "--out", "top.csv", "--k", 5)
    assert "no learned bias" in succeed(call(*apply, cwd=folder))
    top = learned.apply(data.recs(), 5)
    assert read_table(folder / "top.csv").equals(top)
    judge = ("evaluate", "--lists", "top.csv", "--events", "later.tsv.gz", "--k", 5, "--json")
    run = call(*judge, "--columns", "user=Kunde,item=Artikel", cwd=folder)
    assert json.loads(succeed(run)) == tt.evaluate(top, data.test_events(), 5)


REFUSED = {
    "no map": (("--columns", "user"), ["--columns user", "user=customer"]),
    "an unknown key": (("--columns", "usr=Kunde"), ["'usr'", "user, item, time"]),
    "a column that is not there": (
        ("--columns", "user=Kundin,item=Artikel"), ["'Kundin' (user_id)", "lists", "found Kunde"],
    ),
    "no map at all": ((), ["'user_id'", "lists", "found Kunde", "--columns"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_own_column(call, folder, tmp_path, name):
    flags, named = REFUSED[name]
    files = ("--lists", folder / "lists.csv.gz", "--events", folder / "recent.tsv")
    run = call("fit", *files, "--out", "biases", *flags, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    assert [text for text in named if text not in run.stderr] == []
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_used_is_told(call, folder, tmp_path):
    files = ("--lists", folder / "lists.csv.gz", "--events", folder / "recent.tsv")
    run = call("evaluate", *files, *LISTED[:1], LISTED[1] + ",window=Fenster", cwd=tmp_path)
    assert run.returncode == 0
    assert "warning: columns: no table has a column 'Fenster' (for window)" in run.stderr


def test_hits_count_by_an_own_column(call, folder, data, tmp_path):
    prices = pa.array(range(data.test_events().num_rows), pa.float64())
    bought = data.test_events().append_column("price", prices)
    write(bought.rename_columns({"price": "Preis"}), tmp_path / "later.tsv")
    words = ("evaluate", "--lists", folder / "lists.csv.gz", "--events", "later.tsv", "--json")
    expected = tt.evaluate(data.recs(), bought, weight="price")
    for names in (LISTED[1], f"{LISTED[1]},price=Preis"):
        run = call(*words, "--columns", names, "--weight", "Preis", cwd=tmp_path)
        assert json.loads(succeed(run)) == expected


def test_refresh_and_history(call, shop, bytes_of, tmp_path):
    usual = succeed(call(*shop.arguments("--as-of", AS_OF, "--k", 5, "--json"), cwd=tmp_path))
    own = tmp_path / "own"
    arguments = write_own_shop(shop, own)
    store = ("--store", own / "store")
    run = call("refresh", *arguments, *store, "--as-of", AS_OF, "--k", 5, "--json", cwd=tmp_path)
    assert json.loads(succeed(run))["summary"] == json.loads(usual)["summary"]
    ours, theirs = (Store(place).load().table() for place in (own / "store", shop.store))
    assert bytes_of(ours) == bytes_of(theirs)
    told = call("history", *store, *arguments[2:], "--test", "3d", "--json", cwd=tmp_path)
    assert json.loads(succeed(told))[0]["realised"] is not None


def test_refresh_from_s3(call, shop, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # nothing but loopback is asked
    with serve_s3(shop.folder.parent) as port:
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        bucket = f"s3://{ACCESS_KEY}:{SECRET_KEY}@shop"
        lists, events = f"{bucket}/lists?{query}", f"{bucket}/events.parquet?{query}"
        arguments = ("--lists", lists, "--events", events, "--store", tmp_path / "store")
        run = call("refresh", *arguments, "--as-of", AS_OF, "--json", cwd=tmp_path)
        manifest = json.loads(succeed(run))
    assert manifest["lists_folder"].startswith(f"s3://{ACCESS_KEY}:***@shop/lists")
    assert SECRET_KEY not in json.dumps(manifest)


def test_backtest_by_options_and_by_a_plan(call, shop, tmp_path):
    write(read_table(shop.events), tmp_path / "log.csv.gz")
    words = ("--date", "2026-02-10", "--engine", "popularity", "--method", "ratio", "--no-report")
    columns = ("--columns", "user=Kunde,item=Artikel,time=Zeit")
    usual = call("backtest", "--events", shop.events, *words, "--out", "usual", cwd=tmp_path)
    own = call("backtest", "--events", "log.csv.gz", *columns, *words, "--out", "own", cwd=tmp_path)
    (tmp_path / "plan.toml").write_text(
        'log = "log.csv.gz"\n[columns]\nuser = "Kunde"\nitem = ["sku", "Artikel"]\ntime = "Zeit"\n'
    )
    plan = call("backtest", "plan.toml", *words, "--out", "plan", cwd=tmp_path)
    for run in (usual, own, plan):
        succeed(run)
    tables = [read_table(tmp_path / name / "results.parquet") for name in ("usual", "own", "plan")]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("backtest", "--date", "2026-02-18", "--test", "3d", "--method", "ratio"), "results"),
        (("simulate", "--days", 1, "--k", 5), "days"),
    ],
)
def test_own_lists_in_a_bucket(call, shop, tmp_path, monkeypatch, command, file):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # nothing but loopback is asked
    _, _, *events = write_own_shop(shop, tmp_path / "own")
    usual = ("--lists", shop.lists, "--events", shop.events)
    with serve_s3(tmp_path) as port:
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        lists = f"s3://{ACCESS_KEY}:{SECRET_KEY}@own/lists?{query}"
        for name, given in {"a": usual, "b": ("--lists", lists, *events)}.items():
            succeed(call(*command, *given, "--no-report", "--out", name, cwd=tmp_path))
    expected, found = (read_table(tmp_path / name / f"{file}.parquet") for name in ("a", "b"))
    kept = [name for name in expected.column_names if name not in ("engine", "seconds")]
    assert found.select(kept).equals(expected.select(kept))


def test_simulate_reads_own_names(call, folder, tmp_path):
    columns = ("--columns", "user=Kunde,item=Artikel,time=Datum")
    run = call("simulate", "--events", folder / "recent.tsv", *columns, cwd=tmp_path)
    assert (run.returncode, "missing column 'Datum' (timestamp)" in run.stderr) == (2, True)


def test_abtest_tables(call, tmp_path):
    pq.write_table(made.SMALL.rename_columns({"bucket": "Gruppe"}), tmp_path / "users.parquet")
    words = ("abtest", "--table", "users.parquet", "--columns", "bucket=Gruppe")
    found = json.loads(succeed(call(*words, "--json", cwd=tmp_path)))["findings"]
    assert found[0]["reading"]["error"] == pytest.approx(0.1124365390, abs=5e-11)
    run = call(*words, "--labels", "A,B", cwd=tmp_path)
    assert (run.returncode, "column 'Gruppe' of table has 'control'" in run.stderr) == (2, True)
