"""Commands that learn and use a reranker, from file to file: rerank fit, rerank apply."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment, neutral
from trimtab.checks import SCALES
from trimtab.cli.large_files import fit_large, is_large, open_tables
from trimtab.cli.options import (
    AllowedFile,
    AsJson,
    Columns,
    Duplicates,
    Escape,
    ExcludeFile,
    Metric,
    RecsFile,
    Repeats,
    Salt,
    ShareOfTest,
    Slots,
    Strength,
    WeightsFile,
    Widen,
    Zone,
    defaults_of,
    one_of,
    option,
    parse_depth,
    refuse_escape,
    refuse_overwriting,
    share_of_test,
)
from trimtab.cli.printing import print_json, say, say_formulas, say_strength, say_weighted
from trimtab.learn import RerankLearner
from trimtab.models import LeftOut, Reranker, RerankSummary
from trimtab.models.list_ranking import warn_of
from trimtab.models.model import WHOLE, require_strength, text_columns
from trimtab.parquet import apply as apply_to_files
from trimtab.tables.columns import (
    BUCKET,
    ITEM,
    RANK,
    SCORE,
    TIMESTAMP,
    USER,
    WEIGHT,
    ColumnMap,
    own_names,
)
from trimtab.tables.files import (
    is_csv,
    read_tables,
    require_suffix,
    require_writable_folder,
    write_table,
)
from trimtab.tables.times import as_utc, require_zone

_FIT = defaults_of(RerankLearner.fit)
_APPLY = defaults_of(Reranker.apply)
_NEEDED = (USER, ITEM, TIMESTAMP, SCORE)
_SCALES = one_of(["auto", *SCALES])
_PARTS = {
    "trend": "by the biases alone",
    "personal": "with each user's own purchases",
    "trending": "with items added that sell well",
    "own": "with items added that the user bought before",
}


def fit(
    recs: RecsFile,
    recent: Annotated[
        str,
        option(
            "FILE",
            "Recent purchases: user_id, item_id, timestamp, and weight if events differ.",
            "--recent",
        ),
    ],
    history: Annotated[
        str, option("FILE", "Earlier purchases: user_id, item_id, timestamp.", "--history")
    ],
    out: Annotated[Path, option("FOLDER", "Folder to save the reranker in.", "--out")],
    items: Annotated[str | None, option("FILE", "Item categories: item_id, category.")] = None,
    weights: WeightsFile = None,
    k: Slots = RerankLearner.k,
    metric: Metric = RerankLearner.metric,
    scale: Annotated[str, option("NAME", f"Scale of the biases: {_SCALES}.")] = RerankLearner.scale,
    widen: Widen = RerankLearner.widen,
    repeats: Repeats = RerankLearner.repeats,
    seed: Annotated[
        int, option("NUMBER", "Random seed for user folds and samples.")
    ] = RerankLearner.seed,
    strength: Strength = WHOLE,
    duplicates: Duplicates = _FIT.duplicates,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Learn a reranker and save it in a folder.

    It ranks by trend and by each user's own purchases, and adds items to lists, as far as held-out
    data gains by it.
    """
    learner = RerankLearner(
        k=k, metric=metric, scale=scale, widen=widen, repeats=repeats, seed=seed
    )
    require_strength(strength)
    own = ColumnMap.parse(columns)
    require_writable_folder(out)
    refuse_overwriting(out, recs=recs, recent=recent, history=history, items=items, weights=weights)
    weighted, reranker = False, fit_large(
        learner, recs, recent, history=history, items=items, weights=weights,
        duplicates=duplicates, columns=own, needed=_NEEDED,
    )  # fmt: skip
    if reranker is None:
        lists, sales, past, catalogue, by_user = read_tables(
            recs, recent, history, items, weights, columns=own, needed=_NEEDED
        )
        weighted, reranker = WEIGHT in sales.column_names, learner.fit(
            lists, sales, history=past, items=catalogue, weights=by_user, duplicates=duplicates
        )  # fmt: skip
    reranker.with_strength(strength).save(out)
    if as_json:
        print_json(
            {**asdict(reranker.summary), "coefficients": reranker.coefficients().to_pylist()}
        )
        return
    say_weighted(weighted)
    _print_coefficients(reranker)
    print_gains(reranker.summary)
    say_strength(strength, reranker.summary.forecast_by_strength)
    say(f"saved to {out}")


