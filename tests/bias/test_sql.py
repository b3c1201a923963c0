"""SQL gives the rows, order and scores of `apply`: in DuckDB, and in a real PostgreSQL server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot

import trimtab as tt
from made_biases import SUMMARY, make_bias, recs_of
from postgres_server import postgres_server
from trimtab.bias.export.sql_names import DIALECTS

pytestmark = [
    pytest.mark.xdist_group("sql"),
    pytest.mark.filterwarnings("ignore:lists of up to", "ignore:k=50"),
]
N_LISTS, N_ITEMS, N_KNOWN, K, DEPTH = 10_000, 40, 30, 6, 8
# With scores that are powers of two and biases that are multiples of ln 2, much nearly ties.
STEPS = {"additive": 0.125, "log": math.log(2.0), "list": 0.25, "zero": 0.125}
SCORES = [0.0, 1.0, 0.5, 0.25, 2.0, 8.0, 1 / 3, 0.1, -0.5, -1.0, 1e-12, -7.0, 3e100]
NUMBERS = list(range(N_ITEMS))
TEXT = [f"{'zZäÄ_1 é'[n % 8]}{n}" for n in range(N_ITEMS)]
Tables = dict[str, pa.Table]


def make_biases(mode: str, ids: list[Any]) -> tt.ItemBias:
    """Biases of most items: some of them are excluded, some have a bias of 0."""
    steps = np.random.default_rng(3).integers(-4, 5, N_KNOWN).tolist()
    bias = make_bias(
        {item: STEPS[mode] * step for item, step in zip(ids[:N_KNOWN], steps, strict=True)},
        excluded=ids[2:5],
        scale="additive" if mode == "zero" else mode,
        unlisted="zero" if mode == "zero" else "never",
        depth=None if mode == "zero" else DEPTH,
    )
    return replace(bias, summary=replace(SUMMARY, k=4))


def make_tables(n_lists: int, ids: list[Any], mode: str) -> Tables:
    """Lists of 1 to 14 items with many equal scores, pairs to leave out, and items in stock."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 15, n_lists)
    items = np.concatenate([rng.permutation(N_ITEMS)[:n] for n in lengths]).tolist()
    scores = rng.choice([s for s in SCORES if s >= 0 or mode != "zero"], len(items))
    pairs = rng.integers(0, [n_lists, N_ITEMS], (2 * n_lists, 2))
    return {
        "lists": pa.table(
            {
                "user_id": np.repeat(np.arange(n_lists), lengths),
                "item_id": [ids[item] for item in items],
                "score": scores,
            }
        ),
        "seen": pa.table({"user_id": pairs[:, 0], "item_id": [ids[n] for n in pairs[:, 1]]}),
        "stock": pa.table({"item_id": [*ids[:20], *ids[22:], ids[0], ids[0]]}),
    }


class DuckDb:
    """Tables in memory, and queries of them."""

    name = "duckdb"

    def __init__(self) -> None:
        self.connection = duckdb.connect()

    def write(self, name: str, table: pa.Table) -> None:
        self.connection.register("given", table)
        self.connection.execute(f'create or replace table "{name}" as from given')

    def run(self, query: str) -> pa.Table:
        return self.connection.sql(query).to_arrow_table()


class Postgres:
    """Tables in a real server, and queries of them."""

    name = "postgres"

    def __init__(self, address: str) -> None:
        from adbc_driver_postgresql import dbapi

        self.connection = dbapi.connect(address)

    def write(self, name: str, table: pa.Table) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(f'drop table if exists "{name}"')
            cursor.adbc_ingest(name, table)
            cursor.execute(f'analyze "{name}"')

    def run(self, query: str) -> pa.Table:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def database(request) -> Iterator[DuckDb | Postgres]:
    if request.param == "duckdb":
        yield DuckDb()
        return
    with postgres_server() as address:
        postgres = Postgres(address)
        yield postgres
        postgres.connection.close()


def require_same(found: pa.Table, expected: pa.Table) -> None:
    """Rows, order and every bit of the scores."""
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


def write_all(database: DuckDb | Postgres, tables: Tables, bias: tt.ItemBias) -> None:
    for name, table in {**tables, "biases": bias.table()}.items():
        database.write(name, table)


