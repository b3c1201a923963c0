"""What was learned: one interface, `Model`, and two models, `ItemBias` and `Reranker`."""

from __future__ import annotations

from pathlib import Path

from trimtab.models.applying import Model
from trimtab.models.exports import Folded
from trimtab.models.item_bias import ItemBias
from trimtab.models.model import Coefficient, LeftOut, Ranked, RerankSummary, Summary
from trimtab.models.reranker import Reranker
from trimtab.models.saved import holds_reranker

__all__ = [
    "Coefficient",
    "Folded",
    "ItemBias",
    "LeftOut",
    "Model",
    "Ranked",
    "RerankSummary",
    "Reranker",
    "Summary",
    "load",
]


def load(folder: str | Path) -> ItemBias | Reranker:
    """Return whichever model is saved in a folder, or in the served version of a store."""
    return (Reranker if holds_reranker(Path(folder)) else ItemBias).load(folder)
