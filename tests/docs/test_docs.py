"""All code on the site, in the README and in docstrings runs and prints what is shown.

Each page runs in its own folder:

- python blocks share their variables; a text block right after one is its exact output, and a
  block without one prints nothing;
- console blocks: each line after "$ " is a command, and the lines below it appear in its output,
  in order. Plain `trimtab` commands run in this process, all others in a shell;
- sh blocks are not run. They take minutes or change the machine: the page says "by hand" and why,
  and `check_by_hand` must know the command;
- toml blocks are valid TOML;
- other text blocks are drawings or formulas, and contain no commands.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import warnings
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

import trimtab
from trimtab.cli import app, guarded, printing
from trimtab.engines import Markov

ROOT = Path(__file__).parents[2]
GIFT_SHOP = ROOT / "tests" / "files" / "gift_shop"
SOURCE = ROOT / "src"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts
}
API = PAGES["docs/api.md"]
NEED_JAVA = ("docs/scaling.md",)
OTHER_ENVIRONMENTS = {"docs/engines/lenskit.md": "lenskit", "docs/engines/rectools.md": "rectools"}
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SOURCE / "trimtab").rglob("*.py"))
    if ">>> " in path.read_text()
]
DIRECTIVES = ("{eval-rst}", "{toctree}", "{note}", "{tip}", "{warning}", "{figure}", "{image}")
PROMISED = set(re.findall(r"^\.\. auto(?:class|function|exception):: trimtab\.(.+)", API, re.M))
SHELL_SYNTAX = set("|&;<>$`")
COMMAND = re.compile(r"\s*(\$ |>>> |(pip|trimtab|make|python|import|from|cd|curl) [\w.-]+\S)")
BY_HAND = re.compile(r"<!-- by hand: .{10,} -->\s*$", re.S)


class Block(NamedTuple):
    """A block of code on a page."""

    kind: str
    text: str
    line: int
    above: str  # the kind of the block right above it, or the comment there

    @property
    def is_output(self) -> bool:
        """Whether it shows the output of the block above it."""
        return self.kind == "text" and self.above == "python"


def blocks_of(text: str) -> list[Block]:
    """Every block of code on a page; indented blocks count as text."""
    found, above = [], ""
    for token in MarkdownIt().parse(text):
        kind = {"fence": token.info.strip(), "code_block": "text"}.get(token.type)
        if kind is not None:
            assert token.map is not None
            found.append(Block(kind, token.content, token.map[0] + 1, above))
        if kind is not None or token.type == "html_block":
            above = kind if kind is not None else token.content
        elif token.type.endswith("_open"):
            above = ""
    return found


BLOCKS = {page: blocks_of(text) for page, text in PAGES.items()}
KINDS = {page: {block.kind for block in blocks} for page, blocks in BLOCKS.items()}
WITH_CODE = [page for page, kinds in KINDS.items() if kinds & {"python", "console"}]


def lists_made_before(events: pa.Table, day: str) -> pa.Table:
    """Lists of an engine trained on the purchases before a day."""
    at = datetime.fromisoformat(f"{day}T00:00+00:00")
    known = events.filter(pc.less(events["timestamp"], pa.scalar(at)))
    return Markov(min_support=1).fit(known, at).recommend(n=30)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a page runs in, with the tables it uses but does not make."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(printing.console, "width", 100)
    for name, value in {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    if request.node.callspec.params.get("page") == "README.md":
        events = pq.read_table(GIFT_SHOP / "sales.parquet")
        stamps = pc.assume_timezone(events["timestamp"], "UTC")
        events = events.drop(["timestamp"]).append_column("timestamp", stamps)
        pq.write_table(events, "purchases.parquet")
        Path("nightly").mkdir()
        for back in range(26):
            night = date(2010, 11, 17) - timedelta(back)
            lists = lists_made_before(events, str(night))
            pq.write_table(lists, f"nightly/{night}.parquet")
    elif request.node.callspec.params.get("page") == "docs/judge-your-engine.md":
        shutil.copy(GIFT_SHOP / "sales.parquet", "sales.parquet")
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.minutes) if p in NEED_JAVA else p for p in WITH_CODE],
)
def test_code_runs_and_prints_what_is_shown(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (library := OTHER_ENVIRONMENTS.get(page)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} needs its own environment")
    if page in NEED_JAVA and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setenv("PATH", os.pathsep.join([scripts, os.environ["PATH"]]))
    run_page(page, BLOCKS[page], folder)


def run_page(page: str, blocks: list[Block], folder: Path) -> None:
    """Run the blocks in order; each must print what is shown."""
    variables: dict[str, object] = {"__name__": "__main__"}
    for place, block in enumerate(blocks):
        if block.kind == "python":
            after = blocks[place + 1] if place + 1 < len(blocks) else None
            shown = after.text if after and after.is_output else ""
            assert run_python(page, block, variables) == shown, f"{page}, line {block.line}"
        elif block.kind == "console":
            run_console(page, block, folder)


def run_python(page: str, block: Block, variables: dict[str, object]) -> str:
    """What the block prints; errors name the line of the page."""
    code = compile("\n" * block.line + block.text, page, "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, variables)
    return printed.getvalue()


def run_console(page: str, block: Block, folder: Path) -> None:
    for command, shown in commands_of(block.text):
        plain = command.startswith("trimtab ") and not SHELL_SYNTAX & set(command)
        status, output = (run_here if plain else run_in_shell)(command, folder)
        assert status == 0, f"{page}, line {block.line}: {command}\n{output}"
        printed = iter(output.splitlines())
        missing = [line for line in shown if not any(line in other for other in printed)]
        assert missing == [], f"{page}, line {block.line}: {command}\n{output}"


def run_here(command: str, folder: Path) -> tuple[int, str]:
    """Status and output of a `trimtab` command, run in this process: its imports are done."""
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_: print(message)
        status = guarded(lambda: app(arguments, prog_name="trimtab", standalone_mode=False))
    return status, printed.getvalue()


def run_in_shell(command: str, folder: Path) -> tuple[int, str]:
    """Status and output of a command, run by bash."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands of a console block, each with the output lines shown for it."""
    command, shown = "", []
    for line in text.splitlines():
        if command.endswith("\\") and not shown:
            command += f"\n{line}"
        elif line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        else:
            assert command, f"{line!r} comes before any command"
            if line.strip():
                shown.append(line.rstrip())
    assert command, "a console block without a command"
    yield command, shown


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_are_not_run_have_a_reason(page: str) -> None:
    for block in BLOCKS[page]:
        check_unrun(block, f"{page}, line {block.line}")


