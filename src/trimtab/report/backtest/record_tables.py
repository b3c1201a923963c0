"""Tables of records: each method on one engine, and the engines side by side."""

from __future__ import annotations

from trimtab.replay.results import BASELINE
from trimtab.report import blocks
from trimtab.report.backtest.decision_words import engine_action, is_sure_gain
from trimtab.report.backtest.judged_methods import find_records, rank_records
from trimtab.report.backtest.overview import Overview, mean_by
from trimtab.report.blocks import Cell, Table, name_cell
from trimtab.report.decision import Record
from trimtab.report.words import NOTHING, day, decimal, interval, percent

_SPANS = [("", 1), ("mean", 2), ("single dates", 2), ("", 2)]


def records_table(view: Overview, engine: str) -> Table:
    """Return one row per method, highest mean lift first, and the engine alone below them."""
    values = _mean_values(view)
    body = [
        [_name_cell(view, record.method), *_record_cells(record),
         Cell(decimal(values.get((engine, record.method))))]
        for record in rank_records(view, engine)
    ]  # fmt: skip
    alone = values.get((engine, BASELINE))
    if alone is not None:
        empty = [Cell("")] * len(body[0][1:-1])
        body.append([_name_cell(view, BASELINE), *empty, Cell(decimal(alone))])
    metric = view.name_metric(view.metric)
    by_date, spans = [], []
    if len(view.dates) > 1:
        by_date, spans = ["worst date", "dates below 0"], _SPANS
    columns = ["method", "lift", "95 % interval", *by_date, "sure gain", metric]
    return Table(f"Lift in {metric} on {engine}{view.mean_note}", columns, body, groups=spans)


def _name_cell(view: Overview, method: str) -> Cell:
    return name_cell(view.names[method].short, view.names[method].colour)


def _mean_values(view: Overview) -> dict[tuple[str, str], float]:
    rows = [vars(row) for row in view.judged(metric=view.metric)]
    means = mean_by(rows, ("engine", "method"), "value")
    return {(engine, method): mean for (engine, method), mean in means.items()}


def _record_cells(record: Record) -> list[Cell]:
    ends = interval(record.low, record.high) or NOTHING
    mean = Cell(percent(record.mean), kind=blocks.range_class(record.mean, record.worst))
    if record.n_dates == 1:
        kind = blocks.sign_class(record.mean) if record.is_sure or record.high < 0 else ""
        return [Cell(percent(record.mean), kind=kind), Cell(ends), Cell(is_sure_gain(record))]
    worst = Cell(f"{percent(record.worst)}, {day(record.worst_date)}")
    below = Cell(f"{record.n_below} of {record.n_dates}")
    return [mean, Cell(ends), worst, below, Cell(is_sure_gain(record))]


def engine_records_table(view: Overview) -> Table:
    """Return one row per engine: alone, with Trimtab's methods, and what to switch on."""
    values, methods = _mean_values(view), view.own_methods
    body = []
    for engine in view.all_engines:
        records = {own.method: own for own in find_records(view, engine, methods)}
        cells = [_short_cell(records.get(method)) for method in methods]
        action = engine_action(view, engine) if engine in view.engines else NOTHING
        alone = Cell(decimal(values.get((engine, BASELINE))))
        body.append([Cell(engine), alone, *cells, Cell(action)])
    names = [view.names[method].short for method in methods]
    caption = f"{view.name_metric(view.metric)} and lifts by engine{view.mean_note}"
    return Table(caption, ["engine", "alone", *names, "what to do"], body)


def _short_cell(record: Record | None) -> Cell:
    if record is None:
        return Cell(NOTHING)
    worst = f"worst {percent(record.worst)}" if record.n_dates > 1 else ""
    return Cell(percent(record.mean), worst, blocks.range_class(record.mean, record.worst))
