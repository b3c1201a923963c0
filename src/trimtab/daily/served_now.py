"""The version served now, as a refresh finds it: its item ids, and biases to start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.training_tables import ShopData
from trimtab.errors import RefusedError, StoreError, warn
from trimtab.learn import BiasLearner
from trimtab.models import ItemBias
from trimtab.models.model import text_columns
from trimtab.store import Store
from trimtab.tables.columns import ITEM
from trimtab.tables.files import is_csv
from trimtab.tables.vocabulary import id_column


class ServedNow(NamedTuple):
    """The version served now."""

    number: int | None  # None if nothing was published yet
    bias: ItemBias | None = None  # None if it cannot be read
    error: StoreError | None = None  # why it cannot be read
    method: str | None = None  # that learned it; None if it does not say

    @staticmethod
    def read(store: Store, number: int | None) -> ServedNow:
        """Read the biases of a version; a damaged one is no error."""
        if number is None:
            return ServedNow(None)
        try:
            version = store.version(number)
            method = version.manifest.get("method", {}).get("used")
            return ServedNow(number, version.bias(), method=method)
        except StoreError as error:
            return ServedNow(number, error=error)

    def start_for(self, learner: BiasLearner) -> ItemBias | None:
        """Return the biases to start from; None if they are of another scale or cannot be read."""
        if learner.is_hierarchy:  # it finds the same optimum from any start
            return None
        if self.error is not None:
            warn(f"cannot warm-start from version {self.number}; starting from zero: {self.error}")
        if self.bias is None or self.bias.scale != learner.ascent_scale:
            return None
        return self.bias

    def text_in_csv(self, lists: DatedLists, data: ShopData) -> tuple[str, ...]:
        """Return the columns that are read as text because the served ids are text.

        Only if all tables are CSV files, which do not say whether '12' is a number.
        """
        are_csv = [data.from_csv[0], *(is_csv(path) for path in lists.days.values())]
        return text_columns(self.bias) if all(are_csv) else ()

    def has_type_of(self, recs: pa.Table, accept_others: bool) -> bool:
        """Return whether item ids are of the type served; refuse others unless accepted."""
        if self.bias is None:
            return True
        served = "integers" if isinstance(self.bias.item_ids, np.ndarray) else "strings"
        found = id_column("lists", ITEM, recs[ITEM].slice(0, 1)).kind
        if found != served and not accept_others:
            raise RefusedError(
                f"{ITEM} holds {found}, but {served} in version {self.number}, the current one: a "
                f"service would refuse all requests with {served}: not published; restore the "
                f"type of the ids, or pass --accept id-type"
            )
        return found == served