# 10,000 lists ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", STEPS)
def test_a_query_gives_what_apply_gives(database, mode):
    """Equal scores, unknown items, excluded ones, pairs and items that may not be shown."""
    bias, tables = make_biases(mode, NUMBERS), make_tables(N_LISTS, NUMBERS, mode)
    write_all(database, tables, bias)
    expected = bias.apply(tables["lists"], K, exclude=tables["seen"], allowed=tables["stock"])
    assert expected.num_rows > 4 * N_LISTS
    found = database.run(bias.sql(database.name, K, exclude="seen", allowed="stock"))
    require_same(found, expected)


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("ids", [NUMBERS, TEXT], ids=["numbers", "text"])
def test_every_option_gives_what_apply_gives(database, mode, ids):
    bias, tables = make_biases(mode, ids), make_tables(150, ids, mode)
    write_all(database, tables, bias)
    hidden = [{}, {"exclude": "seen"}, {"allowed": "stock"}]
    for depth, strength, options, k in zip(
        [3, "all", None, 3, None], [1, 0.3, 0, 0.3, 1], [*hidden, *hidden], [1, 12, 2, 12, 3],
        strict=False,
    ):  # fmt: skip
        deepest = None if mode == "zero" else depth
        expected = bias.with_strength(strength).apply(
            tables["lists"], k, depth=deepest, **{name: tables[t] for name, t in options.items()}
        )
        query = bias.sql(database.name, k, depth=deepest, strength=strength, **options)
        require_same(database.run(query), expected)


def extreme_lists(far: int) -> pa.Table:
    """Powers of two and their neighbours, from 2^-far to 2^far; negative ones; zeros."""
    powers = [2.0**n for n in (-far, -52, -1, 0, 1, 52, far)]
    near = [np.nextafter(p, p * side).item() for p in powers for side in (0.5, 2)]
    scores = [*powers, *near, 0.0]
    return recs_of(
        list(enumerate([*scores, *(-s for s in scores if s)])),
        list(enumerate(scores[::-1])),
        [(n, 0.0) for n in range(5)],
        [(n, -s) for n, s in enumerate(scores)],
    )


@pytest.mark.parametrize(("mode", "far"), [("additive", 1000), ("log", 1000), ("list", 400)])
def test_extreme_scores(database, mode, far):
    """On the scale of a list, scores times 2^2000 of its gap are beyond PostgreSQL's numbers."""
    recs = extreme_lists(far)
    bias = make_bias({n: STEPS[mode] * (n % 7 - 3) for n in range(50)}, scale=mode)
    write_all(database, {"lists": recs}, bias)
    require_same(database.run(bias.sql(database.name, 50)), bias.apply(recs, 50))


def test_learned_biases(database, data):
    recs = data.recs()
    for scale, unlisted in (("log", "never"), ("list", "never"), ("additive", "zero")):
        learner = tt.BiasLearner(k=5, scale=scale, unlisted=unlisted)
        bias = learner.fit(recs, data.recent_events())
        write_all(database, {"lists": recs}, bias)
        require_same(database.run(bias.sql(database.name, 5)), bias.apply(recs, 5))


def test_numbers_of_other_types(database):
    """Scores in 32 bits are those of the table, not rounded again."""
    recs = recs_of([(1, 0.1), (2, 0.3), (3, 0.2)])
    single = recs.set_column(2, "score", recs["score"].cast(pa.float32()))
    bias = make_bias({1: 0.25, 2: -0.1}, scale="log")
    write_all(database, {"lists": single}, bias)
    require_same(database.run(bias.sql(database.name)), bias.apply(single, 3))


# Names -------------------------------------------------------------------------------------------


def test_any_name_is_quoted(database):
    """Names with quotes, spaces and SQL in them, and names that the query uses itself."""
    bias = make_bias({1: 0.5, 2: 0.0, 9: 1.0}, excluded=[9])
    recs = recs_of([(1, 1.0), (2, 1.25), (9, 3.0)], [(2, 0.5), (3, 0.75)])
    columns = {
        "user": 'a"b; drop table lists',
        "item": "item",
        "score": "place",
        "rank": "list_user",
    }
    own = recs.rename_columns([columns["user"], columns["item"], columns["score"]])
    biases = bias.table().select(["item_id", "bias", "excluded"])
    biases = biases.rename_columns(["select", "part", "b'c"])
    database.write("trimtab_entries", own)
    database.write("the biases", biases)
    query = bias.sql(
        database.name, 2, lists="trimtab_entries", biases="the biases", columns=columns,
        bias_columns={"item": "select", "bias": "part", "excluded": "b'c"},
    )  # fmt: skip
    found = database.run(query)
    assert found.column_names == [columns[name] for name in ("user", "item", "score", "rank")]
    names = ["user_id", "item_id", "score", "rank"]
    require_same(found.rename_columns(names), bias.apply(recs, 2))


