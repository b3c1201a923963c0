"""How often any of three treatments without an effect is found better or worse than control.

python benchmarks/abtest_treatments.py --runs 600   # about 10 minutes

Each test has 800 users in four buckets, and three metrics: clicks per impression of users who
differ, orders and lognormal revenue per user. Prints the share of tests with any significant
verdict, the same if nothing were adjusted, and how often the intervals of clicks of all treatments
hold the truth together. Exits with status 1 if more than 6 % are significant.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pyarrow as pa

from trimtab.abtest import Settings, compare

BUCKETS = ("control", "A", "B", "C")
METRICS = {"counts": ["clicks/impressions", "orders/user"], "amounts": ["revenue/user"]}


def shoppers(random: np.random.Generator, n: int = 800) -> pa.Table:
    """Return users in four buckets without any difference."""
    bucket = np.array(BUCKETS)[random.permutation(np.arange(n) % len(BUCKETS))]
    impressions = 1 + random.poisson(8, n)
    clicks = random.binomial(impressions, random.beta(1.5, 12, n))
    orders = random.poisson(0.3, n)
    revenue = orders * random.lognormal(3, 1, n)
    return pa.table(
        {
            "bucket": bucket, "impressions": impressions, "clicks": clicks, "orders": orders,
            "revenue": revenue,
        }
    )  # fmt: skip


def main() -> None:
    """Run all tests and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=600)
    runs = parser.parse_args().runs
    random = np.random.default_rng(11)
    counted = np.zeros(3)
    for run in range(runs):
        settings = Settings(draws=0, seed=run)
        found = compare(shoppers(random), settings, labels=BUCKETS, **METRICS).verdicts.values()
        every = [finding for own in found for finding in own.findings]
        clicks = [own.of("clicks", "impressions").main for own in found]
        counted += (
            any(own.verdict == "significant" for own in every),
            any(own.p < settings.alpha for own in every),
            all(own.low <= 0 <= own.high for own in clicks),
        )
    names = ("any significant", "any significant, not adjusted", "all intervals of clicks hold")
    for name, share in zip(names, counted / runs, strict=True):
        print(f"{name:30} {share:6.1%}")
    sys.exit(counted[0] / runs > 0.06)


if __name__ == "__main__":
    main()
