"""Why a Reranker ranks as it does: the list of one user to explain, and every coefficient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError
from trimtab.models.model import Coefficient
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW, read_frame
from trimtab.tables.vocabulary import Vocabulary, plain_type

_TWICE = math.log(2.0)
_ONE_MORE = {  # how much of a term one compares, and the words for it
    "score": (1.0, "a score e times as high"),
    "bought_before": (1.0, "bought before by the user"),
    "times_bought": (_TWICE, "bought twice as often by the user"),
    "time_since": (_TWICE, "twice as long since the user's last purchase"),
    "bought_lately": (_TWICE, "twice as many purchases of late by the user"),
    "sales_if_bought": (_TWICE, "twice the sales in the last window, if bought before"),
    "repeats_if_bought": (_TWICE, "twice as often bought again, if bought before by the user"),
    "trending": (1.0, "added because it sells well, instead of the last item of the list"),
    "own": (1.0, "added because the user bought it, instead of the last item of the list"),
    "long_run_share": (_TWICE, "twice the share of all sales"),
    "rise_of_27_windows": (_TWICE, "twice the share in the last 27 windows, against all time"),
    "rise_of_9_windows": (_TWICE, "twice the share in the last 9 windows, against 27"),
    "rise_of_3_windows": (_TWICE, "twice the share in the last 3 windows, against 9"),
    "rise_of_window": (_TWICE, "twice the share in the last window, against 3"),
    "rise_of_third": (_TWICE, "twice the share in the last third of a window, against all of it"),
    "rise_of_twelfth": (_TWICE, "twice the share in the last twelfth of a window, against a third"),
    "sales_of_window": (_TWICE, "twice the sales in the last window"),
    "bought_per_listed": (_TWICE, "bought twice as often per list that holds it"),
    "share_shown": (_TWICE, "shown twice as often by the engine"),
    "unsold": (_TWICE, "twice as long unsold"),
    "age": (_TWICE, "twice as long on sale"),
    "repeat_rate": (_TWICE, "twice as often bought again"),
}
_UNKNOWN = 1.0  # standard error: from a fifth to five times as likely


def read_user(recs: Any, user: Any) -> tuple[pa.Table, Any]:
    """Return the lists of one user, and the ids of the items on all lists; raise if there is none.

    What is on another list may be added to this one.
    """
    table = read_frame(recs, "recs", USER, ITEM, SCORE, optional=(WINDOW,))
    users = table.columns[USER]
    kind = plain_type(users.type)
    try:
        wanted = pa.scalar(user).cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{user!r} is not an id like those of recs ({kind})") from error
    own = table.columns.filter(pc.equal(users, wanted))
    if own.num_rows == 0:
        raise DataError(f"user={user!r}: not in column '{USER}' of recs; pass a user with a list")
    return own, Vocabulary.encode(table.ids(ITEM))[0].ids


def coefficient_table(learned: Sequence[Coefficient], scale: str) -> pa.Table:
    """Return coefficients as a table, each with a sentence; the scale is that of the biases."""
    kinds = {"name": pa.string(), "kind": pa.string(), "value": pa.float64(), "error": pa.float64()}
    columns = {name: pa.array([getattr(c, name) for c in learned], kinds[name]) for name in kinds}
    columns["meaning"] = pa.array([_explain(c, scale) for c in learned], pa.string())
    return pa.table(columns)


def _explain(coefficient: Coefficient, scale: str) -> str:
    """Return what a coefficient means, as in "bought before by the user: 3.1 x as likely".

    Where a term hardly varies within lists, the prior's 0 is left, with a large error.
    """
    step, words = _ONE_MORE.get(coefficient.name, (_TWICE, f"twice the {coefficient.name}"))
    if coefficient.kind == "score" and scale != "log":
        words = "a score higher by the gap from the first to the k-th of the list"
    if coefficient.error > _UNKNOWN and abs(coefficient.value) < coefficient.error / 10:
        return f"{words}: not learned"
    ratio = math.exp(min(step * coefficient.value, 700.0))
    times = f"{ratio:.2f} x" if 0.8 < ratio < 1.25 else f"{ratio:.2g} x"
    return f"{words}: {times} as likely"
