"""Sections about lifts: the headline, methods, engines, and what biases were learned for."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.experiments.results import BASELINE
from trimtab.report.backtest import sentences
from trimtab.report.backtest.figures import HARMLESS, Lift, Overview, Row, mean_by, select, spread
from trimtab.report.backtest.lift_blocks import (
    alone_table,
    by_date,
    engine_cases,
    lift_blocks,
    method_cases,
)
from trimtab.report.blocks import Block, Cell, Section, Table, Tile, Tiles
from trimtab.report.words import (  # fmt: skip
    NOTHING,
    count,
    counted,
    day,
    interval,
    metric_name,
    percent,
    share,
)

_FAINTEST = 0.005  # a lift below this is not tinted


def headline(view: Overview) -> Section:
    """What was done, and how the default settings fared."""
    tiles: list[Tile] = []
    if view.featured is not None:
        tiles = [_lift_tile(view, view.featured, metric) for metric in view.metrics]
        tiles += _harm_tiles(view, view.featured)
    text = [sentences.outcome(view), sentences.what_was_done(view)]
    return Section("headline", "In short", text, [Tiles(tiles)] if tiles else [])


def _lift_tile(view: Overview, method: str, metric: str) -> Tile:
    rows = view.judged(engine=view.engines[0], method=method, metric=metric)
    label = f"{metric_name(metric, view.cutoff)}, {view.engines[0]}"
    found = spread(rows)
    if found is None:
        return Tile(label, NOTHING, "no lift to show")
    kind = "gain" if found.mean > 0 else "loss" if found.mean < 0 else ""
    if found.n_dates == 1:
        return Tile(label, percent(found.mean), interval(rows[0].low, rows[0].high), kind)
    note = f"mean of {found.n_dates} dates; worst {percent(found.worst)}"
    return Tile(label, percent(found.mean), note, kind)


def _harm_tiles(view: Overview, method: str) -> list[Tile]:
    lifts = [row.lift for row in view.judged(method=method) if row.lift is not None]
    if not lifts:
        return []
    n_harmless = sum(lift >= HARMLESS for lift in lifts)
    note = "lifts at or above −0.5 %, over all dates, engines and metrics"
    return [Tile("without harm", f"{n_harmless} of {len(lifts)}", note)]


def methods_section(view: Overview) -> Section | None:
    """Each method against the first engine alone."""
    if not view.rivals:
        return None
    engine = view.engines[0]
    blocks = lift_blocks(view, method_cases(view, engine), ["method"])
    if not view.few:
        blocks += by_date(view, engine)
    title = f"Each method over the engine alone ({engine})"
    return Section("methods", title, sentences.methods(view), blocks)


def engines_section(view: Overview) -> Section | None:
    """The biases over every engine, and engines alone; nothing if there is only one."""
    if len(view.all_engines) == 1:
        return None
    blocks: list[Block] = []
    if view.biased and len(view.engines) > 1:
        blocks += lift_blocks(view, engine_cases(view), ["engine", "method"])
    if any(row.method == BASELINE for row in view.lifts):
        blocks.append(alone_table(view))
    return Section("engines", "The engines", sentences.engines(view), blocks)


def objectives_section(view: Overview) -> Section | None:
    """Learned for one metric, judged by all; how many biases, and how far they overlap."""
    engine = view.engines[0]
    learned = [row for row in view.lifts if row.objective and row.engine == engine]
    tables: list[Block] = []
    if any(row.objective != row.metric for row in learned):
        tables += _heat_tables(view, learned)
    tables += _fit_tables(view, engine)
    if not tables:
        return None
    title = f"What biases are learned for ({engine})"
    return Section("objectives", title, sentences.objectives(view, learned), tables)


def _heat_tables(view: Overview, learned: Sequence[Lift]) -> list[Table]:
    tables = []
    for method in dict.fromkeys(row.method for row in learned):
        rows = [row for row in learned if row.method == method]
        name = view.names[method].long
        if not view.few:
            caption = f"{name}: mean lift of {counted(len(view.dates), 'date')}"
            tables.append(_heat_table(view, caption, rows))
            continue
        for date in view.dates:
            dated = [row for row in rows if row.date == date]
            tables.append(_heat_table(view, f"{name}, {day(date)}: lift", dated))
    return tables


def _heat_table(view: Overview, caption: str, rows: Sequence[Lift]) -> Table:
    means = {
        (objective, metric): spread(
            r for r in rows if (r.objective, r.metric) == (objective, metric)
        )
        for objective in view.metrics
        for metric in view.metrics
    }
    lifts = {key: found.mean if found else None for key, found in means.items()}
    largest = max((abs(lift) for lift in lifts.values() if lift is not None), default=0.0)
    body = [
        [
            Cell(metric_name(objective)),
            *(
                Cell(percent(lifts[objective, m]), kind=heat(lifts[objective, m], largest))
                for m in view.metrics
            ),
        ]
        for objective in view.metrics
    ]
    columns = ["learned for", *(metric_name(metric, view.cutoff) for metric in view.metrics)]
    groups = [("", 1), ("judged by", len(view.metrics))]
    return Table(caption, columns, body, groups=groups, kind="small")


def heat(lift: float | None, largest: float) -> str:
    """The class of a cell by how much of the table's largest change its lift is."""
    if lift is None or abs(lift) < _FAINTEST:
        return "heat"
    level = min(3, 1 + int(3 * abs(lift) / largest))
    return f"heat {'up' if lift > 0 else 'down'}-{level}"


def _fit_tables(view: Overview, engine: str) -> list[Table]:
    fits = select(view.results.table("fits"), engine=engine)
    pairs = select(view.results.table("overlap"), engine=engine)
    tables = []
    if fits:
        tables.append(_sizes_table(view, fits))
    if pairs:
        tables.append(_overlap_table(view, pairs))
    return tables


def _sizes_table(view: Overview, fits: Sequence[Row]) -> Table:
    counts = [mean_by(fits, ("method", "objective"), name) for name in ("n_biases", "n_excluded")]
    methods = list(dict.fromkeys(row["method"] for row in fits))
    body = [
        [Cell(metric_name(objective)),
         *(Cell(count(means.get((method, objective)))) for method in methods for means in counts)]
        for objective in dict.fromkeys(row["objective"] for row in fits)
    ]  # fmt: skip
    caption = f"Items with a bias at work, and items excluded{_mean_note(view)}"
    columns = ["learned for", *["biases at work", "excluded"] * len(methods)]
    groups = [("", 1), *((_long_name(view, method), 2) for method in methods)]
    return Table(caption, columns, body, groups=groups, kind="small")


def _overlap_table(view: Overview, pairs: Sequence[Row]) -> Table:
    shares = mean_by(pairs, ("first", "second", "method"), "share")
    methods = list(dict.fromkeys(row["method"] for row in pairs))
    kinds = dict.fromkeys((row["first"], row["second"]) for row in pairs)
    body = [
        [Cell(f"{metric_name(first)} and {metric_name(second)}"),
         *(Cell(share(shares.get((first, second, method)))) for method in methods)]
        for first, second in kinds if first != second
    ]  # fmt: skip
    caption = (
        f"Overlap: of the items with a bias at work under either objective, the share under "
        f"both{_mean_note(view)}"
    )
    columns = ["learned for", *(_long_name(view, method) for method in methods)]
    return Table(caption, columns, body, kind="small")


def _long_name(view: Overview, method: str) -> str:
    return view.names[method].long if method in view.names else method


def _mean_note(view: Overview) -> str:
    return "" if len(view.dates) == 1 else f" (mean of {len(view.dates)} dates)"
