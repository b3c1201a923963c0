"""Commands that learn and use biases: fit, apply, export, sql."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from trimtab.abtest.buckets import Experiment
from trimtab.cli.large_files import fit_large, is_large, open_tables
from trimtab.cli.options import (
    AllowedFile,
    AsJson,
    BiasFolder,
    Columns,
    Depth,
    Duplicates,
    Escape,
    ExcludeFile,
    Metric,
    Paper,
    RecsFile,
    Salt,
    Settings,
    ShareOfTest,
    Slots,
    Strength,
    WeightsFile,
    defaults_of,
    option,
    parse_depth,
    refuse_escape,
    refuse_overwriting,
    share_of_test,
)
from trimtab.cli.printing import (
    print_json,
    print_table,
    say,
    say_formulas,
    say_strength,
    say_weighted,
)
from trimtab.errors import SettingError, warn
from trimtab.learn import BiasLearner
from trimtab.models import ItemBias
from trimtab.models.exports import require_ending
from trimtab.models.model import WHOLE, require_strength, text_columns
from trimtab.parquet import apply as apply_to_files
from trimtab.store import Store
from trimtab.tables.columns import ITEM, WEIGHT, ColumnMap
from trimtab.tables.files import (
    is_csv,
    read_tables,
    require_suffix,
    require_writable_folder,
    write_table,
)

_FIT = defaults_of(BiasLearner.fit)
_APPLY = defaults_of(ItemBias.apply)
_SQL = defaults_of(ItemBias.sql)


def fit(
    recs: RecsFile,
    recent: Annotated[
        str,
        option(
            "FILE", "Recent purchases: user_id, item_id, and weight if events differ.", "--recent"
        ),
    ],
    out: Annotated[Path, option("FOLDER", "Folder to save the biases in.", "--out")],
    k: Slots = BiasLearner.k,
    metric: Metric = BiasLearner.metric,
    paper: Paper = False,
    history: Annotated[
        str | None, option("FILE", "Earlier sales: events, or item_id and count.")
    ] = None,
    items: Annotated[str | None, option("FILE", "Item categories: item_id, category.")] = None,
    weights: WeightsFile = None,
    start: Annotated[Path | None, option("FOLDER", "Folder with biases for a warm start.")] = None,
    setting: Settings = None,
    strength: Strength = WHOLE,
    duplicates: Duplicates = _FIT.duplicates,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Learn one bias per item and save the biases in a folder."""
    learner = make_learner(k, metric, paper, setting)
    require_strength(strength)
    own = ColumnMap.parse(columns)
    require_writable_folder(out)
    refuse_overwriting(out, recs=recs, recent=recent, history=history, items=items, weights=weights)
    loaded = None if start is None else ItemBias.load(start)
    weighted, bias = False, fit_large(
        learner, recs, recent, history=history, items=items, weights=weights,
        duplicates=duplicates, columns=own,
    )  # fmt: skip
    if bias is None:
        lists, sales, by_user, past, catalogue = read_tables(
            recs, recent, weights, history, items, text=text_columns(loaded), columns=own
        )
        weighted, bias = WEIGHT in sales.column_names, learner.fit(
            lists, sales, history=past, items=catalogue, weights=by_user, start=loaded,
            duplicates=duplicates,
        )  # fmt: skip
    bias.with_strength(strength).save(out)
    if as_json:
        print_json({**bias.summary, "lift": bias.summary.lift})
        return
    say_weighted(weighted)
    _print_fit(bias)
    say_strength(strength, bias.summary.forecast_by_strength)
    say(f"saved to {out}")


def apply(
    bias: BiasFolder,
    recs: RecsFile,
    out: Annotated[Path, option("FILE", "File for the top k lists, .parquet or .csv.", "--out")],
    k: Slots = _APPLY.k,
    exclude: ExcludeFile = None,
    allowed: AllowedFile = None,
    duplicates: Duplicates = _APPLY.duplicates,
    explore: Annotated[
        int, option("NUMBER", "Slots per user for items with little data.")
    ] = _APPLY.explore,
    seed: Annotated[int, option("NUMBER", "Random seed for --explore.")] = _APPLY.seed,
    strength: Strength = WHOLE,
    depth: Depth = _APPLY.depth,
    salt: Salt = None,
    share: ShareOfTest = None,
    escape: Escape = False,
    columns: Columns = None,
) -> None:
    """Re-rank lists with saved biases and write the top k.

    With --salt, only the treatment group gets biases; a bucket column shows each user's group.
    """
    require_suffix(out)
    require_writable_folder(out.parent)
    refuse_escape(escape, out)
    refuse_overwriting(out, bias=bias, recs=recs, exclude=exclude, allowed=allowed)
    own = ColumnMap.parse(columns)
    treated = share_of_test(salt, share)
    deepest = parse_depth(depth)
    loaded = ItemBias.load(bias).with_strength(strength)
    is_simple = salt is None and not explore and not is_csv(out)
    if is_simple and is_large(recs):
        files, pairs, items = open_tables(
            recs, exclude, allowed, text=text_columns(loaded), columns=own
        )
        written = apply_to_files(
            loaded, files, out, k, exclude=pairs, allowed=items, duplicates=duplicates,
            depth=deepest, columns=own,
        )  # fmt: skip
        _say_written(written.n_rows, out, written.n_unknown)
        return
    lists, pairs, items = read_tables(
        recs, exclude, allowed, text=text_columns(loaded), columns=own
    )
    options = {
        "exclude": pairs, "allowed": items, "duplicates": duplicates, "explore": explore,
        "seed": seed, "depth": deepest,
    }  # fmt: skip
    if salt is None:
        top = loaded.apply(lists, k, **options)
    else:
        top = Experiment(salt, treated).apply(loaded, lists, k, **options)
    write_table(top, out, escape)
    _say_written(top.num_rows, out, loaded.count_unknown(lists))
    say_formulas(top, out, escape)


