"""Fits, lists and metrics of users in parts: what is the same for files and on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from operator import add
from typing import Any

from trimtab.checks import require_k, require_rows
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.coded_part import COLUMNS as FIT_COLUMNS
from trimtab.learn.coded_part import sort_tables
from trimtab.metrics.evaluation import finish, judge
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.applying import COLUMNS as APPLY_COLUMNS
from trimtab.models.list_ranking import choose_depth
from trimtab.parts import Parts
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WEIGHT, WINDOW, Table, read_frame

# A table: `names` of columns, `has_rows()`, and `read()` into memory.
# It is opened by its name, what the caller gave, and the columns that it must have and may have.
LargeTable = Any
OpenTable = Callable[[str, Any, Sequence[str], Sequence[str]], LargeTable]
Divide = Callable[[Mapping[str, Any]], AbstractContextManager[Parts]]


def fit(
    open_table: OpenTable, divide: Divide, learner: BiasLearner | RerankLearner,
    start: ItemBias | None, duplicates: str, progress: bool | Progress | None, **given: Any,
) -> ItemBias | Reranker:  # fmt: skip
    """Return what a learner learns from the tables that are given; check the start first."""
    learner.check_start(start)
    tables = _open(open_table, FIT_COLUMNS, given)
    return fit_tables(learner, tables, divide, duplicates, None, start, progress)


def _open(open_table: OpenTable, columns: Mapping[str, Any], given: Any) -> dict[str, Any]:
    return {
        name: open_table(name, source, *columns[name])
        for name, source in given.items()
        if source is not None
    }


def fit_tables(
    learner: BiasLearner | RerankLearner, tables: Mapping[str, LargeTable], divide: Divide,
    duplicates: str, labels: dict[str, str] | None = None, start: ItemBias | None = None,
    progress: bool | Progress | None = None,
) -> ItemBias | Reranker:  # fmt: skip
    """Return what a learner learns from open tables.

    Args:
        learner: the settings.
        tables: by name.
        divide: divides tables by users.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        labels: windows of the tables of lists, if each has its own: "recs" and others by any name.
        start: biases to start from.
        progress: as for `BiasLearner.fit`.
    """
    columns = {name: table.names for name, table in tables.items()}

    def read(name: str) -> Table:
        return read_frame(tables[name].read(), name, *columns[name])

    names, shared, reading = sort_tables(learner, columns, read, duplicates, labels)
    by_user = {name: tables[name] for name in names}
    _refuse_empty(by_user)
    with divide(by_user) as parts:
        return learner.fit_parts(parts, shared, reading, start, progress)


def open_apply(
    open_table: OpenTable, model: Model, k: int, recs: Any, exclude: Any, allowed: Any,
    history: Any, **options: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return the tables of `apply` whose rows belong to users, and the options of `Model.rank`."""
    require_k(k)
    choose_depth(model.item_bias, options["depth"])
    model.refuse_unused(history, options["as_of"])
    given = {"recs": recs, "exclude": exclude, "history": history}
    tables = _open(open_table, APPLY_COLUMNS, given)
    _refuse_empty({"recs": tables["recs"]})
    if allowed is not None:
        options["allowed"] = open_table("allowed", allowed, (ITEM,), ()).read()
    return tables, options


def evaluate(
    open_table: OpenTable, divide: Divide, topk: Any, truth: Any, k: int, weights: Any,
    weight: str | None, baseline: Any, progress: bool | Progress | None = False,
) -> dict[str, float | int]:  # fmt: skip
    """Return what `trimtab.evaluate` returns for the same tables in memory."""
    require_k(k)
    lists = {"topk": topk} if baseline is None else {"topk": topk, "baseline": baseline}
    tables = {name: _open_lists(open_table, name, source) for name, source in lists.items()}
    needed = dict.fromkeys((USER, ITEM) if weight is None else (USER, ITEM, weight))
    tables["truth"] = open_table("truth", truth, tuple(needed), (WINDOW,))
    _refuse_empty(tables)
    by_user = None
    if weights is not None:
        by_user = open_table("weights", weights, (USER, WEIGHT), ()).read()
    judged = []
    with divide(tables) as parts, progress_reporter(progress, label="evaluating") as report:
        for part in parts.map(judge, int(k), weight, True):
            judged.append(part)
            report(1, len(judged), parts.n_parts)
    return finish(reduce(add, judged), by_user, weight)


def _open_lists(open_table: OpenTable, name: str, source: Any) -> Any:
    table = open_table(name, source, (USER, ITEM), (RANK, SCORE, WINDOW))
    if RANK in table.names:  # scores need not be read
        return open_table(name, source, (USER, ITEM), (RANK, WINDOW))
    return table


def _refuse_empty(tables: Mapping[str, LargeTable]) -> None:
    for name, table in tables.items():
        require_rows(name, int(table.has_rows()))
