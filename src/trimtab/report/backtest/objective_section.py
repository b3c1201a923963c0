"""The section about objectives: what is learned for one metric and judged by all of them."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report.backtest.overview import Lift, Overview, Row, mean_by, select_rows
from trimtab.report.blocks import Block, Cell, Section, Table
from trimtab.report.words import count, metric_name, percent, share

_FAINTEST = 0.005  # a smaller lift gets no tint


def objectives_section(view: Overview) -> Section | None:
    """Return lifts by objective and metric, the number of biases, and their overlap."""
    engine = view.engines[0]
    learned = [row for row in view.lifts if row.objective and row.engine == engine]
    fits = select_rows(view.results.table("fits"), engine=engine)
    pairs = select_rows(view.results.table("overlap"), engine=engine)
    tables: list[Block] = []
    if any(row.objective != row.metric for row in learned):
        tables += _lift_tables(view, learned)
    if fits:
        tables.append(_sizes_table(view, fits))
    if pairs:
        tables.append(_overlap_table(view, pairs))
    if not tables:
        return None
    compares = len({row.objective for row in learned}) > 1
    title = f"{'The metric to learn for' if compares else 'Items with a bias'} ({engine})"
    return Section("objectives", title, [describe_objectives(learned)], tables)


def describe_objectives(learned: Sequence[Lift]) -> str:
    """Return how often it is best to learn for the metric that judges."""
    means = mean_by([vars(row) for row in learned], ("method", "metric", "objective"), "lift")
    ranks = []
    for (method, metric, objective), mean in means.items():
        others = [own for key, own in means.items() if key[:2] == (method, metric)]
        if objective == metric and len(others) > 1:
            ranks.append(sum(own > mean for own in others))
    if not ranks:
        return "How many items have a bias at work, and how many are excluded."
    return (
        f"Learning for the metric that judges is best in {ranks.count(0)} of {len(ranks)} "
        f"comparisons, one per method and metric."
    )


def _lift_tables(view: Overview, learned: Sequence[Lift]) -> list[Table]:
    tables = []
    for method in dict.fromkeys(row.method for row in learned):
        for group in view.date_groups:
            own = [row for row in learned if row.method == method and row.date in group.dates]
            caption = f"{view.names[method].long}, {group.title}: lift"
            tables.append(_lift_table(view, caption, own))
    return tables


def _lift_table(view: Overview, caption: str, rows: Sequence[Lift]) -> Table:
    means = mean_by([vars(row) for row in rows], ("objective", "metric"), "lift")
    largest = max(map(abs, means.values()), default=0.0)
    body = []
    for objective in view.metrics:
        lifts = [means.get((objective, metric)) for metric in view.metrics]
        cells = [Cell(percent(lift), kind=choose_tint(lift, largest)) for lift in lifts]
        body.append([Cell(metric_name(objective)), *cells])
    columns = ["learned for", *(view.name_metric(metric) for metric in view.metrics)]
    groups = [("", 1), ("judged by", len(view.metrics))]
    return Table(caption, columns, body, groups=groups, kind="small")


def choose_tint(lift: float | None, largest: float) -> str:
    """Return the class of a cell by its share of the table's largest lift."""
    if lift is None or abs(lift) < _FAINTEST:
        return "heat"
    level = min(3, 1 + int(3 * abs(lift) / largest))
    return f"heat {'up' if lift > 0 else 'down'}-{level}"


def _sizes_table(view: Overview, fits: Sequence[Row]) -> Table:
    counts = [mean_by(fits, ("method", "objective"), name) for name in ("n_biases", "n_excluded")]
    methods = [m for m in view.methods if any(row["method"] == m for row in fits)]
    body = [
        [Cell(metric_name(objective)),
         *(Cell(count(means.get((method, objective)))) for method in methods for means in counts)]
        for objective in dict.fromkeys(row["objective"] for row in fits)
    ]  # fmt: skip
    caption = f"Items with a bias at work, and excluded items{view.mean_note}"
    columns = ["learned for", *["biases at work", "excluded"] * len(methods)]
    groups = [("", 1), *((view.names[method].long, 2) for method in methods)]
    return Table(caption, columns, body, groups=groups, kind="small")


def _overlap_table(view: Overview, pairs: Sequence[Row]) -> Table:
    shares = mean_by(pairs, ("first", "second", "method"), "share")
    methods = [m for m in view.methods if any(row["method"] == m for row in pairs)]
    kinds = dict.fromkeys((row["first"], row["second"]) for row in pairs)
    body = [
        [Cell(f"{metric_name(first)} and {metric_name(second)}"),
         *(Cell(share(shares.get((first, second, method)))) for method in methods)]
        for first, second in kinds if first != second
    ]  # fmt: skip
    caption = (
        f"Overlap: items with a bias at work under both objectives, as a share of items with one "
        f"under either{view.mean_note}"
    )
    columns = ["learned for", *(view.names[method].long for method in methods)]
    return Table(caption, columns, body, kind="small")
