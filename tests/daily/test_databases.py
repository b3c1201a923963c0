"""Events from databases: a real PostgreSQL server, and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from postgres_server import SECRET, free_port, postgres_server
from shops import AS_OF, run_in_process
from trimtab.errors import SettingError, StoreError
from trimtab.replay.shop import query_events
from trimtab.tables.places import without_password

pytestmark = pytest.mark.xdist_group("shop")
QUICK = tt.BiasLearner(method="ascent")
QUERY = "select user_id, item_id, sold_at as timestamp from sales"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.fixture(scope="module")
def sales(server, made_shop) -> str:
    """The server with the shop's events in a table."""
    from adbc_driver_postgresql import dbapi

    events = pq.read_table(made_shop.events).rename_columns(["user_id", "item_id", "sold_at"])
    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("sales", events)
        connection.commit()
    return server


def test_postgresql_gives_the_same_biases_as_a_file(sales, shop, bytes_of):
    from_file = shop.job(learner=QUICK).run(AS_OF)
    from_server = shop.job(learner=QUICK, events=sales, query=QUERY, tz="UTC").run(AS_OF)
    assert bytes_of(from_server.bias.table()) == bytes_of(from_file.bias.table())
    manifest = from_server.version.manifest
    assert manifest["events"].startswith("postgresql://shop:***@127.0.0.1:")
    assert SECRET not in (from_server.version.folder / "manifest.json").read_text()
    options = ("--query", QUERY, "--as-of", AS_OF, "--tz", "UTC", "--set", "method=ascent")
    arguments = shop.arguments(*options)
    arguments[arguments.index(shop.events)] = sales
    done = run_in_process(*arguments)
    assert done.returncode == 0, done.stderr
    assert "version 3" in done.stdout


def test_types_of_columns_in_postgresql(sales):
    """Times with and without a zone, text ids and dates keep their types."""
    query = (
        "select user_id::text as user_id, item_id, sold_at as timestamp, "
        "(sold_at at time zone 'UTC') as local, sold_at::date as day from sales limit 10"
    )
    table = query_events(sales, query)
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert kinds["user_id"] == "string"
    assert kinds["timestamp"].startswith("timestamp[us, tz=")
    assert (kinds["local"], kinds["day"]) == ("timestamp[us]", "date32[day]")


def test_errors_are_one_line_without_passwords(sales, shop):
    secret, port = "shop:pa%2Fss", free_port()
    wrong = sales.replace(SECRET, "gues5ed")
    for events, query, message, hidden in (
        (sales, "select * from nowhere", "nowhere", SECRET),
        (sales, "select user_id, item_id from sales", "'timestamp' in events", SECRET),
        (sales, "select nonsense", "nonsense", SECRET),
        (wrong, QUERY, r"shop:\*\*\*@127", "gues5ed"),
        (f"postgresql://{secret}@127.0.0.1:{port}/d", QUERY, r"shop:\*\*\*@127", "pa%2Fss"),
        (f"postgresql://{secret}@127.0.0.1:{port}/d", QUERY, r"shop:\*\*\*@127", "pa/ss"),
        (f"postgresql://shop:pa#ss@127.0.0.1:{port}/d", QUERY, r"shop:\*\*\*@127", "pa#ss"),
        (f"postgresql://shop:p+ss w@127.0.0.1:{port}/d", QUERY, r"shop:\*\*\*@127", "p+ss w"),
        (f"postgresql://shop@127.0.0.1:{port}/d", QUERY, "shop@127.*refused", SECRET),
        ("postgresql://a:pw0rd@b/c", None, r"postgresql://a:\*\*\*@b/c: .*query=", "pw0rd"),
        ("duckdb:none.db", QUERY, r"none\.db", SECRET),
    ):
        with pytest.raises(tt.TrimtabError, match=message) as refusal:
            shop.job(learner=QUICK, events=events, query=query, tz="UTC").run(AS_OF)
        assert hidden not in str(refusal.value)
        assert "\n" not in str(refusal.value)
    with pytest.raises(SettingError, match=r"postgresql://a:\*\*\*@b/c: .*tz="):
        shop.job(learner=QUICK, events="postgresql://a:pw0rd@b/c", query=QUERY).run(AS_OF)
    assert "pw0rd" not in repr(shop.job(events="postgresql://a:pw0rd@b/c"))


def test_duckdb_gives_the_same_biases_as_a_file(shop, bytes_of):
    events = pq.read_table(shop.events)
    assert isinstance(events, pa.Table)
    with duckdb.connect(str(shop.folder / "shop.db")) as connection:
        connection.execute("create table sales as select *, timestamp as sold_at from events")
    from_file = shop.job(learner=QUICK).run(AS_OF)
    address = f"duckdb:{shop.folder / 'shop.db'}"
    job = shop.job(learner=QUICK, events=address, query=QUERY, tz="UTC")
    assert bytes_of(job.run(AS_OF).bias.table()) == bytes_of(from_file.bias.table())
    with pytest.raises(StoreError, match=r"shop\.db.*nowhere"):
        replace(job, query="select * from nowhere").run(AS_OF)


def test_addresses_are_shown_without_passwords():
    for address, shown in (
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p%40ss@h/d", "postgresql://u:***@h/d"),
        ("postgresql://h/d?user=u&password=hidden", "postgresql://h/d?user=u&password=***"),
        ("postgresql://u:a#b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a/b?c@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:p[w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://p:p@h/shop", "postgresql://p:***@h/shop"),
        ("postgresql://h/d?sslpassword=x%2Fy&a=1", "postgresql://h/d?sslpassword=***&a=1"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("duckdb:some/file.db", "duckdb:some/file.db"),
        ("events.parquet", "events.parquet"),
    ):
        assert without_password(address) == shown


def test_a_missing_extra_is_named(shop, trimtab):
    arguments = shop.arguments("--query", QUERY, "--as-of", AS_OF, "--tz", "UTC")
    arguments[arguments.index(shop.events)] = "duckdb:some.db"
    refused = trimtab(*arguments, cwd=shop.folder)
    assert refused.returncode == 2
    assert "DuckDB" in refused.stderr
    assert "pip install trimtab[sql]" in refused.stderr
