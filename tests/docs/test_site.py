"""The site builds without warnings, its links work, and a browser opens it without errors."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("site")  # so that one worker builds it for all tests
ROOT = Path(__file__).parents[2]
MAKEFILE = ROOT / "Makefile"
OPTION = re.compile(r'descname"><span class="pre">(--[\w-]+)')
FLAGS = re.compile(r"^  (--[\w-]+)(?:(?: / |, )(--[\w-]+))?", re.M)
WIDTHS = (1280, 390)  # a laptop, a phone
BROKEN_IMAGES = "[...document.images].filter(image => image.complete && !image.naturalWidth).length"
WIDE = """() => [...document.querySelectorAll('article *')].filter(part => {
    const box = part.closest('pre, .table-wrapper, .highlight');
    return !box && part.getBoundingClientRect().right > innerWidth + 1;
}).map(part => part.tagName + ' ' + part.textContent.slice(0, 40))"""


class Parts(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.text = ""
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if "href" in found:
            (self.links if tag == "a" else self.loads).append(found["href"])
        self.loads += [found[name] for name in ("src", "srcset", "data") if name in found]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, in a temporary folder."""
    out = tmp_path_factory.mktemp("site")
    command = re.search(r"-m sphinx (.*) -d docs/_build/trees docs docs/", MAKEFILE.read_text())
    assert command
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *command[1].split(), "-d", out / "trees", "docs",
         out / "html"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out / "html"


@pytest.fixture(scope="session")
def parts(site: Path) -> dict[Path, Parts]:
    return {page: Parts(page) for page in sorted(site.rglob("*.html"))}


def test_every_page_is_built(parts: dict[Path, Parts], site: Path) -> None:
    pages = {page.relative_to(site).with_suffix("") for page in parts}
    sources = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    assert {path.relative_to(ROOT / "docs").with_suffix("") for path in sources} <= pages


def test_links_and_pictures_have_targets(parts: dict[Path, Parts]) -> None:
    broken = [
        f"{page.name}: {address}"
        for page, found in parts.items()
        for address in [*found.links, *found.loads]
        if is_internal(address) and not has_target(page, address, parts)
    ]
    assert broken == []


def is_internal(address: str) -> bool:
    parsed = urllib.parse.urlsplit(address)
    return not parsed.scheme and not parsed.netloc and address not in ("", "#")


def has_target(page: Path, address: str, parts: dict[Path, Parts]) -> bool:
    parsed = urllib.parse.urlsplit(address)
    target = (page.parent / urllib.parse.unquote(parsed.path)).resolve() if parsed.path else page
    if not target.is_file():
        return False
    anchor = urllib.parse.unquote(parsed.fragment)
    return not anchor or target not in parts or anchor in parts[target].ids


def test_nothing_is_loaded_from_other_hosts(parts: dict[Path, Parts], site: Path) -> None:
    loaded = [address for found in parts.values() for address in found.loads]
    styles = [
        address
        for path in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text())
    ]
    assert [a for a in [*loaded, *styles] if re.match(r"(https?:)?//", a)] == []


def test_no_path_of_the_build_machine_is_published(site: Path) -> None:
    texts = [path for path in site.rglob("*") if path.suffix in (".html", ".js", ".svg", ".txt")]
    places = {str(ROOT), str(Path.home()), sys.prefix} - {"/"}
    found = [
        f"{path.name}: {place}"
        for path in texts
        for place in places
        if re.search(rf"{re.escape(place)}(?![\w-])", path.read_text())
    ]
    assert found == []


def test_options_are_written_with_hyphens(parts: dict[Path, Parts]) -> None:
    """An option in a sentence can be copied into a shell."""
    dashed = [f"{page.name}: {own}" for page, found in parts.items()
              for own in re.findall(r"[–—][a-z][\w-]+", found.text)]  # fmt: skip
    assert dashed == []
    (page,) = (found for page, found in parts.items() if page.name == "command-line.html")
    assert "--salt" in page.text


def test_every_option_is_in_the_reference(site: Path) -> None:
    page = (site / "command-line.html").read_text()
    sections = re.split(r"<h2>", page)[1:]
    documented = {text.partition("<")[0]: set(OPTION.findall(text)) for text in sections}
    assert list(documented) == list(command_names())
    for name, flags in documented.items():
        shown = {flag for pair in FLAGS.findall(help_of(*name.split())) for flag in pair}
        assert flags == shown - {"", "--help"}, name


def command_names(*group: str) -> Iterator[str]:
    """Every command by its whole name, like "rerank fit"; groups themselves are left out."""
    listed = help_of(*group).partition("Commands:")[2]
    for line in listed.splitlines():
        if re.match(r"  \w", line):
            words = (*group, line.split()[0])
            is_group = "Commands:" in help_of(*words)
            yield from command_names(*words) if is_group else [" ".join(words)]


def help_of(*command: str) -> str:
    from typer.testing import CliRunner

    from trimtab.cli import app

    return CliRunner().invoke(app, [*command, "--help"], terminal_width=200).output


def test_pages_open_without_errors(browser: Any, site: Path) -> None:
    context = browser.new_context()
    tab, errors = context.new_page(), []
    tab.on("console", lambda message: errors.append(f"{tab.url}: {message.text}"))
    tab.on("pageerror", lambda error: errors.append(f"{tab.url}: {error}"))
    tab.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:", "blob:"))
            or errors.append(f"{tab.url}: loads {request.url}")
        ),
    )
    for page in sorted(site.rglob("*.html")):
        tab.goto(page.as_uri())
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            if tab.evaluate("document.documentElement.scrollWidth") > width:
                errors.append(f"{page.name} is wider than {width}: {tab.evaluate(WIDE)}")
            assert tab.evaluate(BROKEN_IMAGES) == 0, f"{page.name} at {width}"
    context.close()
    assert errors == []


def test_search_finds_a_page(browser: Any, site: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(f"{(site / 'search.html').as_uri()}?q=staircase")
    tab.wait_for_selector("#search-results li a", timeout=20_000)
    assert "How it works" in tab.inner_text("#search-results")
    context.close()
