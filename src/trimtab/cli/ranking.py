"""Commands that use what was learned: apply and export; and the one that judges lists: evaluate."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab import parquet
from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment, neutral
from trimtab.checks import DUPLICATES
from trimtab.cli import options
from trimtab.cli.options_from import options_from
from trimtab.cli.printing import print_json, print_table, say, say_about, say_formulas
from trimtab.errors import SettingError, warn
from trimtab.metrics.evaluation import evaluate as evaluate_frames
from trimtab.metrics.intervals import LEVEL
from trimtab.models import ItemBias, load
from trimtab.models.model import WHOLE, text_columns
from trimtab.store import Store
from trimtab.tables.columns import (
    BUCKET,
    ITEM,
    RANK,
    SCORE,
    TIMESTAMP,
    USER,
    WINDOW,
    ColumnMap,
)
from trimtab.tables.files import (
    is_csv,
    read_table,
    require_suffix,
    require_writable_folder,
    write_atomically,
    write_table,
)
from trimtab.tables.times import require_zone

_NAMES = {
    "acc": "ACC@{k}", "map": "MAP@{k}", "ndcg": "NDCG@{k}", "hit_rate": "hit rate@{k}",
    "recall": "recall@{k}", "mrr": "MRR@{k}", "coverage": "coverage@{k}",
}  # fmt: skip
_SQL = ".sql"


@options_from((ItemBias.apply, "k"))
def apply(
    model: str, lists: str, out: str, history: str | None = None, as_of: str | None = None,
    tz: str | None = None, exclude: str | None = None, allowed: str | None = None,
    strength: float = WHOLE, duplicates: str = DUPLICATES[0], depth: str | None = None,
    salt: str | None = None, share: float | None = None, escape: bool = False,
    columns: str | None = None, *, k: int,
) -> None:  # fmt: skip
    """Rank lists with a saved model and write the top k.

    Biases rank by trend; a reranker also by each user's own purchases, so it needs --history.

    With --salt, only the lists of the treatment group are ranked by the model, those of the control
    group by the engine alone; a bucket column shows each user's group.

    Options:
        lists: File with the engine's lists: user_id, item_id, score.
        out: File for the top k lists, .parquet or .csv.
        history: File with purchases up to now, for a reranker: user_id, item_id, timestamp.
        as_of: Instant that a reranker makes the lists for, like 2026-11-01T00:00:00+00:00; by
            default the end of what is known.
        tz: Time zone of --history and --as-of, if they have none.
        exclude: File with pairs not to show: user_id, item_id.
        allowed: File with the only items to show: item_id.
        depth: Number of items of each list to re-rank, the best by score, or all; by default as
            many as the lists had that the model was learned on.
        share: Share of users in the treatment group with --salt; 0.5 by default.
    """
    path = Path(out)
    require_suffix(path)
    require_writable_folder(path.parent)
    options.refuse_escape(escape, path)
    options.refuse_overwriting(
        path, model=model, lists=lists, history=history, exclude=exclude, allowed=allowed
    )
    deep: Any = int(depth) if depth is not None and depth.isdecimal() else depth
    given: dict[str, Any] = {"duplicates": duplicates, "depth": deep}
    own = ColumnMap.parse(columns)
    if salt is None:
        options.refuse_without("--salt", share=share)
    treated = Experiment.share if share is None else share
    loaded: Any = load(model).with_strength(strength)
    if not loaded.needs_events:
        options.refuse_without("a reranker in --model", history=history, as_of=as_of, tz=tz)
    elif history is None:
        raise SettingError(f"--model {model}: a reranker needs purchases; add --history")
    tables, _ = options.open_tables(
        lists, history, exclude, allowed, text=text_columns(loaded.item_bias), columns=own,
        needed=(USER, ITEM, SCORE, TIMESTAMP),
    )  # fmt: skip
    recs, past, given["exclude"], given["allowed"] = tables
    known = {"history": past, "as_of": as_of if tz is None else _read_instant(as_of, tz), "tz": tz}
    is_simple = salt is None and not is_csv(path)

    def rank(model: Any, place: Path, **options: Any) -> parquet.WrittenLists:
        return parquet.apply(model, recs, place, k, columns=own, **options, **given)

    if is_simple:
        written = rank(loaded, path, **known)
    else:
        with TemporaryDirectory() as room:
            place = Path(room) / "top.parquet"
            written = rank(loaded, place, **known)
            top = read_table(place)
            if salt is not None:
                rank(neutral(loaded.item_bias), place)
                top = _by_bucket(Experiment(salt, treated), top, read_table(place))
        write_table(top, path, escape)
    if loaded.needs_events:
        say(f"wrote {written.n_rows} rows to {path}")
        say_about("events", written.n_events, written.left_out)
    else:
        unknown = f"{written.n_unknown} items have no learned bias and count as 0"
        say(f"wrote {written.n_rows} rows to {path}; {unknown}")
    if not is_simple:
        say_formulas(top, path, escape)


def _by_bucket(experiment: Experiment, treatment: pa.Table, control: pa.Table) -> pa.Table:
    """Return the lists of each user's group, with a column that names it."""
    parts = []
    for name, top in ((TREATMENT, treatment), (CONTROL, control)):
        buckets = experiment.assign(top[USER])
        parts.append(top.append_column(BUCKET, buckets).filter(pc.equal(buckets, name)))
    whole = pa.concat_tables(parts, promote_options="permissive")
    keys = [name for name in (USER, WINDOW, RANK) if name in whole.column_names]
    return whole.sort_by([(name, "ascending") for name in keys])


