"""The command that learns from one table of lists: fit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimtab import parquet
from trimtab.checks import DUPLICATES, require_choice
from trimtab.cli.options import open_tables, parse_settings, refuse_overwriting, settings_of
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import print_json, print_table, say, say_about
from trimtab.daily.method_choice import AUTO, BIAS, METHODS, RERANKER, learn_best
from trimtab.errors import SettingError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Reranker
from trimtab.models.model import WHOLE, forecast_at, require_strength
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER, WEIGHT, ColumnMap
from trimtab.tables.files import require_writable_folder

PAPER = "paper"
_SETTINGS = settings_of(BiasLearner, RerankLearner)


@options_from((BiasLearner, "k metric"), settings=_SETTINGS)
def fit(
    lists: str, events: str, out: str, method: str = BIAS, history: str | None = None,
    items: str | None = None, duplicates: str = DUPLICATES[0],
    strength: float = WHOLE, setting: list[str] | None = None, columns: str | None = None,
    as_json: bool = False, **shared: Any,
) -> None:  # fmt: skip
    """Learn biases or a reranker, and save the model in a folder.

    There is one bias per item. A reranker ranks by trend and by each user's own purchases, and adds
    items to lists, as far as held-out data gains by it. It needs --history.

    Options:
        lists: File with the engine's lists: user_id, item_id, score.
        events: File with recent purchases: user_id, item_id, and timestamp and weight if known.
        out: Folder to save the model in.
        method: Name of the method: bias, reranker, auto (the better one) or paper.
        history: File with earlier purchases, or with item_id and count. A reranker needs
            purchases.
        items: File with item categories: item_id, category.
    """
    require_choice("method", method, (*METHODS, PAPER))
    learner = make_learner(method, setting, shared)
    require_strength(strength)
    if isinstance(learner, RerankLearner) and history is None:
        raise SettingError(f"--method {method}: needs --history, the earlier purchases; add it")
    own = ColumnMap.parse(columns)
    folder = Path(out)
    require_writable_folder(folder)
    refuse_overwriting(folder, lists=lists, events=events, history=history, items=items)
    needed = (USER, ITEM, SCORE, *([TIMESTAMP] if isinstance(learner, RerankLearner) else []))
    given, names = open_tables(lists, events, history, items, columns=own, needed=needed)
    recs, recent, past, categories = given
    model: Any = parquet.fit(
        learner, recs, recent, history=past, items=categories, duplicates=duplicates, columns=own
    )
    choice = None
    if method == AUTO:
        used, model, choice = learn_best(model, None)
    model.with_strength(strength).save(folder)
    if as_json:
        print_json(_describe(model))
        return
    say_about("weighted", WEIGHT in names[1])
    if choice is not None:
        say(f"method {used}: {choice.why}")
    _print_model(model)
    if strength != WHOLE:
        measured = model.summary.forecast_by_strength
        say_about("at_strength", strength, forecast_at(strength, measured).forecast, measured)
    say(f"saved to {folder}")


def make_learner(
    method: str, setting: list[str] | None, shared: dict[str, Any]
) -> BiasLearner | RerankLearner:
    """Return the learner of a method, with the settings of --set."""
    learner = RerankLearner if method in (RERANKER, AUTO) else BiasLearner
    settings = {**shared, **parse_settings(setting, settings_of(learner))}
    return BiasLearner.paper(**settings) if method == PAPER else learner(**settings)


def _describe(model: ItemBias | Reranker) -> dict[str, Any]:
    """Return what is printed as JSON."""
    if isinstance(model, ItemBias):
        return {**model.summary, "lift": model.summary.lift}
    return {**asdict(model.summary), "coefficients": model.coefficients().to_pylist()}


def _print_model(model: ItemBias | Reranker) -> None:
    """Print what was learned, and what to expect of it."""
    if isinstance(model, ItemBias):
        _print_biases(model)
    else:
        _print_coefficients(model)
        say_about("reranker", model.summary)


def _print_biases(bias: ItemBias) -> None:
    summary = bias.summary
    row = (
        f"{summary.metric.upper()}@{summary.k} on the recent window",
        f"{summary.before:.6f}", f"{summary.after:.6f}", f"{summary.lift:+.2%}",
    )  # fmt: skip
    print_table(("", "before", "after", "lift"), [row])
    say_about("biases", summary, int((bias.bias != 0).sum()))


def _print_coefficients(reranker: Reranker) -> None:
    """Print the coefficients that are about users and lists; those of items are in --json."""
    rows: list[dict[str, Any]] = reranker.coefficients().to_pylist()
    shown = [row for row in rows if row["kind"] != "item"]
    if not shown:
        return
    say(f"coefficients (standard errors); {len(rows) - len(shown)} more, of items, with --json:")
    for row in shown:
        say(f"  {row['name']} {row['value']:+.2f} ({row['error']:.2f}): {row['meaning']}")
