"""A generated shop with dated lists: windows of three days, and the days after them."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

import trimtab as tt
from made_lists import in_window
from trimtab.datasets import generate_log
from trimtab.engines import Markov
from trimtab.tables.times import Moment, as_datetime

FIRST, TODAY, W = date(2026, 1, 1), date(2026, 3, 10), 3


class DatedShop:
    """A generated log, and the lists of an engine made before each window."""

    def __init__(self, n_windows: int = 3, n_users: int = 3_000) -> None:
        self.log = generate_log(
            n_users=n_users, n_items=300, days=80, purchases_per_user=40, drift=1.0, start=FIRST
        )
        starts = [TODAY - timedelta(W * back) for back in range(1, n_windows + 1)]
        self.recs = pa.concat_tables([self.lists(start, W, str(start)) for start in starts])
        self.recent = pa.concat_tables(
            [in_window(self.events(start, W), str(start)) for start in starts]
        )
        self.history = self.events(FIRST, (starts[0] - FIRST).days)
        self.tonight, self.later = self.lists(TODAY, 7), self.events(TODAY, 7)

    def events(self, first: date, days: int) -> pa.Table:
        start, stop = (
            as_datetime(Moment.of(first + timedelta(n)).instant("UTC")) for n in (0, days)
        )
        times = self.log["timestamp"]
        return self.log.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, stop)))

    def lists(self, day: date, days: int, label: str | None = None) -> pa.Table:
        engine = Markov().fit(
            self.events(FIRST, (day - FIRST).days), as_datetime(Moment.of(day).instant("UTC"))
        )
        made = engine.recommend(self.events(day, days)["user_id"], 30)
        return made if label is None else in_window(made, label)

    def newest(self) -> tuple[pa.Table, pa.Table]:
        """The newest window alone, without labels."""
        label = str(TODAY - timedelta(W))
        recs, recent = (
            table.filter(pc.equal(table["window"], label)).drop_columns("window")
            for table in (self.recs, self.recent)
        )
        return recs, recent

    def lift(self, bias: tt.ItemBias) -> float:
        before = tt.evaluate(self.tonight, self.later)["ndcg"]
        return tt.evaluate(bias.apply(self.tonight), self.later)["ndcg"] / before - 1
