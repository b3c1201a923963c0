"""Every command explains itself, and its defaults are those of the settings it fills."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import trimtab.cli
from trimtab.abtest import Settings, attribute
from trimtab.cli import app
from trimtab.daily import Refresh, Simulation
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.metrics.evaluation import evaluate
from trimtab.models import ItemBias, Reranker
from trimtab.serve import run as run_service
from trimtab.serve import settings as serve_settings

GROUP: Any = get_command(app)
GROUPS = {name: own for name, own in GROUP.commands.items() if hasattr(own, "commands")}
COMMANDS: dict[str, Any] = {
    **{name: command for name, command in GROUP.commands.items() if name not in GROUPS},
    **{f"{g} {name}": own for g in GROUPS for name, own in GROUPS[g].commands.items()},
}
PARAMETERS = {
    f"{name} {parameter.name}": parameter
    for name, command in [("trimtab", GROUP), *COMMANDS.items()]
    for parameter in command.params
}
# What a command passes its options on to; the first that knows an option has its default.
FILLS: dict[str, tuple[Any, ...]] = {
    "demo": (),
    "init": (),
    "fit": (BiasLearner, BiasLearner.fit),
    "apply": (ItemBias.apply,),
    "evaluate": (evaluate,),
    "export": (),
    "sql": (ItemBias.sql,),
    "backtest": (),  # a plan file comes first: options have no defaults
    "report": (),
    "refresh": (BiasLearner, Refresh),
    "history": (),
    "rollback": (),
    "diff": (),
    "simulate": (Simulation,),
    "abtest": (Settings, attribute),
    "serve": (serve_settings.Settings, run_service),
    "rerank fit": (RerankLearner, RerankLearner.fit),
    "rerank apply": (Reranker.apply,),
}
# Options that only the command line has, and two of the HTTP server, which is imported late.
OWN_DEFAULTS = {"out", "report", "top"}
# Options with None for "not given", and one that only shares its name with a setting.
DIFFERENT = {"refresh": {"accept", "method"}, "serve": {"share"}, "simulate": {"days", "items"}}


def shown(*words: str, width: int) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], terminal_width=width)
    assert result.exit_code == 0
    return result.output


def example_of(command: Any) -> list[str]:
    """The words of the example, without the name of the program."""
    heading, _, lines = command.epilog.partition("Example:\n")
    assert heading == "\b\n"
    program, *words = shlex.split(lines.replace("\\\n", ""))
    assert program == "trimtab"
    return words


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["", *GROUPS, *COMMANDS])
def test_help_is_not_cut(name, width):
    text = shown(*name.split(), width=width)
    usage, *lines = text.splitlines()
    assert [line for line in lines if line.endswith(("...", "…"))] == []
    assert max(map(len, [usage, *lines])) <= width


def test_help_of_an_option_is_a_sentence_that_can_be_read_alone():
    texts = {name: parameter.help for name, parameter in PARAMETERS.items()}
    assert {n: text for n, text in texts.items() if not re.fullmatch(r"[A-Z].*\.", text)} == {}
    fragment = re.compile(r"(Of|With|Until|And|Or)\b")
    assert {name: text for name, text in texts.items() if fragment.match(text)} == {}


def test_an_option_shows_no_python_type():
    taking = {n: p for n, p in PARAMETERS.items() if not getattr(p, "is_flag", False)}
    word = re.compile(r"[A-Z]+(=[A-Z]+)?")
    assert {name: p.metavar for name, p in taking.items() if not word.fullmatch(p.metavar)} == {}
    assert [
        name for name in COMMANDS if re.search(r"<\w+>|[{}]", shown(*name.split(), width=80))
    ] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example_that_parses(name):
    words, n = example_of(COMMANDS[name]), len(name.split())
    assert " ".join(words[:n]) == name
    COMMANDS[name].make_context(name, words[n:])
    assert re.search(rf"^    trimtab {name}\b", shown(*name.split(), width=80), re.M)


def default_in(filled: Any, name: str) -> Any:
    parameter = inspect.signature(filled).parameters.get(name)
    return inspect.Parameter.empty if parameter is None else parameter.default


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_those_of_the_settings(name):
    for option in COMMANDS[name].params:
        known = [default_in(filled, option.name) for filled in FILLS[name]]
        defaults = [value for value in known if value is not inspect.Parameter.empty]
        if option.name in DIFFERENT.get(name, ()):
            assert option.default is None
        elif defaults:
            assert option.default == defaults[0], option.name


NAMES = {name.split()[-1] for name in COMMANDS}


def literal_defaults(path: Path) -> set[str]:
    """Parameters of commands whose default is a number or a text written in the command line."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and function.name in NAMES:
            backwards = zip(
                reversed(function.args.args), reversed(function.args.defaults), strict=False
            )
            for parameter, default in backwards:
                values = [n.value for n in ast.walk(default) if isinstance(n, ast.Constant)]
                if any(value is not None and value is not False for value in values):
                    found.add(parameter.arg)
    return found


def test_the_command_line_writes_down_no_default_of_a_setting():
    folder = Path(trimtab.cli.__file__).parent
    found = set().union(*(literal_defaults(path) for path in folder.glob("*.py")))
    assert found == OWN_DEFAULTS | {"labels"}
