"""SQL gives the rows, order and scores of `apply`: in DuckDB, and in a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import SUMMARY, make_bias, recs_of
from postgres_server import postgres_server
from shops import run_in_process

pytestmark = [
    pytest.mark.xdist_group("sql"),
    pytest.mark.filterwarnings("ignore:lists of up to", "ignore:k=50"),
]
N_LISTS, N_ITEMS, N_KNOWN, K, DEPTH = 10_000, 40, 30, 6, 8
STEPS = {"additive": 0.125, "log": 0.37}  # many sums are equal; products only of equal biases
SCORES = [1.0, 0.5, 0.25, 2.0, 8.0, 1 / 3, 0.1, -0.5, -1.0, 1e-12, -7.0, 3e100]
NUMBERS = list(range(N_ITEMS))
TEXT = [f"{'zZäÄ_1 é'[n % 8]}{n}" for n in range(N_ITEMS)]
Tables = dict[str, pa.Table]


def make_biases(scale: str, ids: list[Any]) -> tt.ItemBias:
    """Biases of most items: some of them are excluded, some have a bias of 0."""
    steps = np.random.default_rng(3).integers(-4, 5, N_KNOWN).tolist()
    bias = make_bias(
        {item: STEPS[scale] * step for item, step in zip(ids[:N_KNOWN], steps, strict=True)},
        excluded=ids[2:5],
        scale=scale,
        depth=DEPTH,
    )
    return replace(bias, summary=replace(SUMMARY, k=4))


def make_tables(n_lists: int, ids: list[Any]) -> Tables:
    """Lists of 1 to 14 items with many equal scores, pairs to leave out, and items in stock."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 15, n_lists)
    items = np.concatenate([rng.permutation(N_ITEMS)[:n] for n in lengths]).tolist()
    scores = rng.choice(SCORES, len(items))
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

    def __init__(self) -> None:
        self.connection = duckdb.connect()

    def write(self, name: str, table: pa.Table) -> None:
        self.connection.register("given", table)
        self.connection.execute(f'create or replace table "{name}" as from given')

    def run(self, query: str) -> pa.Table:
        return self.connection.sql(query).to_arrow_table()


class Postgres:
    """Tables in a real server, and queries of them."""

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


def require_same(found: pa.Table, expected: pa.Table, exact: bool) -> None:
    """Rows, order and scores; log scores are computed in another way, and differ in last digits."""
    assert found.column_names == expected.column_names
    for name in ("user_id", "item_id", "rank"):
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    scores, of_apply = found["score"].to_numpy(), expected["score"].to_numpy()
    np.testing.assert_allclose(scores, of_apply, rtol=0 if exact else 1e-12, atol=0)


def write_all(database: DuckDb | Postgres, tables: Tables, bias: tt.ItemBias) -> None:
    for name, table in {**tables, "biases": bias.table()}.items():
        database.write(name, table)


# 10,000 lists ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", STEPS)
def test_a_query_gives_what_apply_gives(database, scale):
    """Equal scores, unknown items, excluded ones, pairs and items that may not be shown."""
    bias, tables = make_biases(scale, NUMBERS), make_tables(N_LISTS, NUMBERS)
    write_all(database, tables, bias)
    expected = bias.apply(tables["lists"], K, exclude=tables["seen"], allowed=tables["stock"])
    assert expected.num_rows > 4 * N_LISTS
    found = database.run(bias.sql(K, exclude="seen", allowed="stock"))
    require_same(found, expected, scale == "additive")


@pytest.mark.parametrize("scale", STEPS)
@pytest.mark.parametrize("ids", [NUMBERS, TEXT], ids=["numbers", "text"])
def test_every_option_gives_what_apply_gives(database, scale, ids):
    bias, tables = make_biases(scale, ids), make_tables(150, ids)
    write_all(database, tables, bias)
    for depth, options, k in (
        (3, {}, 1), ("all", {"exclude": "seen"}, 12), (None, {"allowed": "stock"}, 2), (3, {}, 12),
        (None, {"exclude": "seen"}, 3),
    ):  # fmt: skip
        expected = bias.apply(
            tables["lists"], k, depth=depth, **{name: tables[t] for name, t in options.items()}
        )
        query = bias.sql(k, depth=depth, **options)
        require_same(database.run(query), expected, scale == "additive")


