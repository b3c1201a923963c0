"""Compares ACC, MAP and NDCG with RecTools' on random problems, user by user.

RecTools needs numpy < 2, so it is installed into a throwaway environment and given the problems
as a JSON file; ours are computed by the interpreter that runs this script.

    python benchmarks/rectools_check.py

ACC is its `Precision`; NDCG its `NDCG(divide_by_achievable=True)`; its `MAP(divide_by_k=False)`
divides by R, ours by min(k, R). Both leave out users who bought nothing and count users without a
list as 0. Exits with status 1 when any value differs by more than 1e-9.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

TOLERANCE = 1e-9
N_PROBLEMS = 60
METRICS = ("acc", "map", "ndcg")


# Problems: k, and per user the list in rank order and the items bought -------------------------


def make_problems(seed: int) -> list[dict[str, Any]]:
    import numpy as np

    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(N_PROBLEMS):
        n_users, n_items = int(rng.integers(2, 200)), int(rng.integers(2, 60))
        top = random_rows(rng, n_users, n_items)
        bought = random_rows(rng, n_users, n_items)
        # RecTools takes no empty tables.
        top[0], bought[0] = top[0] or [0], bought[0] or [0]
        problems.append({"k": int(rng.integers(1, 31)), "top": top, "bought": bought})
    return problems


def random_rows(rng: Any, n_users: int, n_items: int) -> list[list[int]]:
    longest = rng.integers(1, n_items + 1)
    return [
        rng.permutation(n_items)[: rng.integers(0, longest + 1)].tolist() for _ in range(n_users)
    ]


# Ours ------------------------------------------------------------------------------------------


def our_values(problem: dict[str, Any]) -> dict[str, list[float]]:
    """Values of each user who bought something, in order, and then their mean."""
    import numpy as np

    from trimtab.metrics.per_user import unit_metrics

    bought = to_rows([sorted(row) for row in problem["bought"]])
    units = unit_metrics(to_rows(problem["top"]), bought, problem["k"])
    judged = {name: getattr(units, name)[np.diff(bought.indptr) > 0] for name in METRICS}
    return {name: [*values.tolist(), float(values.mean())] for name, values in judged.items()}


def to_rows(lists: list[list[int]]) -> Any:
    import numpy as np

    from trimtab.arrays import Sets

    indptr = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return Sets(indptr, np.array([item for row in lists for item in row], dtype=np.int32))


# RecTools', in its own environment -------------------------------------------------------------


def rectools_values(problem: dict[str, Any]) -> dict[str, list[float]]:
    """Values of each user who bought something, in order, converted to ours, then their mean."""
    import numpy as np
    from rectools.metrics import MAP, NDCG, Precision

    k, tables = problem["k"], (to_table(problem["top"]), to_table(problem["bought"]))
    sizes = np.array([len(row) for row in problem["bought"] if row])
    metrics = Precision(k=k), MAP(k=k, divide_by_k=False), NDCG(k=k, divide_by_achievable=True)
    factors = 1, sizes / np.minimum(k, sizes), 1
    values = {}
    for name, metric, factor in zip(METRICS, metrics, factors, strict=True):
        per_user = metric.calc_per_user(*tables).sort_index().to_numpy() * factor
        values[name] = [*per_user.tolist(), float(per_user.mean())]
    return values


def to_table(lists: list[list[int]]) -> Any:
    import pandas as pd

    rows = [
        (user, item, rank)
        for user, row in enumerate(lists)
        for rank, item in enumerate(row, start=1)
    ]
    return pd.DataFrame(rows, columns=["user_id", "item_id", "rank"])


def answer_by_rectools(folder: Path) -> None:
    print(f"RecTools {version('rectools')} with numpy {version('numpy')}")
    problems = json.loads((folder / "problems.json").read_text())
    answers = [rectools_values(problem) for problem in problems]
    (folder / "answers.json").write_text(json.dumps(answers))


def ask_rectools(problems: list[dict[str, Any]]) -> list[dict[str, list[float]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "environment", with_pip=True)
        programs = "Scripts" if sys.platform == "win32" else "bin"
        python = str(folder / "environment" / programs / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "rectools"]
        subprocess.run(install, check=True)
        (folder / "problems.json").write_text(json.dumps(problems))
        subprocess.run([python, __file__, "--answer", name], check=True)
        return json.loads((folder / "answers.json").read_text())


# The run ---------------------------------------------------------------------------------------


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    if len(ours) != len(theirs):
        raise SystemExit(f"we judged {len(ours) - 1} users, RecTools {len(theirs) - 1}")
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))


def main() -> int:
    problems = make_problems(seed=20)
    ours = [our_values(problem) for problem in problems]
    theirs = ask_rectools(problems)
    n_values = sum(len(values["acc"]) - 1 for values in ours)
    print(f"{len(problems)} problems, {n_values} users judged")
    largest = 0.0
    for name in METRICS:
        pairs = zip(ours, theirs, strict=True)
        difference = max(largest_difference(one[name], other[name]) for one, other in pairs)
        print(f"{name:5} largest difference {difference:.1e}")
        largest = max(largest, difference)
    print(f"largest of all {largest:.1e} (allowed: {TOLERANCE:.0e})")
    return int(not largest <= TOLERANCE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        answer_by_rectools(Path(sys.argv[2]))
        sys.exit(0)
    sys.exit(main())