def apply(
    reranker: Annotated[
        Path, option("FOLDER", "Folder of the saved reranker, or a store.", "--reranker")
    ],
    recs: RecsFile,
    history: Annotated[
        str,
        option("FILE", "Purchases up to now: user_id, item_id, timestamp.", "--history"),
    ],
    out: Annotated[Path, option("FILE", "File for the top k lists, .parquet or .csv.", "--out")],
    as_of: Annotated[
        str | None,
        option(
            "INSTANT",
            "Instant that the lists are for, like 2026-11-01T00:00:00+00:00. By default, the end "
            "of what is known.",
            "--as-of",
        ),
    ] = _APPLY.as_of,
    tz: Zone = None,
    k: Slots = _APPLY.k,
    exclude: ExcludeFile = None,
    allowed: AllowedFile = None,
    strength: Strength = WHOLE,
    duplicates: Duplicates = _APPLY.duplicates,
    depth: Annotated[
        str | None,
        option(
            "NUMBER",
            "Items of each list to re-rank, the best by score, or all. By default as many as the "
            "lists had that the reranker was learned on.",
        ),
    ] = _APPLY.depth,
    salt: Salt = None,
    share: ShareOfTest = None,
    escape: Escape = False,
    columns: Columns = None,
) -> None:
    """Rank lists with a saved reranker and write the top k.

    With --salt, only the lists of the treatment group are ranked by it, those of the control group
    by the engine alone; a bucket column shows each user's group.

    Users without purchases before --as-of are ranked by the biases of the reranker. If timestamps
    have no time zone but those that it learned from did, --tz says which one they are in.
    """
    require_suffix(out)
    require_writable_folder(out.parent)
    refuse_escape(escape, out)
    refuse_overwriting(
        out, reranker=reranker, recs=recs, history=history, exclude=exclude, allowed=allowed
    )
    deepest, own = parse_depth(depth), ColumnMap.parse(columns)
    treated = share_of_test(salt, share)
    loaded = Reranker.load(reranker).with_strength(strength)
    instant = as_of if tz is None else _read_instant(as_of, tz)
    options: dict[str, Any] = {"as_of": instant, "duplicates": duplicates, "depth": deepest}
    reading: dict[str, Any] = {
        "text": text_columns(loaded.bias), "columns": own, "needed": _NEEDED,
    }  # fmt: skip
    if is_large(recs) and salt is None and not is_csv(out):
        files, events, pairs, items = open_tables(recs, history, exclude, allowed, **reading)
        written = apply_to_files(
            loaded, files, out, k, history=events, tz=tz, exclude=pairs, allowed=items, columns=own,
            **options,
        )  # fmt: skip
        _say_written(written.n_rows, out, written.n_events, written.left_out)
        return
    lists, past, pairs, items = read_tables(recs, history, exclude, allowed, **reading)
    if tz is not None:
        past = _set_zone(past, tz)
    shared = {"exclude": pairs, "allowed": items, "duplicates": duplicates, "depth": deepest}
    ranked = loaded.rank(lists, k, history=past, as_of=instant, **shared)
    warn_of(loaded, ranked, k, deepest, of_later=False)
    top = ranked.top
    if salt is not None:
        alone = neutral(loaded.bias).rank(lists, k, **shared).top
        top = _by_bucket(Experiment(salt, treated), top, alone)
    write_table(top, out, escape)
    _say_written(top.num_rows, out, past.num_rows, ranked.left_out)
    say_formulas(top, out, escape)


