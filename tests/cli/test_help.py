"""Every command explains itself, and its defaults are those of the settings it fills."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trimtab.abtest import Settings
from trimtab.abtest.buckets import Experiment
from trimtab.checks import DUPLICATES, METRICS
from trimtab.cli import app
from trimtab.daily import Refresh, Simulation, realised_lifts
from trimtab.daily.method_choice import METHODS
from trimtab.daily.refresh import ACCEPTABLE
from trimtab.learn import BiasLearner
from trimtab.metrics.evaluation import evaluate
from trimtab.models import ItemBias, Reranker
from trimtab.replay.plan import ENGINES, Plan
from trimtab.replay.rivals import KINDS
from trimtab.serve import run as run_service
from trimtab.serve import settings as serve_settings

LEARNED = [own.name for own in fields(BiasLearner) if own.name not in ("k", "metric")]
GROUP: Any = get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands
PARAMETERS = {
    f"{name} {parameter.name}": parameter
    for name, command in [("trimtab", GROUP), *COMMANDS.items()]
    for parameter in command.params
}
# What a command passes its options on to; the first that knows an option has its default.
FILLS: dict[str, tuple[Any, ...]] = {
    "fit": (BiasLearner, BiasLearner.fit),
    "apply": (Reranker.apply, ItemBias.apply),
    "evaluate": (evaluate,),
    "export": (ItemBias.sql,),
    "refresh": (BiasLearner, Refresh),
    "history": (realised_lifts,),
    "simulate": (Simulation, BiasLearner, Refresh),
    "abtest": (Settings,),
    "serve": (serve_settings.Settings, run_service),
}
# Options with None for "not given", or another kind of value than the setting of their name.
DIFFERENT = {
    "fit": {"method"}, "refresh": {"accept", "method"}, "simulate": {"items", "method"},
    "serve": {"share"}, "abtest": {"share"},
}  # fmt: skip


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
@pytest.mark.parametrize("name", ["", *COMMANDS])
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
        known = [default_in(filled, option.name) for filled in FILLS.get(name, ())]
        defaults = [value for value in known if value is not inspect.Parameter.empty]
        if option.name in DIFFERENT.get(name, ()):
            assert option.default in (None, Refresh.method)
        elif defaults:
            assert option.default in defaults, option.name


def test_no_other_option_writes_down_a_default():
    found = {
        option.name
        for name, command in COMMANDS.items()
        for option in command.params
        if option.default not in (None, False)
        and option.name not in DIFFERENT.get(name, ())
        and all(
            default_in(own, option.name) is inspect.Parameter.empty for own in FILLS.get(name, ())
        )
    }
    assert found <= {"out", "report", "top", "labels", "strength"}


def test_help_names_all_choices_and_the_defaults_of_plans():
    said = {
        "fit method": (*METHODS, "paper"), "refresh method": METHODS, "refresh metric": METRICS,
        "refresh accept": ACCEPTABLE, "apply duplicates": DUPLICATES, "apply share": ["0.5"],
        "backtest method": set(KINDS) - {"long"}, "backtest metric": METRICS,
        "backtest engine": ENGINES, "simulate engine": ENGINES, "backtest k": [str(Plan.k)],
        "backtest window": [Plan.window], "refresh window": [Refresh.window],
        "refresh setting": [*LEARNED, "windows", "keep", "widen", "max_concentration"],
    }  # fmt: skip
    for name, words in said.items():
        assert [word for word in words if word not in PARAMETERS[name].help] == [], name
    assert Experiment.share == 0.5