def test_parts_of_names():
    bias = make_bias({1: 0.5})
    assert 'from "shop"."lists" as l' in bias.sql("postgres", lists="shop.lists")
    assert "from `my-project`.`shop`.`lists` as l" in bias.sql(
        "bigquery", lists="my-project.shop.lists"
    )
    assert "`a\\`b\\\\`" in bias.sql("bigquery", columns={"user": "a`b\\"})
    snowflake = bias.sql("snowflake", lists='Shop.lists."exact"', columns={"item": "SKU"})
    assert 'from "Shop"."LISTS"."exact" as l' in snowflake
    assert 'l."USER_ID" as list_user, l."SKU" as item' in snowflake


# BigQuery and Snowflake cannot run here: a parser reads what they would get ----------------------


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_parses(dialect, mode):
    bias = make_biases(mode, TEXT)
    for options in ({}, {"exclude": "seen", "allowed": "stock"}):
        (parsed,) = sqlglot.parse(bias.sql(dialect, 7, **options), read=dialect)
        assert [column.alias.lower() for column in parsed.selects] == [
            "user_id", "item_id", "score", "rank",
        ]  # fmt: skip
        tables = {table.name.lower() for table in parsed.find_all(sqlglot.exp.Table)}
        known = {cte.alias.lower() for cte in parsed.find_all(sqlglot.exp.CTE)}
        assert tables - known == {"lists", "biases", *options.values()}


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
def test_translated_into_duckdb_it_gives_the_same(dialect, mode):
    """What the parser understood, written for DuckDB, still gives what `apply` gives."""
    bias, tables = make_biases(mode, NUMBERS), make_tables(200, NUMBERS, mode)
    database = DuckDb()
    write_all(database, tables, bias)
    query = bias.sql(dialect, K, exclude="seen")
    (translated,) = sqlglot.transpile(query, read=dialect, write="duckdb")
    found = database.run(translated)
    expected = bias.apply(tables["lists"], K, exclude=tables["seen"])
    require_same(found.rename_columns([n.lower() for n in found.column_names]), expected)


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "oracle"}, r"dialect='oracle': must be one of duckdb, postgres"),
        ({"k": 0}, "k=0: must be at least 1"),
        ({"depth": "some"}, "depth='some': must be a whole number"),
        ({"strength": 2}, "strength=2: must be a finite number, between 0 and 1"),
        ({"lists": ""}, "lists='': must be a name"),
        ({"biases": "a..b"}, "biases='a..b': must be a name, without line breaks or empty parts"),
        ({"allowed": "a\nb"}, "allowed='a.nb': must be a name"),
        ({"columns": {"item": "a\nb"}}, "columns='a.nb': must be a name"),
        ({"columns": {"category": "c"}}, "columns: 'category' is not used; use user_id"),
        ({"columns": {"user": "rank"}}, "columns: rank, item_id, score, rank must be different"),
        ({"bias_columns": {"user": "u"}}, "bias_columns: 'user_id' is not used; use item_id"),
        ({"columns": {"price": "p"}}, "columns: 'price' is not used"),
        ({"columns": {"item": ["a", "b"]}}, "columns: 'item_id' has 2 names; give one"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(tt.SettingError, match=message) as refusal:
        make_bias({7: 0.5}, scale="log").sql(**{"dialect": "duckdb", **options})
    assert "\n" not in str(refusal.value)


def test_depth_and_unlisted_items_do_not_go_together():
    with pytest.raises(tt.SettingError, match="depth=5: does not work with unlisted='zero'"):
        make_biases("zero", NUMBERS).sql("duckdb", depth=5)


# On the command line -----------------------------------------------------------------------------


def test_the_command_prints_the_query(trimtab, tmp_path):
    bias = make_biases("log", TEXT)
    bias.save(tmp_path / "biases")
    done = trimtab(
        "sql", "--bias", "biases", "--dialect", "snowflake", "--k", 5, "--lists", "shop.lists",
        "--exclude", "seen", "--columns", "user=customer,item=sku", "--bias-columns", "bias=b",
        "--strength", 0.5, "--depth", "all", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == bias.sql(
        "snowflake", 5, lists="shop.lists", exclude="seen", strength=0.5, depth="all",
        columns={"user": "customer", "item": "sku"}, bias_columns={"bias": "b"},
    )  # fmt: skip


def test_the_command_refuses_in_one_sentence(trimtab, tmp_path):
    make_biases("log", TEXT).save(tmp_path / "biases")
    done = trimtab("sql", "--bias", "biases", "--dialect", "oracle", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("trimtab: dialect='oracle': must be one of duckdb, postgres")
    assert done.stderr.count("\n") == 1
