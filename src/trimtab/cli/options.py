"""Options that several commands share, the defaults they take, and the checks they need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from trimtab.abtest.buckets import Experiment
from trimtab.checks import DUPLICATES, METRICS
from trimtab.errors import SettingError
from trimtab.learn.learners import REPEATS
from trimtab.models.list_ranking import ALL
from trimtab.models.widening import WIDEN
from trimtab.tables.files import is_csv, require_writable_folder
from trimtab.tables.places import as_place


def one_of(names: Sequence[str]) -> str:
    """Return names as a phrase: 'acc, map or ndcg'."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


def defaults_of(function: Callable[..., Any]) -> SimpleNamespace:
    """Return the defaults of a function's parameters, by name."""
    parameters = inspect.signature(function).parameters.values()
    return SimpleNamespace(**{p.name: p.default for p in parameters if p.default is not p.empty})


def option(metavar: str, help: str, *names: str) -> Any:
    """Return an option that takes a value; its name is the parameter's unless given."""
    return typer.Option(*names, metavar=metavar, help=help)


AllowedFile = Annotated[str | None, option("FILE", "Allowed items: item_id. All by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
BiasFolder = Annotated[Path, option("FOLDER", "Folder with the saved biases.", "--bias")]
CategoryLevel = Annotated[
    str | None, option("COLUMN", "Category column for --engine category.", "--level")
]
Columns = Annotated[
    str | None,
    option(
        "NAMES",
        "Names of columns in your files, like user=customer,item=sku,time=ts; also score, "
        "category, quantity and others.",
        "--columns",
    ),
]
Depth = Annotated[
    str | None,
    option(
        "NUMBER",
        "Items of each list to re-rank, the best by score, or all. By default as many as the "
        "lists had that the biases were learned on.",
    ),
]
Duplicates = Annotated[
    str, option("RULE", f"Rule for a (user, item) pair listed twice: {one_of(DUPLICATES)}.")
]
Escape = Annotated[
    bool,
    typer.Option(
        "--escape",
        help="In CSV, put an apostrophe before text that a spreadsheet may run as a formula. It "
        "changes such ids.",
    ),
]
ExcludeFile = Annotated[str | None, option("FILE", "Pairs not to show: user_id, item_id.")]
ItemsFile = Annotated[
    str | None,
    option(
        "FILE", "Item table: item_id, and optionally name and category columns, coarse to fine."
    ),
]
ListsFolder = Annotated[
    str | None,
    option("FOLDER", "Dated lists of your own engine, one file or partition per day.", "--lists"),
]
LogFile = Annotated[
    str | None,
    option(
        "FILE",
        "Purchase log: Parquet or CSV, gift-shop or complete-journey. By default gift-shop.",
        "--log", "--events",
    ),
]  # fmt: skip
Metric = Annotated[str, option("NAME", f"Metric to learn for: {one_of(METRICS)}.")]
Paper = Annotated[bool, typer.Option("--paper", help="Use the paper's settings.")]
Query = Annotated[str | None, option("SQL", "SQL query, if --events is a database.")]
RecentDays = Annotated[int, option("DAYS", "Length of the recent window.")]
RecsFile = Annotated[str, option("FILE", "The engine's lists: user_id, item_id, score.", "--recs")]
_REPEATS = option(
    "RULE",
    f"Rule for adding what a user bought before to the list: {one_of(REPEATS)}; auto: unless the "
    f"engine's lists never hold such items.",
)
Repeats = Annotated[str, _REPEATS]
RepeatsIfAny = Annotated[str | None, _REPEATS]
Salt = Annotated[
    str | None, option("NAME", "Name of the A/B test; it determines each user's group.")
]
Settings = Annotated[
    list[str] | None,
    option("NAME=VALUE", "Learner setting, like penalty=0.5. Repeatable.", "--set"),
]
Share = Annotated[float, option("SHARE", "Share of users in the treatment group.")]
ShareOfTest = Annotated[
    float | None,
    option(
        "SHARE",
        f"Share of users in the treatment group with --salt; {Experiment.share:g} by default.",
        "--share",
    ),
]
Slots = Annotated[int, option("NUMBER", "Slots per user.", "--k")]
StoreFolder = Annotated[Path, option("FOLDER", "Folder with the published versions.", "--store")]
Strength = Annotated[
    float,
    option("SHARE", "Share of what was learned to use, from 0 (the engine alone) to 1."),
]
WeightsFile = Annotated[str | None, option("FILE", "User weights: user_id, weight.")]
_WIDEN = option(
    "RULE",
    f"Rule for what may be added to lists: {one_of(WIDEN)}; listed: only what is on some list.",
)
Widen = Annotated[str, _WIDEN]
WidenIfAny = Annotated[str | None, _WIDEN]
Zone = Annotated[str | None, option("ZONE", "Time zone of the shop, like Europe/London.")]


def share_of_test(salt: str | None, share: float | None) -> float:
    """Return the share of users in the treatment group; refuse one without a test."""
    if salt is None:
        refuse_without("--salt", share=share)
    return Experiment.share if share is None else share


def refuse_without(needed: str, **options: Any) -> None:
    """Refuse options that mean nothing without `needed`, which was not given."""
    for name, value in _given(options):
        raise SettingError(f"--{name} {value}: needs {needed}; add it or drop --{name}")


def refuse_with(other: str, **options: Any) -> None:
    """Refuse options that mean nothing together with `other`, which was given."""
    for name, value in _given(options):
        raise SettingError(f"--{name} {value}: cannot be used with {other}; drop one of them")


def _given(options: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the options that were given; the first value of a repeated one."""
    given = {name: value for name, value in options.items() if value not in (None, [])}
    return [(n, value[0] if isinstance(value, list) else value) for n, value in given.items()]


def refuse_overwriting(out: Path, **inputs: str | Path | None) -> None:
    """Refuse an output that is an input, is inside one, or holds one."""
    written = out.resolve()
    for name, path in inputs.items():
        place = None if path is None else as_place(path)
        if not isinstance(place, Path):  # only local files are written
            continue
        used = place.resolve()
        how = "is" if written == used else "is inside" if used in written.parents else "holds"
        if how != "holds" or written in used.parents:
            raise SettingError(f"--out {out}: {how} the input --{name} {path}; choose another path")


def refuse_escape(escape: bool, out: Path) -> None:
    """Refuse to escape formulas in a file that has none."""
    if escape and not is_csv(out):
        raise SettingError(f"--escape: is for .csv files, but --out is {out}; drop --escape")


def parse_depth(text: str | None) -> int | str | None:
    """Return how deep lists are re-ranked, from an option."""
    if text is None or text == ALL:
        return text
    if not text.isdecimal() or int(text) < 1:
        raise SettingError(f"--depth {text}: must be a whole number of at least 1, or {ALL}")
    return int(text)


def require_page_name(out: Path) -> None:
    """Refuse a page that a browser would not open."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"--out {out}: must end in .html")


def require_output(folder: Path, page: bool) -> None:
    """Refuse early what would fail after the work is done: the folder, or drawing a page."""
    require_writable_folder(folder)
    if page:
        from trimtab.report import require_libraries

        require_libraries()
