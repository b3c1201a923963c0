"""Commands for biases on files: fit, apply, evaluate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from trimtab.abtest.buckets import Experiment
from trimtab.bias import ItemBias
from trimtab.bias.table import text_columns
from trimtab.cli.options import (
    AsJson,
    Merge,
    Metric,
    Paper,
    Places,
    Salt,
    Settings,
    ShareOfTest,
    share_of_test,
)
from trimtab.cli.printing import console
from trimtab.errors import TrimtabError
from trimtab.learn import BiasLearner
from trimtab.metrics.evaluation import evaluate as evaluate_frames
from trimtab.tables.files import read_tables, require_kind, require_place, write_table

RecsFile = Annotated[Path, typer.Option("--recs", help="user_id, item_id, score: the lists.")]


def fit(
    recs: RecsFile,
    recent: Annotated[Path, typer.Option("--recent", help="user_id, item_id: recent purchases.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the learned biases.")],
    k: Places = 10,
    metric: Metric = "ndcg",
    paper: Paper = False,
    history: Annotated[
        Path | None, typer.Option(help="Sales before the window: events, or item_id, count.")
    ] = None,
    items: Annotated[Path | None, typer.Option(help="item_id, category.")] = None,
    weights: Annotated[Path | None, typer.Option(help="user_id, weight.")] = None,
    start: Annotated[Path | None, typer.Option(help="Folder of biases to start from.")] = None,
    setting: Settings = None,
    duplicates: Merge = "error",
    as_json: AsJson = False,
) -> None:
    """Learn one bias per item and save them in a folder."""
    learner = make_learner(k, metric, paper, setting)
    require_place(out)
    loaded = None if start is None else ItemBias.load(start)
    lists, sales, by_user, past, catalogue = read_tables(
        recs, recent, weights, history, items, text=text_columns(loaded)
    )
    bias = learner.fit(
        lists, sales, history=past, items=catalogue, weights=by_user, start=loaded,
        duplicates=duplicates,
    )  # fmt: skip
    bias.save(out)
    if as_json:
        figures = {**bias.summary, "lift": bias.summary.lift}
        print(json.dumps({name: _plain(value) for name, value in figures.items()}))
        return
    _print_fit(bias)
    console.print(f"saved to {out}", highlight=False, markup=False, soft_wrap=True)


def apply(
    bias: Annotated[Path, typer.Option("--bias", help="Folder of saved biases.")],
    recs: RecsFile,
    out: Annotated[Path, typer.Option("--out", help="The re-ranked top k, .parquet or .csv.")],
    k: Places = 10,
    exclude: Annotated[Path | None, typer.Option(help="user_id, item_id: not to be shown.")] = None,
    allowed: Annotated[Path | None, typer.Option(help="item_id: nothing else is shown.")] = None,
    duplicates: Merge = "error",
    explore: Annotated[
        int, typer.Option(help="Places of the k for items that little is known of.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the draws when exploring.")] = 0,
    salt: Salt = None,
    share: ShareOfTest = None,
) -> None:
    """Add saved biases to lists and write the top k.

    With --salt only users in the treatment get them; a column bucket says who is in which.
    """
    require_kind(out)
    require_place(out.parent)
    treated = share_of_test(salt, share)
    loaded = ItemBias.load(bias)
    lists, pairs, items = read_tables(recs, exclude, allowed, text=text_columns(loaded))
    options = {
        "exclude": pairs, "allowed": items, "duplicates": duplicates, "explore": explore,
        "seed": seed,
    }  # fmt: skip
    if salt is None:
        top = loaded.apply(lists, k, **options)
    else:
        top = Experiment(salt, treated).apply(loaded, lists, k, **options)
    write_table(top, out)
    unknown = loaded.count_unknown(lists)
    console.print(
        f"wrote {top.num_rows} rows to {out}; {unknown} items without a learned bias count as 0",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def evaluate(
    topk: Annotated[Path, typer.Option("--topk", help="user_id, item_id, rank (or score).")],
    truth: Annotated[Path, typer.Option("--truth", help="user_id, item_id: what was bought.")],
    k: Places = 10,
    weights: Annotated[Path | None, typer.Option(help="user_id, weight.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge lists by what was bought: ACC, MAP and NDCG at k."""
    lists, bought, by_user = read_tables(topk, truth, weights)
    figures = evaluate_frames(lists, bought, k, by_user)
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("metric", "value")
    for name in ("acc", "map", "ndcg"):
        table.add_row(f"{name.upper()}@{k}", f"{figures[name]:.6f}")
    console.print(table)
    console.print(
        f"{figures['n_users']} users who bought something; "
        f"{figures['n_skipped']} with a list bought nothing and do not count"
    )


def make_learner(k: int, metric: str, paper: bool, setting: list[str] | None) -> BiasLearner:
    """The learner that options ask for."""
    settings = {"k": k, "metric": metric, **_parse_settings(setting or [])}
    return BiasLearner.paper(**settings) if paper else BiasLearner(**settings)


def _parse_settings(pairs: list[str]) -> dict[str, Any]:
    """name=value pairs as settings; values as JSON where they are, otherwise as text."""
    known = [field.name for field in fields(BiasLearner)]
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise TrimtabError(f"--set {pair}: must be name=value with one of {', '.join(known)}")
        words = {"none": None, "true": True, "false": False}
        try:
            settings[name] = words[text.lower()] if text.lower() in words else json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _print_fit(bias: ItemBias) -> None:
    summary = bias.summary
    table = Table("", "before", "after", "lift")
    table.add_row(
        f"{summary.metric.upper()}@{summary.k} on the recent window",
        f"{summary.before:.6f}", f"{summary.after:.6f}", f"{summary.lift:+.2%}",
    )  # fmt: skip
    console.print(table)
    moved = f"{int((bias.bias != 0).sum())} of {summary.n_items} items have a bias"
    if summary.method == "ascent":
        console.print(
            f"{moved}, {summary.n_excluded} are excluded; {summary.n_users} users, "
            f"{summary.cycles} cycles, {summary.updates} updates"
        )
        console.print(
            "The gain on the window itself flatters: judge on later days with `evaluate`."
        )
        return
    console.print(f"{moved}; {summary.n_users} users")
    if summary.forecast is not None:
        console.print(
            f"forecast for the days to come: {summary.forecast:+.1%} (90 % interval "
            f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}), from users held out"
        )
    console.print(
        f"the 10 most shown items take {summary.concentration_after:.0%} of all places "
        f"({summary.concentration_before:.0%} before)"
    )


def _plain(value: Any) -> Any:
    """A value that JSON has a word for."""
    if isinstance(value, float) and math.isnan(value):
        return None
    return dict(value) if isinstance(value, Mapping) else value
