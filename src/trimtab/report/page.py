"""One HTML file from sections, with style, scripts and data inside: it loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.report.blocks import Panels, Section, flatten
from trimtab.tables.files import write_atomically

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def require_libraries() -> None:
    """Raise an error if a library that draws charts is missing."""
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        need = "charts need altair and vl-convert: pip install 'trimtab[report]'"
        raise TrimtabError(need) from error


def render(title: str, version: object, sections: Sequence[Section], about: str = "") -> str:
    """Return the page as HTML, with a line `about` it all on top; always the same bytes."""
    import jinja2

    blocks = [block for section in sections for block in flatten(section.blocks)]
    charts = [chart for block in blocks if isinstance(block, Panels) for chart in block.charts]
    keys = {id(chart): f"chart-{place}" for place, chart in enumerate(charts, 1)}
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    style, drawing, library = _file("page.css"), _file("page.js"), _library()
    return environment.from_string(_file("page.html")).render(
        title=title,
        about=about,
        version=version,
        sections=sections,
        key_of=lambda chart: keys[id(chart)],
        policy=_policy(style, drawing, library),
        style=_unescaped("style", style),
        drawing=_unescaped("script", drawing),
        library=_unescaped("script", library),
        specs=_unescaped("script", script_json({keys[id(chart)]: chart.spec for chart in charts})),
    )


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
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
