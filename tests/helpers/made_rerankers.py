"""Rerankers made by hand, as if they had been learned, and tables of events for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

import trimtab as tt
from made_biases import make_bias
from trimtab.models import Coefficient, RerankSummary
from trimtab.models.widening import SOURCES, TERMS, USUAL_WINDOW

UNTIL = datetime(2026, 3, 1, tzinfo=UTC)  # end of what was learned from
COEFFICIENTS = {
    "score": 1.0, "long_run_share": 0.1, "bought_before": 1.0, "times_bought": 0.5,
    "time_since": -0.25, "bought_lately": 0.125, "trending": 0.25, "own": -0.375,
}  # fmt: skip


def make_reranker(
    biases, item_part=None, bought_part=None, trending=(), sources=tuple(SOURCES), widen="any",
    repeats=True, learned=True, has_zone=True, scale="log", depth=None, excluded=(), k=2,
):  # fmt: skip
    """Return a reranker of some items.

    Args:
        biases: by item id.
        item_part: by item id; 0 for others.
        bought_part: the same, for users who bought the item.
        trending: item ids, best first.
        sources: of added items.
        widen: the setting.
        repeats: whether items that the user bought before may be added.
        learned: whether there are coefficients; all users are ranked by the biases if not.
        has_zone: whether timestamps had a time zone.
        scale: of the biases.
        depth: of the lists that were learned from.
        excluded: items that are never shown.
        k: slots of the fit.
    """
    ids = sorted(biases)
    return tt.Reranker(
        bias=make_bias(biases, excluded=excluded, scale=scale, depth=depth),
        item_part=np.array([float((item_part or {}).get(i, 0.0)) for i in ids]),
        bought_part=np.array([float((bought_part or {}).get(i, 0.0)) for i in ids]),
        trending=np.array([ids.index(i) for i in trending], np.int32),
        learned=_coefficients(sources) if learned else (),
        summary=RerankSummary(
            metric="ndcg", k=k, n_windows=3, n_users=40, kept=1.0 if learned else 0.0,
            sources=tuple(sources) if learned else (), forecast=0.25, forecast_low=0.125,
            forecast_high=0.5, forecast_windows=3, lifts={"trend": 0.1, "personal": 0.2},
        ),
        settings={"k": k, "widen": widen},
        may_repeat=repeats,
        score_unit=1.0,
        learned_until=round(UNTIL.timestamp() * 1e6),
        has_zone=has_zone,
        window_length=USUAL_WINDOW,
    )  # fmt: skip


def _coefficients(sources) -> tuple[Coefficient, ...]:
    kinds = {"score": "score", "long_run_share": "item"} | dict.fromkeys(TERMS, "personal")
    kinds |= dict.fromkeys(sources, "added")
    return tuple(Coefficient(name, kind, COEFFICIENTS[name], 0.01) for name, kind in kinds.items())


def events_of(*rows: tuple, has_zone: bool = True) -> pa.Table:
    """Events from (user, item, days before `UNTIL`); 0.5 is noon of the day before."""
    users, items, days = zip(*rows, strict=True) if rows else ((), (), ())
    times = [UNTIL - timedelta(days=day) for day in days]
    kind = pa.timestamp("us", tz="UTC")
    stamps = pa.array(times, kind)
    if not has_zone:
        stamps = stamps.cast(pa.timestamp("us"))
    none = pa.int64() if not rows else None
    return pa.table(
        {"user_id": pa.array(users, none), "item_id": pa.array(items, none), "timestamp": stamps}
    )
