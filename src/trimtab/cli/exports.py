"""The command that writes biases for other systems: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.bias import ItemBias
from trimtab.bias.export.search_boosts import require_ending
from trimtab.cli.printing import console
from trimtab.tables.files import require_place


def export(
    bias: Annotated[Path, typer.Option("--bias", help="Folder of saved biases.")],
    out: Annotated[Path, typer.Option("--out", help="The boosts, .jsonl or .csv.")],
) -> None:
    """Write biases as numbers to boost items with in a search engine."""
    require_ending(out)
    require_place(out.parent)
    loaded = ItemBias.load(bias)
    missing = loaded.export(out)
    rule = "multiply scores by factor" if loaded.scale == "log" else "add boost to scores"
    console.print(
        f"wrote {len(loaded)} items to {out}: {rule}, {missing!r} for items that are not there; "
        f"{int(loaded.excluded.sum())} are excluded: filter them out",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
