"""Sections as one HTML page that needs nothing else: style, scripts and data are inside."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.report.blocks import Chart, Panels, Section
from trimtab.tables.files import publish

_MISSING = "charts need altair and vl-convert: pip install 'trimtab[report]'"
_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def require_libraries() -> None:
    """Refuse to go on without the libraries that draw."""
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise TrimtabError(_MISSING) from error


def render(title: str, version: object, sections: Sequence[Section]) -> str:
    """The page as text: the same for the same arguments, to the byte.

    Args:
        title: its heading.
        version: of Trimtab, for the last line; none where it is not known.
        sections: what is on it.
    """
    import jinja2

    charts = dict(_numbered(sections))
    keys = {id(chart): key for key, chart in charts.items()}
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    style, drawing, library = _file("page.css"), _file("page.js"), _library()
    return environment.from_string(_file("page.html")).render(
        title=title,
        version=version,
        sections=sections,
        key_of=lambda chart: keys[id(chart)],
        policy=_policy(style, drawing, library),
        style=_inside("style", style),
        drawing=_inside("script", drawing),
        library=_inside("script", library),
        specs=_inside("script", embedded({key: chart.spec for key, chart in charts.items()})),
    )


def write_page(page: str, path: Path) -> None:
    """Write a page, all at once."""
    with publish(path) as file:
        file.write(page.encode())


def _numbered(sections: Sequence[Section]) -> Iterator[tuple[str, Chart]]:
    panels = [b for section in sections for b in section.blocks if isinstance(b, Panels)]
    charts = [chart for block in panels for chart in block.charts]
    return ((f"chart-{place}", chart) for place, chart in enumerate(charts, 1))


def embedded(value: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever text is in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _policy(style: str, *scripts: str) -> str:
    """A content security policy: these very scripts and this style run, and nothing is fetched."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inside(element: str, text: str) -> Any:
    """Text to stand inside an element as it is; it must not end that element."""
    import markupsafe

    assert f"</{element}" not in text.lower()
    assert "<!--" not in text
    return markupsafe.Markup(text)


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
