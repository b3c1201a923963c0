"""Times a fit at 1M users x 50 listed x 100K items, and checks every target, in one run.

    python benchmarks/fit.py                        # all parts, about 10 minutes
    python benchmarks/fit.py --only learner,literal
    python benchmarks/fit.py --quick                # a tenth of the size, to see that it runs

The yardstick is one default `np.argsort` of all listed scores as float64. It is measured many times
in between, because machines are noisy; ratios are of medians, and all seconds are printed.
Compiling is not timed. Exits with status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from shared import DriftData, ascend_alone, generate_drift, in_process
from trimtab.arrays import Lists, Sets
from trimtab.learn.ascent import Solution
from trimtab.learn.settings import LearnerSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracle"))

from paper_loop import ascend_by_paper_loop

K = 10
N_LISTED = 50
PURCHASES = 3.0
HERE = Path(__file__).parent


class Result(NamedTuple):
    """One line of the table; without a target it is for information."""

    name: str
    value: float
    target: float | None
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


class Sizes(NamedTuple):
    """The size of the data for each part."""

    users: int
    items: int
    literal_users: int
    literal_items: int
    rounds: int


FULL = Sizes(1_000_000, 100_000, 20_000, 5_500, 3)  # about 5,000 of the 5,500 items are candidates
QUICK = Sizes(100_000, 10_000, 4_000, 1_000, 1)


def paper(metric: str) -> LearnerSettings:
    return LearnerSettings(
        K, metric, unlisted="zero", penalty=0.0, max_bias=None, exclude_unsold=True
    )


@dataclass
class Bench:
    """The data, made once, and the seconds measured in the current part, by name."""

    sizes: Sizes
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @cached_property
    def data(self) -> DriftData:
        """The large table."""
        return self.make(self.sizes.users, self.sizes.items)

    def make(self, n_users: int, n_items: int) -> DriftData:
        """Lists and purchases of a size."""
        start = time.perf_counter()
        data = generate_drift(n_users, n_items, N_LISTED, PURCHASES, seed=1)
        made = f"{n_users:,} users x {N_LISTED} of {n_items:,} items"
        bought = f"{len(data.recent.items):,} recent purchases"
        print(f"made {made}, {bought}, in {time.perf_counter() - start:.1f} s", flush=True)
        return data

    def time(self, name: str, function: Callable[[], Any]) -> Any:
        """Return the result of the function; its seconds are kept and printed."""
        start = time.perf_counter()
        value = function()
        seconds = time.perf_counter() - start
        self.seconds.setdefault(name, []).append(seconds)
        print(f"  {name:46} {seconds:8.3f} s", flush=True)
        return value

    def median(self, name: str) -> float:
        """The median of the seconds kept under a name."""
        return median(self.seconds[name])

    def argsort(self) -> None:
        """Time the yardstick."""
        self.time("argsort", lambda: np.argsort(self.data.lists.scores))

    def ascend(self, name: str, data: DriftData, settings: LearnerSettings) -> Solution:
        """Time the learner."""
        return self.time(
            name, lambda: ascend_alone(data.lists, data.recent, data.n_items, settings)
        )


def warm_up() -> None:
    """Compile or load the kernels for every kind of problem."""
    data = generate_drift(2_000, 300, 20, 3.0)
    for settings in (paper("acc"), paper("ndcg"), LearnerSettings(K)):
        found = ascend_alone(data.lists, data.recent, data.n_items, settings)
    paper_loop_biases(data, LearnerSettings(K), found, keep_zero_steps=True)


# The parts; each returns lines of the table -------------------------------------------------------


def time_learner(bench: Bench) -> list[Result]:
    """The learner on coded arrays against one argsort of the listed scores."""
    kinds = {f"learner, {metric}": paper(metric) for metric in ("acc", "map", "ndcg")}
    kinds["learner, ndcg, robust settings"] = LearnerSettings(K)
    for _ in range(bench.sizes.rounds):
        for name, settings in kinds.items():
            bench.argsort()
            bench.ascend(name, bench.data, settings)
    bench.argsort()
    targets = dict(zip(kinds, (0.7, 1.2, 1.2, None), strict=True))
    yardstick = bench.median("argsort")
    return [
        Result(f"{name} / argsort", bench.median(name) / yardstick, target)
        for name, target in targets.items()
    ]


def time_public_fit(bench: Bench) -> list[Result]:
    """What reading an Arrow table with integer ids adds to the learner."""
    import trimtab as tt

    recs, recent = bench.data.recs(), bench.data.recent_events()
    learner = tt.BiasLearner.paper(k=K, metric="acc")
    small = generate_drift(2_000, 300, 20, 3.0)
    learner.fit(small.recs(), small.recent_events(), progress=False)
    for _ in range(bench.sizes.rounds):
        bench.argsort()
        bench.ascend("learner, acc", bench.data, paper("acc"))
        bench.time("public fit, acc", lambda: learner.fit(recs, recent, progress=False))
    added = bench.median("public fit, acc") - bench.median("learner, acc")
    return [Result("(public fit - learner) / argsort", added / bench.median("argsort"), 1.0)]


def time_apply(bench: Bench) -> list[Result]:
    """The top 10 with biases, on coded arrays and from a frame, against one argsort."""
    from trimtab.metrics.per_user import rank_lists

    data = bench.data
    found = bench.ascend("learner, acc", data, paper("acc"))
    rank_lists(generate_drift(100, 60, 50).lists, K, np.zeros(60))
    results = []
    for unlisted in ("zero", "never"):
        name = f"apply, unlisted={unlisted}"
        for _ in range(bench.sizes.rounds):
            bench.argsort()
            bench.time(
                name,
                lambda reach=unlisted == "zero": rank_lists(
                    data.lists, K, found.bias, found.excluded, reach
                ),
            )
        results.append(
            Result(f"{name} / argsort", bench.median(name) / bench.median("argsort"), 0.5)
        )
    return [*results, time_apply_to_frame(bench)]


def time_apply_to_frame(bench: Bench) -> Result:
    """`ItemBias.apply` from an Arrow table with integer ids to one, against one argsort.

    The biases are the default learner's on a tenth of the users; apply takes as long for any.
    """
    import trimtab as tt

    some = generate_drift(bench.sizes.users // 10, bench.sizes.items, N_LISTED, PURCHASES, seed=1)
    bias = tt.BiasLearner(k=K).fit(some.recs(), some.recent_events(), progress=False)
    bias.apply(some.recs(), K)
    recs = bench.data.recs()
    for _ in range(bench.sizes.rounds):
        bench.argsort()
        bench.time("apply, from a frame", lambda: bias.apply(recs, K))
    ratio = bench.median("apply, from a frame") / bench.median("argsort")
    return Result(f"apply, from a frame (scale {bias.scale}) / argsort", ratio, 0.15)


def paper_loop_biases(
    data: DriftData, settings: LearnerSettings, found: Solution, keep_zero_steps: bool
) -> np.ndarray:
    return ascend_by_paper_loop(
        data.lists, data.recent, data.n_items, settings, found.order, found.unit, found.excluded,
        cycles=found.cycles, keep_zero_steps=keep_zero_steps,
    )  # fmt: skip


def time_literal(bench: Bench) -> list[Result]:
    """The paper's loop, compiled, relative to the learner; both give the same bytes.

    In the paper, every user's breakpoints are sorted for every item. A faster version sorts only
    those that change something. For NDCG, with ten breakpoints per user, only that one is run, and
    the target holds for it too.
    """
    data = bench.make(bench.sizes.literal_users, bench.sizes.literal_items)
    results = []
    for metric, ways in (("acc", (True, False)), ("ndcg", (False,))):
        settings = paper(metric)
        name = f"learner, {metric}, {data.n_users:,} users"
        for _ in range(3):
            found = bench.ascend(name, data, settings)
        print(f"  {len(found.order):,} candidates, {found.cycles} cycles, {found.updates:,} moves")
        for keep_zero_steps in ways:
            way = f"paper's loop, {metric}" + ("" if keep_zero_steps else ", faster version")
            biases = bench.time(
                way, lambda s=settings, f=found, i=keep_zero_steps: paper_loop_biases(data, s, f, i)
            )
            if biases.tobytes() != found.bias.tobytes():
                sys.exit(f"{way}: other biases than the learner's")
            ratio = bench.median(way) / bench.median(name)
            target = 50.0 if keep_zero_steps == ways[0] else None
            results.append(Result(f"{way} / learner", ratio, target, at_least=True))
    return results


def spread_items(data: DriftData) -> tuple[Lists, Sets]:
    """The same rows with each item split in two, one for even users and one for odd ones."""

    def split(rows: Lists | Sets) -> np.ndarray:
        users = np.repeat(np.arange(rows.n_units, dtype=np.int32), np.diff(rows.indptr))
        return rows.items * 2 + users % 2

    return (
        data.lists._replace(items=split(data.lists)),
        data.recent._replace(items=split(data.recent)),
    )


def idle_items(data: DriftData) -> tuple[Lists, Sets]:
    """The same rows in a catalogue in which every second item is new, unlisted and unsold."""
    return (
        data.lists._replace(items=data.lists.items * 2),
        data.recent._replace(items=data.recent.items * 2),
    )


def time_scaling(bench: Bench) -> list[Result]:
    """The cost of twice the users, and of twice the items for the same number of rows.

    Twice the items can mean two things, and both must be cheap: the new items are never listed or
    sold, or the same purchases and list entries spread over twice as many candidates.
    """
    data, results = bench.data, []
    half = bench.make(bench.sizes.users // 2, bench.sizes.items)
    wider = {"idle items": idle_items(data), "spread items": spread_items(data)}
    for metric in ("acc", "ndcg"):
        settings = paper(metric)
        names = [f"learner, {metric}", f"half the users, {metric}"]
        for _ in range(bench.sizes.rounds):
            found = bench.ascend(names[0], data, settings)
            bench.ascend(names[1], half, settings)
            for kind, (lists, bought) in wider.items():
                other = bench.time(
                    f"{kind}, {metric}",
                    lambda rows=lists, sets=bought, s=settings: ascend_alone(
                        rows, sets, 2 * data.n_items, s
                    ),
                )
                if kind == "idle items" and other.bias[::2].tobytes() != found.bias.tobytes():
                    sys.exit("idle items change the biases")
        whole, halved = map(bench.median, names)
        results.append(Result(f"twice the users, {metric}", whole / halved, 2.2))
        results += [
            Result(
                f"twice the items, {kind}, {metric}", bench.median(f"{kind}, {metric}") / whole, 1.2
            )
            for kind in wider
        ]
    return results


def fit_alone(folder: Path, n_items: int, metric: str) -> tuple[float, float]:
    """Bytes of the input, and how far memory rose above the start, with the input, in MB."""

    def memory(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

    small = generate_drift(100, 60, 20, 3.0)
    ascend_alone(small.lists, small.recent, small.n_items, paper(metric))  # compile first
    start = memory("VmRSS")
    arrays = [np.load(folder / f"{place}.npy") for place in range(5)]
    ascend_alone(Lists(*arrays[:3]), Sets(*arrays[3:]), n_items, paper(metric))
    return sum(array.nbytes for array in arrays) / 2**20, memory("VmHWM") - start


def measure_memory(bench: Bench) -> list[Result]:
    """Peak memory of a fresh process, its input included, over the bytes of that input."""
    data, results = bench.data, []
    with tempfile.TemporaryDirectory() as folder:
        for place, array in enumerate((*data.lists, *data.recent)):
            np.save(Path(folder) / f"{place}.npy", array)
        for metric in ("acc", "ndcg"):
            size, peak = in_process(fit_alone, Path(folder), data.n_items, metric)
            print(f"  {metric}: input {size:.0f} MB, peak {peak:.0f} MB")
            results.append(Result(f"peak memory / input, {metric}", peak / size, 1.0))
    return results


def time_start(bench: Bench) -> list[Result]:
    """How much longer the first fit of a process takes than the second."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, target in (("empty cache", 20.0), ("cached kernels", 1.0)):
            done = subprocess.run(
                [sys.executable, str(HERE / "fit_start.py")],
                env={**os.environ, "NUMBA_CACHE_DIR": folder}, check=True, stdout=subprocess.PIPE,
            )  # fmt: skip
            seconds = json.loads(done.stdout)
            shown = ", ".join(f"{what} {value:.2f} s" for what, value in seconds.items())
            print(f"  {name}: {shown}", flush=True)
            extra = seconds["first fit"] - seconds["second fit"]
            results.append(Result(f"first fit - second fit, {name}, seconds", extra, target))
            ratio = seconds["import trimtab"] / seconds["import pyarrow"]
            results.append(Result(f"import trimtab / import pyarrow, {name}", ratio, 4.0))
    return results


PARTS: dict[str, Callable[[Bench], list[Result]]] = {
    "learner": time_learner,
    "public": time_public_fit,
    "apply": time_apply,
    "literal": time_literal,
    "scaling": time_scaling,
    "memory": measure_memory,
    "start": time_start,
}


def print_table(results: list[Result]) -> None:
    print(f"\n{'':56} {'measured':>9}  {'target':>9}")
    for result in results:
        target = ""
        if result.target is not None:
            target = f"{'>=' if result.at_least else '<='} {result.target:g}"
        missed = "" if result.met else "  MISSED"
        print(f"{result.name:56} {result.value:9.2f}  {target:>9}{missed}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, once each")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--only {min(unknown)}: there are {', '.join(PARTS)}")
    bench = Bench(QUICK if given.quick else FULL)
    warm_up()
    results = []
    for name in chosen:
        print(f"{name}: {PARTS[name].__doc__.splitlines()[0]}", flush=True)
        bench.seconds.clear()
        results += PARTS[name](bench)
    print_table(results)
    if given.quick:
        print("targets are for the full size")
        return 0
    return int(not all(result.met for result in results))


if __name__ == "__main__":
    sys.exit(main())
