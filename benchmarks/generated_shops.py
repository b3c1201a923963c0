"""The default learner on generated shops whose truth is known: kinds of scores, sizes, intervals.

    python benchmarks/generated_shops.py                       # all three, about half an hour
    python benchmarks/generated_shops.py kinds                 # half a minute
    python benchmarks/generated_shops.py sizes --trials 20     # 200 trials by default
    python benchmarks/generated_shops.py intervals --quick     # 2,000 and 10,000 users only

kinds: the lift by kind of score. The generator's score p is a probability; the others are
transforms that keep the order of every list, but for the last three.
sizes: small shops, with and without drift. The expected lift is exact, from the probabilities.
intervals: how many 90 % intervals of biases hold the truth, the mean log change of an item's share
of purchases over those who list it (`DriftData.effective_trend`). A bias means something relative
to the others only, so both are centred as `BiasLearner` centres: by slots of the engine's top k.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from judged_fits import Case, Outcome, fit, percent
from shared import DriftData, generate_drift
from trimtab.arrays import Floats

K, N_LISTED = 10, 50
SCALE_SPREAD = 2.7  # of the log of a user's own scale
BUYERS = 0.8  # share of users who buy the one item
SMALL = (20, 40, 100)  # users of small shops
MIN_LISTS = 10  # of an item whose interval is judged; below, it is fresh
SIZES = {2_000: 5, 10_000: 3, 50_000: 2, 200_000: 1}  # users, and seeds


def make_case(data: DriftData, recs: pa.Table | None = None, **more: Any) -> Case:
    """The tables of a fit on generated drift."""
    recs = data.recs() if recs is None else recs
    events = (data.recent_events(), recs, data.test_events(), data.history_events())
    return Case(recs, *events, **more)


# Kinds of scores --------------------------------------------------------------------------------


def transforms(p: Floats) -> dict[str, Floats]:
    """Scores by user and slot."""
    logit, random = np.log(p), np.random.default_rng(1)
    own_scale = np.exp(random.normal(0.0, SCALE_SPREAD, (len(p), 1)))
    is_even = np.arange(len(p))[:, None] % 2 == 0
    return {
        "probabilities": p,
        "cosines": np.tanh((logit + 5.8) / 4.0),
        "mixed-sign logits": logit + 5.7,
        "logits x own scale": (logit + 5.0) * own_scale,
        "half of users negative": np.where(is_even, p, logit),
        "p + 1000": p + 1000.0,
        "log p + 20": logit + 20.0,
        "constant": np.ones_like(p),
    }


def one_item_for_most(data: DriftData, slot: int) -> Case:
    """Every list has one more item in a slot (in place of another); most users buy it always."""
    random, plain = np.random.default_rng(7), make_case(data)
    listed = data.lists.items.astype(np.int64).reshape(-1, N_LISTED).copy()
    listed[:, slot] = data.n_items
    recs = plain.recs.set_column(1, "item_id", pa.array(listed.reshape(-1)))

    def add(events: pa.Table) -> pa.Table:
        buyers = np.flatnonzero(random.random(data.n_users) < BUYERS)
        more = pa.table({"user_id": buyers, "item_id": np.full(len(buyers), data.n_items)})
        return pa.concat_tables([events, more])

    history, recent, later = map(add, (plain.history, plain.recent, plain.later))
    return Case(recs, recent, recs, later, history)


def judge_kinds(options: argparse.Namespace) -> Table:
    """Lift and scale by the kind of scores."""
    data = generate_drift(8_000, 1_500, N_LISTED, drift=1.0, seed=options.seed)
    cases = {}
    for name, scores in transforms(data.lists.scores.reshape(-1, N_LISTED)).items():
        recs = data.recs()
        place = recs.column_names.index("score")
        cases[name] = make_case(data, recs.set_column(place, "score", pa.array(scores.ravel())))
    cases["80 % buy the first item"] = one_item_for_most(data, 0)
    cases["80 % buy the last item"] = one_item_for_most(data, N_LISTED - 1)
    title = "Lift of NDCG@10 in % on the generator's later purchases"
    table = Table("scores", "lift", "forecast", "scale", title=title)
    for name, case in cases.items():
        found = fit(case)
        table.add_row(name, percent(found.lift), percent(found.forecast), found.bias.scale)
    return table


# Small shops ------------------------------------------------------------------------------------


def expected_lift(data: DriftData, top: pa.Table) -> float:
    """The lift of the expected NDCG of one purchase a user."""
    users = np.repeat(np.arange(data.n_users), N_LISTED)
    ranks = np.tile(np.arange(1, N_LISTED + 1), data.n_users)
    chance = np.zeros((data.n_users, data.n_items))
    with np.errstate(under="ignore"):
        chance[users, data.lists.items] = data.lists.scores * np.exp(data.log_changes())
    alone = (chance[users, data.lists.items] / np.log2(1.0 + ranks))[ranks <= K].sum()
    shown = (top[name].to_numpy() for name in ("user_id", "item_id"))
    gained = (chance[tuple(shown)] / np.log2(1.0 + top["rank"].to_numpy())).sum()
    return float(gained / alone - 1.0)


def judge_sizes(options: argparse.Namespace) -> Table:
    """How many small shops get biases, and what these bring."""
    title = f"{options.trials} generated shops each; lifts in %"
    heads = ("moved", "expected lift", "worst", "lift of summed NDCG", "forecast, if moved")
    table = Table("users", "drift", *heads, title=title)
    for drift in (0.0, 1.0):
        for n_users in SMALL:
            found: list[Outcome] = []
            expected = []
            for seed in range(options.trials):
                data = generate_drift(n_users, 300, N_LISTED, drift=drift, seed=seed)
                found.append(fit(make_case(data)))
                expected.append(expected_lift(data, found[-1].top))
            told = [own.forecast for own in found if own.moved and not np.isnan(own.forecast)]
            summed = sum(own.after for own in found) / sum(own.before for own in found) - 1.0
            lifts = (np.mean(expected), min(expected), summed, np.mean(told) if told else np.nan)
            moved = sum(own.moved for own in found)
            table.add_row(f"{n_users}", f"{drift:g}", f"{moved}", *map(percent, lifts))
    return table


# Intervals --------------------------------------------------------------------------------------


def judge_intervals(options: argparse.Namespace) -> Table:
    """Share of items whose interval holds the truth."""
    title = "Share of items, in %, whose 90 % interval holds the effective change"
    table = Table("users", "drift", "held", "half-width", "lift", title=title)
    for n_users in (n for n in SIZES if n <= 10_000 or not options.quick):
        for drift in (0.25, 0.5, 1.0):
            found = [
                measure(generate_drift(n_users, 2_000, N_LISTED, drift=drift, seed=seed))
                for seed in range(SIZES[n_users])
            ]
            held, width, lift = np.mean(found, axis=0)
            shown = (f"{100 * held:.1f}", f"{width:.2f}", f"{100 * lift:+.1f}")
            table.add_row(f"{n_users:,}", f"{drift:g}", *shown)
    return table


def measure(data: DriftData) -> tuple[float, float, float]:
    """Share of items whose interval holds the truth, the mean half-width, and the fit's lift."""
    outcome = fit(make_case(data, items=data.catalogue(), settings={"scale": "log"}))
    table = outcome.bias.table()
    columns = np.full((3, data.n_items), np.nan)
    columns[:, table["item_id"].to_numpy()] = [table[n].to_numpy() for n in ("bias", "low", "high")]
    listed = np.bincount(data.lists.items, minlength=data.n_items)
    top = data.lists.items.reshape(-1, N_LISTED)[:, :K].reshape(-1)
    known = (listed >= MIN_LISTS) & ~np.isnan(columns[0]) & np.isfinite(data.trend)
    shown = np.bincount(top, minlength=data.n_items)[known]
    bias, low, high = columns[:, known]
    truth = data.effective_trend[known]
    truth = truth - np.average(truth, weights=shown) + np.average(bias, weights=shown)
    covered = (low <= truth) & (truth <= high)
    return float(covered.mean()), float((high - low).mean() / 2), outcome.lift


SUBJECTS = {"kinds": judge_kinds, "sizes": judge_sizes, "intervals": judge_intervals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", metavar="|".join(SUBJECTS))
    parser.add_argument("--seed", type=int, default=2, help="of kinds")
    parser.add_argument("--trials", type=int, default=200, help="shops of each size")
    parser.add_argument("--quick", action="store_true", help="intervals: two sizes only")
    options = parser.parse_args()
    for name in options.subjects or SUBJECTS:
        Console(width=130).print(SUBJECTS[name](options))


if __name__ == "__main__":
    main()
