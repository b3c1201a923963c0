"""Checks before a refresh publishes, in addition to the learner's guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.daily.training_tables import ShopData
from trimtab.errors import RefusedError, StoreError, warn
from trimtab.models import ItemBias
from trimtab.store import Store
from trimtab.tables.columns import ITEM, RANK, USER
from trimtab.tables.vocabulary import Vocabulary, id_column

_LEAST_USERS, _FEW_USERS = 0.7, 0.9  # of the users in the training lists; warn below the second
_LEAST_UNCHANGED = 0.5  # share of slots left unchanged tonight, over the share in training lists
Rank = Callable[[pa.Table, int], pa.Table]  # lists and a number of slots to their top k
_ADVICE = "check these lists, or pass --accept different-lists"


def require_newer_day(store: Store, current: int | None, data: ShopData, accept: bool) -> None:
    """Refuse to replace the biases of a newer day; warn when the time zone has changed."""
    if current is None:
        return
    try:
        served = store.version(current)
    except StoreError:
        return  # damaged: anything is better
    if str(data.as_of) < served.as_of and not accept:
        raise RefusedError(
            f"as_of={data.as_of}: version {current}, the current one, is for a later day, "
            f"{served.as_of}: not published; pass --accept older to publish anyway"
        )
    zone = served.manifest.get("tz", data.log.tz)  # a version published by hand may have none
    if zone != data.log.tz:
        warn(f"tz={data.log.tz}: version {current} was made with tz={zone}; check --tz")


def require_no_concerns(concerns: Sequence[str], changes_lists: bool, current: int | None) -> None:
    """Refuse what the guard warns of.

    Args:
        concerns: what the guard said.
        changes_lists: whether anything was learned; without a clear gain, nothing is.
        current: the version served now, which stays; None if there is none.
    """
    if concerns:
        stays = "" if current is None else f", version {current} stays in use"
        what = "anyway" if changes_lists else "the engine alone"
        raise RefusedError(
            f"{concerns[0]}: not published{stays}; pass --accept guard to publish {what}"
        )


def require_similar_lists(
    bias: ItemBias, newest: tuple[pa.Table, date], top: pa.Table, trained: pa.Table,
    duplicates: str, rank: Rank, n_users: tuple[int, int],
) -> None:  # fmt: skip
    """Refuse lists unlike the training lists: few users, or scores on another scale.

    Scores are on another scale when re-ranking changes far more slots than in the training lists.

    Args:
        bias: learned biases.
        newest: the lists to re-rank, and their day.
        top: these lists re-ranked.
        trained: the newest training lists.
        duplicates: what to do with repeated rows.
        rank: how the lists were re-ranked.
        n_users: in both kinds of lists, of which these may be only some.
    """
    (listed, day), (tonight, usual) = newest, n_users
    found = f"lists of {day} cover {tonight} users; the training lists covered {usual}"
    if tonight < _LEAST_USERS * usual:
        raise RefusedError(f"{found}: not published; {_ADVICE}")
    if tonight < _FEW_USERS * usual:
        warn(f"{found}; check whether lists are missing")
    k = int(pc.max(top[RANK]).as_py())
    share = unchanged_share(bias, listed, top, duplicates)
    usual_share = unchanged_share(bias, trained, rank(trained, k), duplicates)
    if share < _LEAST_UNCHANGED * usual_share:
        raise RefusedError(
            f"lists of {day}: re-ranking leaves {share:.0%} of the slots unchanged, but "
            f"{usual_share:.0%} in the training lists; the scores may be on another scale: not "
            f"published; {_ADVICE}"
        )


def unchanged_share(
    bias: ItemBias, lists: pa.Table, top: pa.Table, duplicates: str = "error"
) -> float:
    """Return the share of the engine's own top-k items that stay in the top k."""
    if top.num_rows == 0:
        return 0.0
    zero = replace(bias, bias=np.zeros(len(bias)))
    k = int(pc.max(top[RANK]).as_py())
    engine_top = zero.apply(lists, k, duplicates=duplicates, depth="all")
    tables = (engine_top, top)
    _, user_codes = Vocabulary.encode(*(id_column("lists", USER, own[USER]) for own in tables))
    items, item_codes = Vocabulary.encode(*(id_column("lists", ITEM, own[ITEM]) for own in tables))
    before, after = (
        users.astype(np.int64) * len(items) + codes
        for users, codes in zip(user_codes, item_codes, strict=True)
    )
    return float(np.isin(before, after).mean())
