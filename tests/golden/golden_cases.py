"""Small fits with everything that a fit may have, and what they give, as numbers to compare.

A case has tables and a learner. `figures` says of a fit what must not change: metrics, forecast,
coefficients, sums over all biases, and the lists that it makes.
`python tests/golden/golden_cases.py` writes them to `figures.json`; do so only in a change that
explains why they differ.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import trimtab as tt
from changed_tables import shuffled
from repeat_shop import NOW, RepeatShop

FIGURES = Path(__file__).with_name("figures.json")
Model = tt.ItemBias | tt.Reranker


class Case(NamedTuple):
    """A learner and its tables; `tonight` and `later` are what its lists are made from, and for."""

    learner: tt.BiasLearner | tt.RerankLearner
    tables: dict[str, pa.Table]
    tonight: pa.Table
    later: pa.Table
    known: pa.Table

    def fit(self) -> Model:
        """Fit in memory."""
        with quiet():
            return self.learner.fit(**self.tables)

    def apply_options(self) -> dict[str, Any]:
        """What `apply` needs besides the lists."""
        personal = isinstance(self.learner, tt.RerankLearner)
        return {"history": self.known, "as_of": NOW} if personal else {}

    def shuffled(self) -> Case:
        """The same with the rows of every table in another order."""
        return self._replace(tables={name: shuffled(own) for name, own in self.tables.items()})


def quiet() -> warnings.catch_warnings:
    """Ignore what Trimtab warns of."""
    return warnings.catch_warnings(action="ignore", category=tt.TrimtabWarning)


def cases() -> dict[str, Callable[[], Case]]:
    """All cases by name, each made when it is needed."""
    learners = {"default": tt.BiasLearner(), "reranker": tt.RerankLearner()}
    made: dict[str, Callable[[], Case]] = {}
    for name, learner in learners.items():
        made[f"{name}, windows"] = lambda learner=learner: _case(learner)
        made[f"{name}, windows, text ids"] = lambda learner=learner: _with_text(_case(learner))
        made[f"{name}, windows, categories, weights"] = lambda learner=learner: _with_more(
            _case(learner)
        )
        hourly = replace(learner, window="1h")
        made[f"{name}, windows of an hour"] = lambda hourly=hourly: _faster(_case(hourly))
        made[f"{name}, one window"] = lambda learner=learner: _newest(_case(learner))
    for metric in ("acc", "map", "ndcg"):
        learner = tt.BiasLearner.paper(metric=metric)
        made[f"paper, {metric}"] = lambda learner=learner: _bare(_newest(_case(learner)))
    return made


def figures(case: Case, model: Model) -> dict[str, float]:
    """What must not change, by name."""
    summary = model.summary
    bias = model.bias if isinstance(model, tt.Reranker) else model
    told = {name: getattr(summary, name) for name in ("forecast", "forecast_low", "forecast_high")}
    found = {
        **{name: value for name, value in told.items() if value is not None},
        "before": bias.summary.before,
        "after": bias.summary.after,
        "objective after": bias.summary.objective_after,
        **{f"kept {name}": value for name, value in bias.summary.kept.items()},
        **{f"coefficient {name}": v for name, v in bias.summary.coefficients.items()},
        "biases": float(np.abs(bias.bias).sum()),
        "biases by place": float((bias.bias * np.arange(len(bias))).sum()),
        "excluded": int(bias.excluded.sum()),
    }
    if isinstance(model, tt.Reranker):
        found |= {f"personal {own.name}": own.value for own in model.learned}
        found["item part"] = float(np.abs(model.item_part).sum())
        found["bought part"] = float(np.abs(model.bought_part).sum())
    with quiet():
        top = model.apply(case.tonight, 10, **case.apply_options())
    found |= {f"list {name}": float(v) for name, v in tt.evaluate(top, case.later).items()}
    found["list scores"] = float(np.abs(top["score"].to_numpy()).sum())
    return found


def _case(learner: tt.BiasLearner | tt.RerankLearner) -> Case:
    shop = RepeatShop(repeats=0.4, drift=0.9, n_users=260, n_items=90)
    tables = {name: getattr(shop, name) for name in ("recs", "recent", "history")}
    return Case(learner, tables, shop.tonight, shop.later, shop.known)


def _newest(case: Case) -> Case:
    """The newest window alone."""
    label = max(case.tables["recs"]["window"].to_pylist())

    def newest(table: pa.Table) -> pa.Table:
        if "window" not in table.column_names:
            return table
        return table.filter(pc.equal(table["window"], label)).drop_columns(["window"])

    return case._replace(tables={name: newest(own) for name, own in case.tables.items()})


def _bare(case: Case) -> Case:
    """Lists and purchases, which is all that the paper's method takes."""
    return case._replace(tables={name: case.tables[name] for name in ("recs", "recent")})


def _with_more(case: Case) -> Case:
    """With categories of items, and weights of users of which some are 0."""
    items, users = (
        sorted(set(case.tables["recs"][name].to_pylist())) for name in ("item_id", "user_id")
    )
    more = {
        "items": pa.table({"item_id": items, "category": [f"c{item % 5}" for item in items]}),
        "weights": pa.table({"user_id": users, "weight": [user % 3 / 2 for user in users]}),
    }
    return case._replace(tables={**case.tables, **more})


def _faster(case: Case) -> Case:
    """Everything 72 times as fast: windows of three days become windows of an hour."""

    def faster(table: pa.Table) -> pa.Table:
        if "timestamp" not in table.column_names:
            return table
        now = int(NOW.timestamp()) * 1_000_000
        times = table["timestamp"].cast(pa.int64()).to_numpy()
        squeezed = pa.array(now - (now - times) // 72).cast(table["timestamp"].type)
        return table.set_column(table.column_names.index("timestamp"), "timestamp", squeezed)

    tables = {name: faster(own) for name, own in case.tables.items()}
    return Case(case.learner, tables, case.tonight, faster(case.later), faster(case.known))


def _with_text(case: Case) -> Case:
    """With ids that are text, in another order than the numbers."""
    tables = {name: _as_text(own) for name, own in case.tables.items()}
    others = (_as_text(own) for own in (case.tonight, case.later, case.known))
    return Case(case.learner, tables, *others)


def _as_text(table: pa.Table) -> pa.Table:
    for name in ("user_id", "item_id"):
        if name in table.column_names:
            text = pa.array([f"{name[0]}{value}" for value in table[name].to_pylist()])
            table = table.set_column(table.column_names.index(name), name, text)
    return table


def compute() -> Iterator[tuple[str, Mapping[str, float]]]:
    """Figures of every case."""
    for name, make in cases().items():
        case = make()
        yield name, figures(case, case.fit())


if __name__ == "__main__":
    FIGURES.write_text(json.dumps(dict(compute()), indent=1) + "\n")
