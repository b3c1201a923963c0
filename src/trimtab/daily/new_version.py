"""NewVersion: everything that a refresh publishes, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab.daily.tonight import RankedTonight
from trimtab.models import ItemBias, Reranker
from trimtab.models.saved import RERANKER_FOLDER
from trimtab.store.versions import LISTS, NAMES, TOP
from trimtab.tables.files import write_table


@dataclass(frozen=True)
class NewVersion:
    """A version that is ready to be published."""

    bias: ItemBias
    reranker: Reranker | None  # its item part is the biases
    ranked: RankedTonight | None
    names: Any
    manifest: Mapping[str, Any]  # of the biases
    notes: tuple[str, ...]

    def describe(self, limits: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest: how the version was made.

        Args:
            limits: files of what must not be shown, by name.
        """
        told = dict(self.manifest)
        if self.ranked is not None:
            told["reranked"] = str(self.ranked.day)
        if self.reranker is not None and self.ranked is not None:
            told["reranker"] = {
                "settings": dict(self.reranker.settings),
                "summary": asdict(self.reranker.summary),
                "events_left_out": self.ranked.left_out._asdict(),
                **{name: None if path is None else str(path) for name, path in limits.items()},
            }
        return told

    def write(self, folder: Path) -> None:
        """Write the files of the version."""
        self.bias.save(folder / "bias")
        if self.reranker is not None:
            self.reranker.save(folder / RERANKER_FOLDER)
        tables = {NAMES: self.names}
        if self.ranked is not None:
            tables |= {TOP: self.ranked.top, LISTS: self.ranked.finished}
        for name, table in tables.items():
            if isinstance(table, Path):  # already written, on the same disk
                table.rename(folder / name)
            elif table is not None:
                write_table(table, folder / name)