def test_numbers_of_other_types(database):
    """Scores in 32 bits are those of the table, not rounded again."""
    recs = recs_of([(1, 0.1), (2, 0.3), (3, 0.2)])
    single = recs.set_column(2, "score", recs["score"].cast(pa.float32()))
    bias = make_bias({1: 0.25, 2: -0.1})
    write_all(database, {"lists": single}, bias)
    require_same(database.run(bias.sql()), bias.apply(single, 3), exact=True)


# Names -------------------------------------------------------------------------------------------


def test_any_name_is_quoted(database):
    """Names with quotes, spaces and SQL in them, and names that the query uses itself."""
    bias = make_bias({1: 0.5, 2: 0.0, 9: 1.0}, excluded=[9])
    recs = recs_of([(1, 1.0), (2, 1.25), (9, 3.0)], [(2, 0.5), (3, 0.75)])
    names = ('a"b; drop table lists', "item", "place", "list_user")
    columns = dict(zip(("user", "item", "score", "rank"), names, strict=True))
    database.write("trimtab_entries", recs.rename_columns(names[:3]))
    database.write("the biases", bias.table())
    query = bias.sql(2, lists="trimtab_entries", biases="the biases", columns=columns)
    found = database.run(query)
    assert found.column_names == list(names)
    expected = bias.apply(recs, 2)
    require_same(found.rename_columns(expected.column_names), expected, exact=True)


# What is refused ---------------------------------------------------------------------------------


REFUSED = [
    ({"k": 0}, "k=0: must be at least 1"),
    ({"depth": "some"}, "depth='some': must be a whole number"),
    ({"lists": ""}, "lists='': must be a name"),
    ({"biases": "a..b"}, "biases='a..b': must be a name, without line breaks or empty parts"),
    ({"allowed": "a\nb"}, "allowed='a.nb': must be a name"),
    ({"columns": {"item": "a\nb"}}, "columns='a.nb': must be a name"),
    ({"columns": {"category": "c"}}, "columns=.*category.* must give user_id, item_id, score"),
    ({"columns": {"user": "rank"}}, "columns=.*rank.* one name each, all different"),
    ({"columns": {"item": ["a", "b"]}}, "columns=.*'b'.* one name each"),
    ({"made": {"scale": "list"}}, "scale='list' cannot be applied by .*learn with scale='log'"),
    ({"made": {"unlisted": "zero"}}, "unlisted='zero' cannot be applied by .*use bias.apply"),
]


def test_what_no_query_can_do_is_refused():
    for options, message in REFUSED:
        with pytest.raises(tt.SettingError, match=message) as refusal:
            make_bias({7: 0.5}, **(options.pop("made", {"scale": "log"}))).sql(**options)
        assert "\n" not in str(refusal.value)


# On the command line -----------------------------------------------------------------------------


def test_the_command_writes_the_query_or_refuses_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bias = make_biases("log", TEXT)
    bias.save(tmp_path / "biases")
    command = ("export", "--model", "biases", "--lists")
    for lists, out, words in (
        ("a..b", "top.sql", "--lists a..b: must be a name"),
        ("a..b", "boosts.csv", "--lists a..b: needs --out QUERY.sql"),
    ):
        done = run_in_process(*command, lists, "--out", out)
        assert done.returncode == 2
        assert done.stderr.startswith(f"trimtab: {words}")
        assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["biases"]
    done = run_in_process(
        *command, "shop.lists", "--out", "new/top.sql", "--k", 5, "--exclude", "seen", "--columns",
        "user=customer,item=sku",
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "wrote new/top.sql\n", "")
    written = (tmp_path / "new" / "top.sql").read_text()
    assert 'from "shop"."lists" as l' in written
    assert written == bias.sql(
        5, lists="shop.lists", exclude="seen", columns={"user": "customer", "item": "sku"}
    )
