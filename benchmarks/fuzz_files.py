"""Damaged files by the thousand: nothing but Trimtab's own errors, or an object that works.

    python benchmarks/fuzz_files.py                      5,000 cases, a few minutes
    python benchmarks/fuzz_files.py --cases 50000
    python benchmarks/fuzz_files.py --kind "bias table"  one kind of file only

Each case is a real file with something changed: values in headers, pointers and manifests,
columns and values of tables, bytes of any file. Checksums are made to match where they would hide
the damage. What is loaded must work: lists are ranked, scores are finite, it can be saved again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
IN_MEMORY = Path("/dev/shm")  # disks are slow to flush
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from fuzzed_files import KINDS, run_case  # noqa: E402
from trimtab.tables import folders  # noqa: E402

folders._WAIT_SECONDS = 0.0  # do not wait for a writer that replaces a missing file


def fuzz(kind: str, cases: int, number: int, folder: Path) -> Counter[str]:
    """Run cases of a kind; return how many were read and refused."""
    found: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(st.data())
    def run(data) -> None:
        found[run_case(kind, data, folder / "case")] += 1

    run()
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS))
    arguments = parser.parse_args()
    kinds = [arguments.kind] if arguments.kind else list(KINDS)
    total: Counter[str] = Counter()
    for kind in kinds:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
            found = fuzz(kind, -(-arguments.cases // len(kinds)), arguments.seed, Path(folder))
        total += found
        print(
            f"{kind:22}{found.total():7} cases{found['refused']:7} refused{found['read']:7} read "
            f"and used{time.monotonic() - begun:7.1f} s",
            flush=True,
        )
    print(
        f"{total.total()} cases: {total['refused']} refused in one sentence, {total['read']} read "
        f"and used, 0 other errors"
    )


if __name__ == "__main__":
    main()