def _by_bucket(experiment: Experiment, treatment: pa.Table, control: pa.Table) -> pa.Table:
    """Return the lists of each user's group, with a column that names it."""
    parts = []
    for name, top in ((TREATMENT, treatment), (CONTROL, control)):
        buckets = experiment.assign(top[USER])
        parts.append(top.append_column(BUCKET, buckets).filter(pc.equal(buckets, name)))
    whole = pa.concat_tables(parts, promote_options="permissive")
    return whole.sort_by([(USER, "ascending"), (RANK, "ascending")])


def _say_written(n_rows: int, out: Path, n_events: int, left_out: LeftOut) -> None:
    say(f"wrote {n_rows} rows to {out}")
    say(f"{n_events} events; {describe_left_out(left_out)}")


def _set_zone(history: Any, tz: str) -> Any:
    """Return events with a time zone, where they have none."""
    if TIMESTAMP not in history.column_names:
        return history
    name = own_names(history).get(TIMESTAMP, TIMESTAMP)
    stamps, _ = as_utc(history[TIMESTAMP], tz, "history", name)
    return history.set_column(history.column_names.index(TIMESTAMP), TIMESTAMP, stamps)


def _read_instant(as_of: str | None, tz: str) -> Any:
    """Return an instant with a time zone, if it has none; text that is no instant stays."""
    zone = require_zone(tz)
    instant: Any = as_of
    with contextlib.suppress(ValueError):  # none is given; or refused later, with its text
        instant = datetime.fromisoformat(as_of or "")
        instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)
    return instant


def describe_left_out(left_out: LeftOut) -> str:
    """Return how many events were not used, and why."""
    reasons = (
        (left_out.later, "at or after the instant of the lists"),
        (left_out.unknown_users, "of users without a list"),
        (left_out.unknown_items, "of items that were neither learned nor listed"),
    )
    told = ", ".join(f"{number} {why}" for number, why in reasons if number)
    return f"{sum(left_out)} events were left out{told and ': '}{told}"


def print_gains(summary: RerankSummary) -> None:
    """Print the forecast, and what each part gains on held-out data."""
    name = f"{summary.metric.upper()}@{summary.k}"
    if summary.lifts:
        say(f"lift in {name} over the engine on held-out data: {describe_parts(summary.lifts)}")
    if not summary.kept:
        say("no gain by each user's own purchases: all users are ranked by the biases")
    else:
        told = f"{summary.kept:.0%} of what users' own purchases say is kept"
        say(f"{told}; {_describe_sources(summary.sources)}")
    if summary.forecast is not None:
        say(describe_forecast(summary))


def describe_parts(lifts: Mapping[str, float]) -> str:
    """Return the lifts as one part after the other is used, in words."""
    return ", ".join(f"{lift:+.1%} {_PARTS.get(part, part)}" for part, lift in lifts.items())


def _describe_sources(sources: Sequence[str]) -> str:
    words = {"trending": "items that sell well", "own": "items that the user bought before"}
    if not sources:
        return "nothing is added to lists"
    return f"{' and '.join(words[source] for source in sources)} are added to lists"


def describe_forecast(summary: RerankSummary) -> str:
    """Return the expected lift with its interval, and what it was measured on."""
    held_out = (
        f"{summary.forecast_windows} held-out windows"
        if summary.forecast_windows
        else "held-out users of the same days, which says less of other days"
    )
    return (
        f"forecast for the coming days: {summary.forecast:+.1%} (90 % interval "
        f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}), from {held_out}"
    )


def _print_coefficients(reranker: Reranker) -> None:
    """Print the coefficients that are about users and lists; those of items are in --json."""
    rows: list[dict[str, Any]] = reranker.coefficients().to_pylist()
    shown = [row for row in rows if row["kind"] != "item"]
    if not shown:
        return
    say(f"coefficients (standard errors); {len(rows) - len(shown)} more, of items, with --json:")
    for row in shown:
        say(f"  {row['name']} {row['value']:+.2f} ({row['error']:.2f}): {row['meaning']}")