def _say_written(n_rows: int, out: Path, n_unknown: int) -> None:
    say(f"wrote {n_rows} rows to {out}; {n_unknown} items have no learned bias and count as 0")


def export(
    bias: BiasFolder,
    out: Annotated[Path, option("FILE", "File for the boosts, .jsonl, .csv or .ndjson.", "--out")],
    escape: Escape = False,
) -> None:
    """Write biases as boosts for a search engine."""
    require_ending(out)
    require_writable_folder(out.parent)
    refuse_escape(escape, out)
    loaded = ItemBias.load(bias)
    _warn_of_reranker(bias)
    missing = loaded.export(out, escape=escape)
    rule = "multiply scores by factor" if loaded.scale == "log" else "add boost to scores"
    say(
        f"wrote {len(loaded)} items to {out}: {rule}, {missing!r} for missing items; "
        f"{int(loaded.excluded.sum())} are excluded: filter them out"
    )
    say_formulas(loaded.table().select([ITEM]), out, escape)


def _warn_of_reranker(place: Path) -> None:
    """Warn if biases are handed over from a store whose version ranks by more than these."""
    store = Store(place)
    if store.exists() and "reranker" in (version := store.current()).manifest:
        warn(
            f"version {version.number} has a reranker, but only its biases are handed over: users' "
            f"own purchases do not count; publish its finished lists instead"
        )


def sql(
    bias: BiasFolder,
    k: Slots = _SQL.k,
    lists: Annotated[str, option("TABLE", "Table of lists, like shop.lists.")] = _SQL.lists,
    biases: Annotated[str, option("TABLE", "Table of biases.")] = _SQL.biases,
    exclude: Annotated[
        str | None, option("TABLE", "Table of pairs not to show: user_id, item_id.")
    ] = _SQL.exclude,
    allowed: Annotated[
        str | None, option("TABLE", "Table of allowed items: item_id. All by default.")
    ] = _SQL.allowed,
    columns: Annotated[
        str | None,
        option("NAMES", "Names of columns, like user=customer,item=sku,score=s,rank=slot."),
    ] = None,
    depth: Depth = _SQL.depth,
) -> None:
    """Print a query that re-ranks lists with biases inside a database."""
    loaded = ItemBias.load(bias)
    _warn_of_reranker(bias)
    query = loaded.sql(
        k, lists=lists, biases=biases, exclude=exclude, allowed=allowed,
        columns=ColumnMap.parse(columns), depth=parse_depth(depth),
    )  # fmt: skip
    print(query, end="")


def make_learner(k: int, metric: str, paper: bool, setting: list[str] | None) -> BiasLearner:
    """Return the learner that the options ask for."""
    settings = {"k": k, "metric": metric, **_parse_settings(setting or [])}
    return BiasLearner.paper(**settings) if paper else BiasLearner(**settings)


def _parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Return settings from name=value pairs; a value that is not JSON is text."""
    known = [field.name for field in fields(BiasLearner)]
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise SettingError(f"--set {pair}: must be name=value; names are {', '.join(known)}")
        words = {"none": None, "true": True, "false": False}
        try:
            settings[name] = words[text.lower()] if text.lower() in words else json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _print_fit(bias: ItemBias) -> None:
    summary = bias.summary
    row = (
        f"{summary.metric.upper()}@{summary.k} on the recent window",
        f"{summary.before:.6f}", f"{summary.after:.6f}", f"{summary.lift:+.2%}",
    )  # fmt: skip
    print_table(("", "before", "after", "lift"), [row])
    moved = f"{int((bias.bias != 0).sum())} of {summary.n_items} items have a bias"
    if summary.method == "ascent":
        say(
            f"{moved}, {summary.n_excluded} are excluded; {summary.n_users} users, "
            f"{summary.cycles} cycles, {summary.updates} updates"
        )
        say("The gain on the window itself is too optimistic: evaluate on later days.")
        return
    say(f"{moved}; {summary.n_users} users")
    if summary.forecast is not None:
        held_out = (
            f"{summary.forecast_windows} held-out windows"
            if summary.forecast_windows
            else "held-out users of the same days, which says less of other days"
        )
        say(
            f"forecast for the coming days: {summary.forecast:+.1%} (90 % interval "
            f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}), from {held_out}"
        )
    say(
        f"the 10 most shown items take {summary.concentration_after:.0%} of all slots "
        f"({summary.concentration_before:.0%} before)"
    )
