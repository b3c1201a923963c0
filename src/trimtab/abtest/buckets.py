"""The bucket of a user, control or treatment, by a salted hash of the id.

A user's number is the first 13 hexadecimal digits of SHA-256 of `salt:user_id`, over 16^13: spread
evenly from 0 to 1, the same wherever it is computed, and different for another salt. Users below
`share` are in the treatment group. Ids are hashed as text: 7 and "7" are the same user. A database
can compute it too; in PostgreSQL:

    substr(encode(sha256(convert_to('summer:' || user_id, 'UTF8')), 'hex'), 1, 13)
        < lpad(to_hex((0.5 * 16^13)::bigint), 13, '0')
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats
from trimtab.checks import require_number
from trimtab.errors import SettingError
from trimtab.models import ItemBias
from trimtab.tables.columns import BUCKET, RANK, USER, WINDOW, read_frame

CONTROL, TREATMENT = "control", "treatment"
_DIGITS = 13
_WHOLE: int = 16**_DIGITS


@dataclass(frozen=True)
class Experiment:
    """A split of users into two buckets.

    Args:
        salt: name of the test; another salt gives another split.
        share: share of users in the treatment group, from 0 to 1.

    Example:
        >>> Experiment("summer").bucket(7), Experiment("autumn").bucket(7)
        ('control', 'treatment')
    """

    salt: str
    share: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.salt, str) or not self.salt:
            raise SettingError(f"salt={self.salt!r}: must be text, the name of the test")
        require_number("share", self.share, 0, 1)

    def bucket(self, user_id: int | str) -> str:
        """Return the bucket of one user."""
        return TREATMENT if self._position(user_id) < self.share else CONTROL

    def assign(self, user_ids: Any) -> pa.Array:
        """Return the buckets of users, in their order, as text."""
        treated = self.positions(user_ids) < self.share
        return pa.array(np.array([CONTROL, TREATMENT])[treated.astype(int)], pa.string())

    def positions(self, user_ids: Any) -> Floats:
        """Return the numbers of users, from 0 to 1, in their order; the treated are below share."""
        ids = user_ids if isinstance(user_ids, pa.Array | pa.ChunkedArray) else pa.array(user_ids)
        found = {user: self._position(user) for user in ids.unique().to_pylist()}
        return np.array([found[user] for user in ids.to_pylist()], np.float64)

    def apply(self, bias: ItemBias, recs: Any, k: int = 10, **options: Any) -> Any:
        """Return lists like `bias.apply`, with a bucket column and unbiased lists for control.

        Args:
            bias: biases for the treatment group.
            recs: user_id, item_id, score: the engine's lists.
            k: slots per user.
            options: options of `ItemBias.apply`, for both buckets.
        """
        table = read_frame(recs, "recs", USER)
        buckets = self.assign(table.columns[USER])
        lists = nw.from_native(recs, eager_only=False).lazy().collect()
        tops = []
        for name, learned in ((CONTROL, neutral(bias)), (TREATMENT, bias)):
            rows = pc.equal(buckets, name).to_pylist()
            if any(rows):
                top = learned.apply(lists.filter(rows).to_native(), k, **options)
                tops.append(nw.from_native(top).with_columns(nw.lit(name).alias(BUCKET)))
        whole = nw.concat(tops)
        keys = [name for name in (USER, WINDOW) if name in whole.columns]
        ordered = whole.sort(*keys, RANK)
        return (ordered.lazy() if table.lazy else ordered).to_native()

    def _position(self, user_id: int | str) -> float:
        """Return the number of a user, from 0 to 1: 52 bits, so that it is exact."""
        digest = hashlib.sha256(f"{self.salt}:{user_id}".encode()).hexdigest()
        return float(int(digest[:_DIGITS], 16) / _WHOLE)


def neutral(bias: ItemBias) -> ItemBias:
    """Return biases for the same items that change nothing, for control."""
    none = np.zeros(len(bias))
    return replace(
        bias, bias=none, excluded=np.zeros(len(bias), bool), trend=none, category=none,
        scale="additive", unlisted="never", depth=None,
    )  # fmt: skip
