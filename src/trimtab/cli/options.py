"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.errors import SettingError

AsJson = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]
ItemsFile = Annotated[Path | None, typer.Option(help="item_id, name, and levels.")]
LogFile = Annotated[
    str | None, typer.Option(help="Events, .parquet or .csv; complete-journey if not given.")
]
Merge = Annotated[
    str, typer.Option("--duplicates", help="A (user, item) twice: error, max, mean or sum.")
]
Metric = Annotated[str, typer.Option(help="acc, map or ndcg.")]
Paper = Annotated[bool, typer.Option("--paper", help="The paper's settings.")]
Places = Annotated[int, typer.Option("--k", help="Places per user.")]
RecentDays = Annotated[int, typer.Option(help="Days to learn from.")]
Salt = Annotated[
    str | None, typer.Option(help="The test's own name: tells buckets by a hash of user_id.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as in --set penalty=0.5; may be repeated."),
]
Share = Annotated[float, typer.Option(help="Of users in the treatment.")]
ShareOfTest = Annotated[
    float | None, typer.Option("--share", help="With --salt: of users in the treatment, 0.5.")
]
Zone = Annotated[str | None, typer.Option(help="The shop's time zone, like Europe/London.")]


def share_of_test(salt: str | None, share: float | None) -> float:
    """The share of a test; refuses one without a test."""
    if share is not None and salt is None:
        raise SettingError(f"--share {share:g}: goes with --salt, which is not there")
    return 0.5 if share is None else share