def _read_instant(as_of: str | None, tz: str) -> Any:
    """Return an instant with a time zone, if it has none; text that is no instant stays."""
    zone = require_zone(tz)
    instant: Any = as_of
    with contextlib.suppress(ValueError):  # none is given; or refused later, with its text
        instant = datetime.fromisoformat(as_of or "")
        instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=zone)
    return instant


@options_from((ItemBias.sql, "k lists exclude allowed"))
def export(
    model: str, out: str, escape: bool = False, columns: str | None = None, **tables: Any
) -> None:
    """Write biases for a search engine or a database.

    A search engine gets boosts, a database a query that re-ranks lists. The names of tables and
    columns, and --k, are for a query.

    Options:
        out: File for boosts, .jsonl or .csv, or for a query, .sql.
    """
    path = Path(out)
    is_query = path.suffix.lower() == _SQL
    if not is_query:
        require_suffix(path, (".jsonl", ".csv", _SQL))
        changed = options.changed(ItemBias.sql, tables)
        options.refuse_without("--out QUERY.sql", columns=columns, **changed)
    require_writable_folder(path.parent)
    options.refuse_escape(escape, path)
    loaded = ItemBias.load(model)
    _warn_of_reranker(Path(model))
    if is_query:
        query = loaded.sql(**tables, columns=ColumnMap.parse(columns))
        with write_atomically(path) as file:
            file.write(query.encode())
        say(f"wrote {out}")
        return
    missing = loaded.export(path, escape=escape)
    rule = "multiply scores by factor" if loaded.scale == "log" else "add boost to scores"
    say(
        f"wrote {len(loaded)} items to {out}: {rule}, {missing!r} for missing items; "
        f"{int(loaded.excluded.sum())} are excluded: filter them out"
    )
    say_formulas(loaded.table().select([ITEM]), path, escape)


def _warn_of_reranker(place: Path) -> None:
    """Warn if biases are handed over from a store whose version ranks by more than these."""
    store = Store(place)
    if store.exists() and "reranker" in (version := store.current()).manifest:
        warn(
            f"version {version.number} has a reranker, but only its biases are handed over: users' "
            f"own purchases do not count; publish its finished lists instead"
        )


@options_from((evaluate_frames, "k"))
def evaluate(
    lists: str, events: str, baseline: str | None = None, weight: str | None = None,
    columns: str | None = None, as_json: bool = False, *, k: int,
) -> None:  # fmt: skip
    """Score lists against purchases.

    Metrics at k: ACC, MAP, NDCG, hit rate, recall, MRR, coverage (share of all items shown). With
    --baseline, also the lift of each with its 90 % interval.

    Options:
        lists: File with lists to judge: user_id, item_id, rank (or score).
        events: File with purchases to judge by: user_id, item_id.
        baseline: File with other lists for the same users, to compare with.
        weight: Column of --events that hits count by, like revenue or margin.
    """
    own = ColumnMap.parse(columns)
    (listed, bought, others), _ = options.open_tables(lists, events, baseline, columns=own)
    by = None if weight is None else own.name_of(weight)
    figures = parquet.evaluate(listed, bought, k, weight=by, baseline=others, columns=own)
    if as_json:
        print_json(figures)
        return
    titles = ["metric", "value"]
    if baseline is not None:
        titles += ["baseline", "lift", f"{LEVEL:.0%} interval".replace("%", " %")]
    print_table(titles, _rows(figures, k, baseline is not None))
    say(
        f"{figures['n_users']} users who bought something; "
        f"{figures['n_skipped']} users with a list bought nothing and are left out"
    )
    if weight is not None:
        say(f"hits count by {weight}, and users by their largest {weight}")


def _rows(figures: Mapping[str, float], k: int, compared: bool) -> Iterator[list[str]]:
    """Yield the rows of the table that is printed."""
    for name in (name for name in _NAMES if name in figures):
        row = [_NAMES[name].format(k=k), f"{figures[name]:.6f}"]
        if compared:
            low, high = (figures.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
            between = "–" if math.isnan(low) else f"{low:+.1%} to {high:+.1%}"
            lift = figures[f"{name}_lift"]
            row += [f"{figures[f'{name}_baseline']:.6f}"]
            row += ["–" if math.isnan(lift) else f"{lift:+.1%}", between]
        yield row
