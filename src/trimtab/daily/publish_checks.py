"""What a refresh looks at before it publishes, beside what the learner's own guard says."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.bias import ItemBias
from trimtab.daily.inputs import Source
from trimtab.errors import RefusedError, StoreError, warn
from trimtab.store import Store
from trimtab.tables.columns import ITEM, RANK, USER
from trimtab.tables.ids import encode_ids, id_column

_LEAST_USERS = 0.5  # of those with lists that taught, tonight
_LEAST_KEPT = 0.5  # of the share of places that biases leave as they were, tonight
_ADVICE = "look at these lists, or pass --accept unlike"


def require_newer(store: Store, current: int | None, source: Source, accept: bool) -> None:
    """Refuse to put an older day's biases in place of a newer one's; warn of another time zone."""
    if current is None:
        return
    try:
        served = store.version(current)
    except StoreError:
        return  # damaged: anything is better
    if str(source.as_of) < served.as_of and not accept:
        raise RefusedError(
            f"as_of={source.as_of} is before {served.as_of}, for which version {current} is "
            f"served: not published; pass --accept older to do so"
        )
    if served.manifest["tz"] != source.log.tz:
        warn(
            f"days begin in {source.log.tz}, those of version {current} in "
            f"{served.manifest['tz']}; check --tz"
        )


def require_alike(
    bias: ItemBias, newest: tuple[pa.Table, date], top: pa.Table, taught: pa.Table, duplicates: str
) -> None:
    """Refuse lists that biases were not learned for: of few users, or with scores of another kind.

    They are of another kind when biases move far more of the places than in the lists that taught.

    Args:
        bias: what was learned.
        newest: the lists to be re-ranked, and their day.
        top: these lists re-ranked.
        taught: the newest of the lists that taught.
        duplicates: what to do with repeated rows.
    """
    listed, day = newest
    users, usual = (pc.count_distinct(table[USER]).as_py() for table in (listed, taught))
    if users < _LEAST_USERS * usual:
        raise RefusedError(
            f"the lists of {day} are of {users} users, those that taught of {usual}: not "
            f"published; {_ADVICE}"
        )
    k = int(pc.max(top[RANK]).as_py())
    kept = kept_share(bias, listed, top, duplicates)
    before = kept_share(bias, taught, bias.apply(taught, k, duplicates=duplicates), duplicates)
    if kept < _LEAST_KEPT * before:
        raise RefusedError(
            f"biases would leave {kept:.0%} of the places in the lists of {day} as they are, "
            f"{before:.0%} in those that taught: are scores of another kind? Not published; "
            f"{_ADVICE}"
        )


def kept_share(bias: ItemBias, lists: pa.Table, top: pa.Table, duplicates: str = "error") -> float:
    """The share of the engine's own top places whose items stay in them when biases are added."""
    none = replace(bias, bias=np.zeros(len(bias)))
    alone = none.apply(lists, int(pc.max(top[RANK]).as_py()), duplicates=duplicates)
    _, users = encode_ids([id_column("lists", USER, table[USER]) for table in (alone, top)])
    items, codes = encode_ids([id_column("lists", ITEM, table[ITEM]) for table in (alone, top)])
    before, after = (
        user.astype(np.int64) * len(items) + item for user, item in zip(users, codes, strict=True)
    )
    return float(np.isin(before, after).mean())
