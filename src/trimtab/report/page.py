"""Pages: what they are made of, and one HTML file from it that loads nothing else.

A page is computed as plain data, `Section`s of tables, charts and figures; what it says about them
is in a template with one macro for each thing to say, from which `Text` takes words and tables.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from trimtab.errors import TrimtabError
from trimtab.report.charts import Panels
from trimtab.report.words import environment, read_template
from trimtab.tables.files import write_atomically

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
_CELL = re.compile('<t[hd](?: class="(.*?)")?>([^<]*)(?:<small>([^<]*))?')


class Cell(NamedTuple):
    """A table cell: its text, a smaller second line, its class in page.css, and its colour."""

    text: str
    note: str = ""
    kind: str = ""
    colour: str = ""


class Table:
    """A table of cells and texts; the first `n_headings` cells of a row name that row.

    A folded table is shown on demand.
    """

    def __init__(
        self, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]],
        n_headings: int = 1, folded: bool = False,
    ) -> None:  # fmt: skip
        self.caption, self.columns = caption, columns
        self.rows = [[Cell(own) if isinstance(own, str) else own for own in row] for row in rows]
        self.n_headings, self.folded = n_headings, folded


@dataclass(frozen=True)
class Fold:
    """Charts and tables that are shown on demand."""

    title: str
    blocks: Sequence[Table | Panels]


Block = Table | Panels | Fold


@dataclass(frozen=True)
class Section:
    """A part of the page: a title and a few sentences, then figures, charts and tables, then terms.

    A folded section shows its title and its first sentence, and the rest on demand. `mood` is the
    class of the title: a gain, a loss or neither.
    """

    key: str
    text: Sequence[str]  # the title, then the sentences
    blocks: Sequence[Block] = ()
    tiles: str = ""  # large figures, as markup
    terms: Sequence[tuple[str, str]] = ()
    folded: bool = False
    mood: str = ""

    @property
    def title(self) -> str:
        """The title."""
        return self.text[0]

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences below the title."""
        return self.text[1:]


def flatten(blocks: Sequence[Block]) -> list[Table | Panels]:
    """Return all tables and panels, folded or not."""
    parts = (block.blocks if isinstance(block, Fold) else [block] for block in blocks)
    return [part for own in parts for part in own]


def fold(sections: Iterable[Section | None]) -> list[Section]:
    """Return the sections that there are, each folded."""
    return [replace(section, folded=True) for section in sections if section is not None]


def sign_class(value: float) -> str:
    """Return the class of a figure in page.css: a gain, a loss or neither."""
    return "gain" if value > 0 else "loss" if value < 0 else ""


def range_class(mean: float, worst: float) -> str:
    """Return the class of a mean: a gain only if the worst is not below 0, otherwise mixed."""
    return "mixed" if mean > 0 > worst else sign_class(mean)


# Templates --------------------------------------------------------------------------------------


class Text:
    """The words of a template: one macro for each thing to say.

    Args:
        name: file in `templates/`.
        names: functions and numbers that the macros use, besides `mean` and classes of figures.
    """

    def __init__(self, name: str, **names: Any) -> None:
        self._name = name
        self._names = {"mean": fmean, "sign_class": sign_class, "range_class": range_class, **names}

    def paragraphs(self, macro: str, *about: Any) -> list[str]:
        """Return what a macro says as plain text: a line for each of its <h2> and <p>."""
        return [line for part in self._parts(macro, *about) if (line := _plain(part))]

    def say(self, macro: str, *about: Any) -> str:
        """Return what a macro says in one line; empty if there is nothing to say."""
        return " ".join(self.paragraphs(macro, *about))

    def terms(self, macro: str, *about: Any) -> list[tuple[str, str]]:
        """Return the terms that a macro explains, its <dt>, each with its meaning, its <dd>."""
        parts = (part.partition("<dd>") for part in self._parts(macro, *about))
        return [(_plain(term), _plain(meaning)) for term, _, meaning in parts if meaning]

    def markup(self, macro: str, *about: Any) -> Any:
        """Return what a macro writes, as it stands on the page."""
        template = environment().get_template(self._name, globals=self._names)
        return getattr(template.module, macro)(*about)

    def table(self, macro: str, *about: Any, folded: bool = False) -> Table:
        """Return the table that a macro writes.

        A caption; then a <tr> of columns, and one for each row; cells that name their row are <th>.
        A class may be followed by a colour, and a second line begins with <small>.
        """
        caption, head, *rows = str(self.markup(macro, *about)).split("<tr>")
        caption = caption.replace("<caption>", "")
        n_headings = rows[0].count("<th") if rows else 1
        cells = [[_read_cell(*own.groups()) for own in _CELL.finditer(row)] for row in rows]
        columns = [_plain(text) for _, text, _ in _CELL.findall(head)]
        return Table(_plain(caption), columns, cells, n_headings, folded)

    def _parts(self, macro: str, *about: Any) -> list[str]:
        return re.split("<(?:h2|p|dt)>", str(self.markup(macro, *about)))


def _read_cell(look: str | None, text: str, note: str | None) -> Cell:
    kind, _, colour = (look or "").partition(" ")
    return Cell(_plain(text), _plain(note or ""), kind, colour)


def _plain(markup: str) -> str:
    """Return escaped text as plain text in one line; non-breaking spaces stay."""
    return re.sub(r"[ \n]+", " ", html.unescape(markup)).strip(" ")


# The file ---------------------------------------------------------------------------------------


def require_libraries() -> None:
    """Raise an error if the library that draws charts is missing."""
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        need = "charts need vl-convert: pip install 'trimtab[report]'"
        raise TrimtabError(need) from error


def render(title: str, version: object, sections: Sequence[Section], about: str = "") -> str:
    """Return the page as HTML, with a line `about` it all on top; always the same bytes."""
    blocks = [block for section in sections for block in flatten(section.blocks)]
    charts = [chart for block in blocks if isinstance(block, Panels) for chart in block.charts]
    keys = {id(chart): f"chart-{place}" for place, chart in enumerate(charts, 1)}
    specs = {keys[id(chart)]: chart.spec for chart in charts}
    style, drawing, library = read_template("page.css"), read_template("page.js"), _library()
    page: str = environment().get_template("page.html").render(
        title=title, about=about, version=version, sections=sections,
        key_of=lambda chart: keys[id(chart)], policy=_policy(style, drawing, library),
        style=_unescaped("style", style), drawing=_unescaped("script", drawing),
        library=_unescaped("script", library), specs=_unescaped("script", script_json(specs)),
    )  # fmt: skip
    return page


def write_page(page: str, path: Path) -> None:
    """Write a page; readers see the old file or the whole new one."""
    with write_atomically(path) as file:
        file.write(page.encode())


def script_json(value: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element, with any text in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _policy(style: str, *scripts: str) -> str:
    """Return a content security policy: only these scripts and this style; nothing is fetched."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _unescaped(element: str, text: str) -> Any:
    """Return text to be used unescaped inside an element; it must not end that element."""
    import markupsafe

    assert f"</{element}" not in text.lower()
    assert "<!--" not in text
    return markupsafe.Markup(text)


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
