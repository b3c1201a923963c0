"""What only the paper's experiments need: on the page of the demo.

What is recommended against what is bought, the metric to learn for, and best sellers by month; and
how much history an engine needs, on any page whose plan asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.report.backtest.overview import SELLERS, TEXT, Overview, Row, mean_by, where
from trimtab.report.page import Section


def coverage_section(view: Overview) -> Section | None:
    """Return how many best sellers are recommended, and the KL divergence from purchases."""
    tables = []
    for name, column, value in (("coverage", "size", "covered"), ("divergence", "engine", "kl")):
        objective = ("", view.objective_of(name))
        rows = [row for row in view.select(name) if (row["objective"] or "") in objective]
        if name == "coverage":
            rows = where(rows, engine=view.engine)
        if rows:
            columns = sorted({row[column] for row in rows})
            means = mean_by(rows, ("method", column), value)
            names = _name_methods(view, rows)
            tables.append(TEXT.table(f"{name}_table", view, names, columns, means))
    return Section("coverage", TEXT.paragraphs("coverage", view), tables) if tables else None


def _name_methods(view: Overview, rows: Iterable[Row]) -> dict[str, str]:
    """Return the names of the methods of some rows; of best sellers, only those that are ranked."""
    found = {row["method"] for row in rows}
    found -= set(SELLERS) - {record.method for record in view.ranked(view.engine)}
    return {method: name.short for method, name in view.names.items() if method in found}


def objectives_section(view: Overview) -> Section | None:
    """Return lifts by the metric that was learned for and the metric that judges."""
    learned = [row for row in where(view.lifts, engine=view.engine) if row["objective"]]
    if all(row["objective"] == row["metric"] for row in learned):
        return None
    metrics = {metric: view.name_metric(metric) for metric in view.metrics}
    tables = []
    for method in _name_methods(view, learned):
        means = mean_by(where(learned, method=method), ("objective", "metric"), "lift")
        tables.append(TEXT.table("objectives_table", view, method, metrics, means))
    return Section("objectives", TEXT.paragraphs("objectives", view), tables)


def sellers_section(view: Overview) -> Section | None:
    """Return the ranks of the best sellers by month."""
    rows = view.rows("sellers")
    ranks = mean_by(rows, ("item_id", "month"), "rank")
    if not ranks:
        return None
    names = {row["item_id"]: row["name"] or row["item_id"] for row in rows}
    months = sorted({row["month"] for row in rows})
    table = TEXT.table("sellers_table", names, months, ranks, folded=True)
    return Section("sellers", TEXT.paragraphs("sellers"), [table])


def windows_section(view: Overview) -> Section | None:
    """Return engines trained on the last days only, relative to the shortest window."""
    rows = view.rows("windows")
    metric = view.metric if where(rows, metric=view.metric) else (rows or [{}])[0].get("metric")
    means = mean_by(where(rows, metric=metric or ""), ("engine", "days"), "relative")
    if not means:
        return None
    engines = {engine: engine for engine, _ in means}
    lengths = sorted({days for _, days in means}, key=lambda days: days or float("inf"))
    best = []
    for engine in engines:
        own = {days: means[engine, days] for days in lengths if (engine, days) in means}
        longest = max(own, key=own.__getitem__)
        best.append((engine, longest, own[longest]))
    table = TEXT.table("windows_table", view, engines, lengths, means)
    return Section("windows", TEXT.paragraphs("windows", metric, best), [table])
