"""A test on generated customers, from the first mail to the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.cli.printing import link, progress_bar, say
from trimtab.tables.files import publish, require_place, write_table

PAGE = "verdict.html"


def send_mails(settings: Mapping[str, Any], out: Path, report: bool) -> None:
    """Run the loop, write what came of it, and tell."""
    from trimtab.abtest.simulated_test import Loop
    from trimtab.report.words import percent

    require_place(out)
    if report:
        from trimtab.report import require_libraries

        require_libraries()
    loop = Loop(**settings)
    with progress_bar(loop.days) as step:
        run = loop.run(step=step)
    write_table(run.mails, out / "mails.parquet")
    write_table(run.truth, out / "truth.parquet")
    with publish(out / "verdicts.json") as file:
        file.write(json.dumps(run.verdicts.to_dict(), indent=1, allow_nan=False).encode())
    _print(run)
    say(f"true lift of clicks per open: {percent(run.true_lift)}; all mails in {out}")
    if report:
        from trimtab.report.verdict.simulated_test_page import write_run

        write_run(run, out / PAGE)
        say(f"the page: {link(out / PAGE)}")


def _print(run: Any) -> None:
    from trimtab.cli.abtest import print_verdicts
    from trimtab.report.words import share

    print_verdicts(run.verdicts)
    parts = ", ".join(f"{share(power.found)} of {power.mails:,}" for power in run.power)
    say(f"How often so many mails would have shown it, over 200 tests drawn anew: {parts}.")