def check_unrun(block: Block, where: str) -> None:
    """Fail if a block is not run without a reason."""
    if block.kind in ("python", "console"):
        return
    if block.kind == "sh":
        assert BY_HAND.fullmatch(block.above.strip()), f"{where}: not marked 'by hand: <reason>'"
        for command in filter(None, block.text.replace("\\\n", " ").splitlines()):
            check_by_hand(command, where)
    elif block.kind == "toml":
        tomllib.loads(block.text)
    elif block.kind != "nginx":  # tests/serve/test_serve_proxy.py runs nginx with it
        known = block.kind == "text" or block.kind.startswith(DIRECTIVES)
        assert known, f"{where}: a block of {block.kind or 'no kind'} is not run"
        lines = [] if block.is_output else block.text.splitlines()
        assert not list(filter(COMMAND.match, lines)), f"{where}: commands as text"


def check_by_hand(line: str, where: str) -> None:
    """Fail unless the command names an existing make target, benchmark and flags, or extra."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(words[1:]) <= set(targets), f"{where}: {line}"
    elif words[0] == "python" and words[1].startswith("benchmarks/"):
        code = (ROOT / words[1]).read_text()
        assert all(flag in code for flag in words[2:] if flag.startswith("--")), f"{where}: {line}"
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for package in words[2:]:
            name, _, extras = package.removesuffix("]").partition("[")
            assert name in (".", "trimtab"), f"{where}: {line}"
            wanted = set(filter(None, extras.split(",")))
            assert wanted <= set(project["optional-dependencies"]), f"{where}: {line}"
    elif words[:2] == ["trimtab", "serve"]:  # it does not end on its own
        from trimtab.cli import serving

        flags = {flag.removeprefix("--").replace("-", "_") for flag in words[2::2]}
        assert flags <= set(inspect.signature(serving.serve).parameters), f"{where}: {line}"
    elif words[0] == "spark-submit":
        settings = [words[place + 1] for place, word in enumerate(words) if word == "--conf"]
        assert all(re.match(r"spark\.[\w.]+=", setting) for setting in settings), f"{where}: {line}"
    else:
        pytest.fail(f"{where}: {line!r} can run: make it a console block")


@pytest.mark.parametrize(
    "page",
    [
        "```\nmake demo\n```",
        "```bash\ntrimtab demo\n```",
        "```sh\nmake demo\n```",
        "<!-- by hand: it takes minutes -->\n\nAnd:\n\n```sh\nmake demo\n```",
        "<!-- by hand: it takes minutes -->\n```sh\nmake dinner\n```",
        "<!-- by hand: it takes minutes -->\n```sh\npython benchmarks/fit.py --faster\n```",
        "<!-- by hand: it changes the machine -->\n```sh\npip install trimtab[wings]\n```",
        "<!-- by hand: it takes minutes -->\n```sh\ntrimtab demo\n```",
        "```text\n$ trimtab demo\n```",
        "    pip install trimtab\n",
        "```python\n1\n```\n\nAnd:\n\n```text\ntrimtab demo\n```",
        "- a list\n\n  ```code\n  1\n  ```",
    ],
)
def test_a_block_that_is_not_run_without_a_reason_is_found(page: str) -> None:
    found = "not run|by hand|as text|make dinner|--faster|wings|console block"
    *_, block = blocks_of(page)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=found):
        check_unrun(block, "here")


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("```python\nprint(1)\n```\n```text\n2\n```", "assert"),
        ("```python\nprint(1)\n```\n\nAnd:\n\n```text\n1\n```", "assert"),
        ("```console\n$ echo one\ntwo\n```", "echo one"),
        ("```console\n$ printf '1\\n2\\n'\n2\n1\n```", "printf"),
        ("```console\n$ false\n```", "false"),
    ],
)
def test_wrong_output_is_found(page: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=reason):
        run_page("here", blocks_of(page), tmp_path)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("trimtab"):
            raise
        pytest.skip(f"{error.name} is not installed")
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_few_names_are_promised() -> None:
    assert set(trimtab.__all__) - {"__version__"} <= PROMISED
    assert len(PROMISED) <= 45
    for name in PROMISED:
        package, _, last = f"trimtab.{name}".rpartition(".")
        assert hasattr(importlib.import_module(package), last), name


@pytest.mark.parametrize("page", [page for page in WITH_CODE if "python" in KINDS[page]])
def test_examples_use_promised_names(page: str) -> None:
    used = {
        name
        for block in BLOCKS[page]
        if block.kind == "python"
        for node in ast.walk(ast.parse(block.text))
        for name in names_of(node)
    }
    packages = {name.rpartition(".")[0] for name in PROMISED}
    assert used - PROMISED - packages - {"__version__"} == set()


def names_of(node: ast.AST) -> Iterator[str]:
    """The names of the package that a line of code uses, `trimtab.` left off."""
    if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "trimtab":
        package = str(node.module).removeprefix("trimtab").removeprefix(".")
        yield from (f"{package}.{alias.name}".lstrip(".") for alias in node.names)
    elif found := re.fullmatch(r"tt\.((\w+)(\.\w+)?)", ast.unparse(node)):
        yield found[2] if found[2] in trimtab.__all__ else found[1]


def test_the_readme_names_the_two_commands() -> None:
    by_hand = "\n".join(block.text for block in BLOCKS["README.md"] if block.kind == "sh")
    assert re.findall(r"^make (\w+)", by_hand, re.M)[:2] == ["demo", "test"]
