"""Events from databases: a real PostgreSQL server, and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator

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


def test_postgresql_on_the_command_line(sales, shop):
    options = ("--query", QUERY, "--as-of", AS_OF, "--tz", "UTC", "--set", "method=ascent")
    arguments = shop.arguments(*options)
    arguments[arguments.index(shop.events)] = sales
    done = run_in_process(*arguments)
    assert done.returncode == 0, done.stderr
    assert "version 1" in done.stdout


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from nowhere", "nowhere"),
        ("select user_id, item_id from sales", "'timestamp' in events"),
        ("select nonsense", "nonsense"),
    ],
)
def test_errors_of_the_server_are_one_line(sales, shop, query, message):
    with pytest.raises(tt.TrimtabError, match=message) as refusal:
        shop.job(learner=QUICK, events=sales, query=query, tz="UTC").run(AS_OF)
    assert "\n" not in str(refusal.value)
    assert SECRET not in str(refusal.value)


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


def test_a_wrong_password_is_not_repeated(sales, shop):
    wrong = sales.replace(SECRET, "gues5ed")
    with pytest.raises(StoreError, match=r"shop:\*\*\*@127") as refusal:
        shop.job(learner=QUICK, events=wrong, query=QUERY, tz="UTC").run(AS_OF)
    assert "gues5ed" not in str(refusal.value)


@pytest.mark.parametrize("password", ["pa%2Fss", "pa#ss", "p+ss word"])
def test_a_missing_server_is_named_without_the_password(shop, password):
    address = f"postgresql://shop:{password}@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(StoreError, match=r"shop:\*\*\*@127") as refusal:
        shop.job(learner=QUICK, events=address, query=QUERY, tz="UTC").run(AS_OF)
    for form in (password, password.replace("%2F", "/")):
        assert form not in str(refusal.value)


def test_a_missing_server_is_named(shop):
    address = f"postgresql://shop@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(StoreError, match=r"shop@127.*refused"):
        shop.job(learner=QUICK, events=address, query=QUERY, tz="UTC").run(AS_OF)


def test_a_database_needs_a_query(shop):
    with pytest.raises(SettingError, match=r"postgresql://a:\*\*\*@b/c: .*query="):
        shop.job(learner=QUICK, events="postgresql://a:pw0rd@b/c", tz="UTC").run(AS_OF)
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
    from_base = shop.job(learner=QUICK, events=address, query=QUERY, tz="UTC")
    assert bytes_of(from_base.run(AS_OF).bias.table()) == bytes_of(from_file.bias.table())
    with pytest.raises(StoreError, match=r"shop\.db.*nowhere"):
        shop.job(learner=QUICK, events=address, query="select * from nowhere", tz="UTC").run(AS_OF)
    with pytest.raises(StoreError, match=r"none\.db"):
        shop.job(learner=QUICK, events="duckdb:none.db", query=QUERY, tz="UTC").run(AS_OF)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
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
    ],
)
def test_addresses_are_shown_without_passwords(address, shown):
    assert without_password(address) == shown


def test_a_missing_extra_is_named(shop, trimtab):
    arguments = shop.arguments("--query", QUERY, "--as-of", AS_OF, "--tz", "UTC")
    arguments[arguments.index(shop.events)] = "duckdb:some.db"
    refused = trimtab(*arguments, cwd=shop.folder)
    assert refused.returncode == 2
    assert "DuckDB" in refused.stderr
    assert "pip install trimtab[sql]" in refused.stderr
