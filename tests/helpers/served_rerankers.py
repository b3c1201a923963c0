"""Rerankers to serve: made by hand, published in a store, and applied to requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import trimtab as tt
from services import ABOUT, Running, applied, publish
from trimtab.models import Coefficient, RerankSummary
from trimtab.models.widening import USUAL_WINDOW
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables.times import instant_of

LEARNED_UNTIL = datetime(2026, 3, 10, tzinfo=UTC)
TERMS = ("bought_before", "times_bought", "time_since", "bought_lately")
MICROSECOND = timedelta(microseconds=1)


class Reloading(NamedTuple):
    """A server and its store."""

    server: Running
    store: Store

    def serve(self, made: tt.Reranker | tt.ItemBias) -> int:
        """Serve another version; return its number."""
        number = (publish_reranker if isinstance(made, tt.Reranker) else publish)(self.store, made)
        answer = self.server.reload()
        assert (answer["version"], answer["refused"]) == (number, None)
        return number

    def batch(self, lists: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the answers to several requests."""
        answer = self.server.client.post("/rerank/batch", json={"lists": lists})
        assert answer.status_code == 200, answer.text
        return answer.json()["lists"]


def make_reranker(
    bias: tt.ItemBias, item_part: Any = None, trending: Any = (),
    terms: Any = (1.0, 0.5, -0.3, 0.2), sources: dict[str, float] | None = None,
    score: float = 1.0, widen: str = "any", may_repeat: bool = True, has_zone: bool = True,
) -> tt.Reranker:  # fmt: skip
    """Return a reranker with these biases, as if it had been learned.

    Args:
        bias: its biases.
        item_part: by item; all 0 if None.
        trending: indices of items, best first.
        terms: coefficients of the personal terms; none at all if empty.
        sources: coefficients of the sources of wider lists.
        score: coefficient of the engine's score.
        widen: what may be added to lists.
        may_repeat: whether items that the user already bought may be added.
        has_zone: whether timestamps have a time zone.
    """
    sources = sources or {}
    learned = [("score", "score", score), *((name, "added", sources[name]) for name in sources)]
    learned += [(name, "personal", value) for name, value in zip(TERMS, terms, strict=False)]
    return tt.Reranker(
        bias=bias,
        item_part=np.zeros(len(bias)) if item_part is None else np.array(item_part, float),
        bought_part=np.zeros(len(bias)),
        trending=np.array(trending, np.int32),
        learned=tuple(Coefficient(*one, 0.1) for one in learned) if len(terms) else (),
        summary=RerankSummary("ndcg", bias.summary.k, 1, 10, 0.9, tuple(sources)),
        settings={"widen": widen},
        may_repeat=may_repeat,
        score_unit=1.0,
        learned_until=instant_of(LEARNED_UNTIL),
        has_zone=has_zone,
        window_length=USUAL_WINDOW,
    )


def publish_reranker(store: Store, reranker: tt.Reranker, keep: int = 3) -> int:
    """Publish a version with a reranker, and return its number."""

    def fill(folder: Path) -> None:
        reranker.bias.save(folder / "bias")
        reranker.save(folder / "reranker")

    with open_writer(store) as writer:
        return writer.publish(fill, ABOUT, keep)


def reranked(reranker: tt.Reranker, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what `Reranker.apply` returns for a request; entries of `recent` count once."""
    if "recent" not in asked or not asked["items"]:
        return applied(reranker, asked)
    kind = pa.array(order_of(asked)).type
    return applied(reranker, asked, **events_of(reranker, asked, kind))


def order_of(answer: dict[str, Any]) -> list[Any]:
    """Return the items of a request or of an answer."""
    return [item["item_id"] for item in answer["items"]]


def events_of(reranker: tt.Reranker, asked: dict[str, Any], kind: pa.DataType) -> dict[str, Any]:
    """Return the options `history` and `as_of` for the recent items of a request."""
    as_of = instant_for(reranker, asked)
    times = [
        datetime.fromisoformat(entry["timestamp"])
        if "timestamp" in entry
        else as_of - MICROSECOND - timedelta(int(entry["days_ago"]))
        for entry in asked["recent"]
    ]
    stamp = pa.timestamp("us", "UTC" if reranker.has_zone else None)
    history = pa.table(
        {
            "user_id": pa.array([1] * len(times), pa.int64()),
            "item_id": pa.array([entry["item_id"] for entry in asked["recent"]], kind),
            "timestamp": pa.array(times, stamp),
        }
    )
    return {"history": history, "as_of": as_of}


def instant_for(reranker: tt.Reranker, asked: dict[str, Any]) -> datetime:
    """Return the instant of a request: now if it has none."""
    if "as_of" in asked:
        return datetime.fromisoformat(asked["as_of"])
    now = max(datetime.now(UTC), LEARNED_UNTIL)
    return now if reranker.has_zone else now.replace(tzinfo=None)
