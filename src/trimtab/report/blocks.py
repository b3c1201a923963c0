"""What a page is made of: sections of tables, charts and figures, before they become HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.report.words import Name

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A table cell: its text, a smaller second line, and its class in page.css."""

    text: str
    note: str = ""
    kind: str = ""
    colour: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first `n_headings` cells of a row name that row.

    `groups` are headings over several columns, each with the number of columns it spans. A
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
    """A chart, its title, and a description for readers who cannot see it."""

    title: str
    description: str
    spec: Spec


@dataclass(frozen=True)
class Mark:
    """A legend entry; `kind` is the symbol."""

    label: str
    colour: str = ""
    kind: str = "circle"


INTERVAL_MARKS = [
    Mark("interval excludes 0", kind="full"), Mark("interval includes 0", kind="hollow"),
]  # fmt: skip


@dataclass(frozen=True)
class Panels:
    """Charts side by side that belong together."""

    title: str
    charts: Sequence[Chart]
    legend: Sequence[Mark] = ()


@dataclass(frozen=True)
class Tile:
    """One large figure of the headline; `worst` is a second one below it, with its own class."""

    label: str
    text: str
    note: str = ""
    kind: str = ""
    worst: str = ""
    worst_kind: str = ""


@dataclass(frozen=True)
class Fold:
    """Charts and tables that are shown on demand."""

    title: str
    blocks: Sequence[Table | Panels]


Block = Table | Panels | Fold


@dataclass(frozen=True)
class Section:
    """A part of the page: a sentence or a few, then figures, charts and tables, then terms.

    A folded section shows its title and its first sentence, and the rest on demand. `mood` is the
    class of the title: a gain, a loss or neither.
    """

    key: str
    title: str
    sentences: Sequence[str]
    blocks: Sequence[Block] = ()
    tiles: Sequence[Tile] = ()
    terms: Sequence[tuple[str, str]] = ()
    folded: bool = False
    mood: str = ""


def flatten(blocks: Sequence[Block]) -> list[Table | Panels]:
    """Return all tables and panels, folded or not."""
    parts = (block.blocks if isinstance(block, Fold) else [block] for block in blocks)
    return [part for own in parts for part in own]


def fold(sections: Iterable[Section | None]) -> list[Section]:
    """Return the sections that there are, each folded."""
    return [replace(section, folded=True) for section in sections if section is not None]


def guide_section(sentences: Sequence[str], terms: Sequence[tuple[str, str]]) -> Section:
    """Return the last section of every page: what each number means."""
    return Section("guide", "How to read this page", sentences, terms=terms, folded=True)


def drawn_panels(title: str, charts: Sequence[Chart], legend: Sequence[Mark] = ()) -> list[Panels]:
    """Return the charts as one block; no block if there is none."""
    return [Panels(title, charts, legend)] if charts else []


def sign_class(value: float) -> str:
    """Return the class of a figure in page.css: a gain, a loss or neither."""
    return "gain" if value > 0 else "loss" if value < 0 else ""


def range_class(mean: float, worst: float) -> str:
    """Return the class of a mean: a gain only if the worst is not below 0, otherwise mixed."""
    return "mixed" if mean > 0 > worst else sign_class(mean)


def name_cell(text: str, colour: str = "") -> Cell:
    """Return the cell that names a row, with the colour it has in charts."""
    return Cell(text, kind="name", colour=colour)


def method_cell(name: Name) -> Cell:
    """Return the cell that names a method's row."""
    return name_cell(name.long, name.colour)
