"""What a page is made of: sections of tables, charts and figures, before they become HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.backtest.figures import Lift
from trimtab.report.words import NOTHING, interval, percent

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, a second smaller line, and its class in page.css."""

    text: str
    note: str = ""
    kind: str = ""
    colour: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose first `n_headings` cells of a row name that row.

    `groups` are headings over several columns, each with the number of columns it spans; a
    folded table is shown on demand.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    n_headings: int = 1
    groups: Sequence[tuple[str, int]] = ()
    folded: bool = False
    kind: str = "table"


@dataclass(frozen=True)
class Chart:
    """A chart, its title, and what it shows in words for those who cannot see it."""

    title: str
    description: str
    spec: Spec


@dataclass(frozen=True)
class Mark:
    """An entry of a legend."""

    label: str
    colour: str = ""
    kind: str = "dot"


@dataclass(frozen=True)
class Panels:
    """Charts side by side that belong together."""

    title: str
    charts: Sequence[Chart]
    legend: Sequence[Mark] = ()
    kind: str = "panels"


@dataclass(frozen=True)
class Tile:
    """One large figure of the headline."""

    label: str
    text: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Tiles:
    """The few figures of the headline."""

    tiles: Sequence[Tile]
    kind: str = "tiles"


@dataclass(frozen=True)
class Terms:
    """Terms and what each of them means."""

    terms: Sequence[tuple[str, str]]
    kind: str = "terms"


Block = Table | Panels | Tiles | Terms


@dataclass(frozen=True)
class Section:
    """A part of the page: what to see in it, said in a sentence or two, and the evidence."""

    key: str
    title: str
    sentence: str | Sequence[str]
    blocks: Sequence[Block] = ()

    @property
    def paragraphs(self) -> Sequence[str]:
        """What is said, a paragraph each."""
        return [self.sentence] if isinstance(self.sentence, str) else self.sentence


def name_cell(text: str, colour: str = "") -> Cell:
    """The cell that names a row, with the colour it has in charts."""
    return Cell(text, kind="name", colour=colour)


def lift_cell(row: Lift | None) -> Cell:
    """A lift with its interval; marked where the interval excludes 0."""
    if row is None:
        return Cell(NOTHING)
    mark = {1: " ▲", -1: " ▼", 0: ""}[row.sign]
    kind = {1: "gain", -1: "loss", 0: ""}[row.sign]
    return Cell(percent(row.lift) + mark, interval(row.low, row.high), kind)
