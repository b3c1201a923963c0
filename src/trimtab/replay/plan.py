"""Plan: what a backtest compares, from Python, command-line options or a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trimtab.checks import METRICS, require_choice, require_k, require_whole
from trimtab.datasets.shop_logs import load_complete_journey, load_gift_shop
from trimtab.engines import Category, Engine, Factorization, Markov, Popularity, Repeat, TifuKNN
from trimtab.errors import SettingError, StoreError
from trimtab.replay.outcome import DatedFolder
from trimtab.replay.python_engines import OwnEngine, PythonEngine, is_engine_address
from trimtab.replay.results import BASELINE
from trimtab.replay.rivals import (
    DEFAULT_METHODS,
    KINDS,
    LEARNING_KINDS,
    LISTS_METHODS,
    TRAINING_KINDS,
    Method,
    require_settings,
    standard_methods,
)
from trimtab.replay.windows import LENGTH, WINDOWS, default_test, rolling_dates
from trimtab.tables.columns import ITEM
from trimtab.tables.log import Log, read_log
from trimtab.tables.places import is_address
from trimtab.tables.times import Moment, duration_name, read_day, read_duration

GIFT_SHOP, COMPLETE_JOURNEY = "gift-shop", "complete-journey"
NAMED_LOGS = {GIFT_SHOP: load_gift_shop, COMPLETE_JOURNEY: load_complete_journey}
EVERY = "7d"  # between two dates
ENGINES: Mapping[str, type[Engine]] = {
    "markov": Markov,
    "factorization": Factorization,
    "category": Category,
    "popularity": Popularity,
    "repeat": Repeat,
    "tifu-knn": TifuKNN,
}
Settings = Mapping[str, Mapping[str, Any]]
ListMaker = Engine | OwnEngine | DatedFolder


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to compare, and how.

    Args:
        dates: first days of the tests.
        engines: engines, or supplied lists, by their name in the results.
        methods: ways to make lists; the engine alone (kind "long") comes first.
        baselines: engines to evaluate without other methods.
        metrics: metrics to learn for and to evaluate lists with.
        k: number of slots.
        n_listed: length of the engines' lists; supplied lists are as long as they are.
        window: length of the recent window before a date, like "3d" or "6h".
        windows: most windows of that length that the default and the reranker learn from: the
            recent one and those before it, as far as the log goes back.
        test: length of the test, starting on a date; by default a week, or the window if that is
            shorter than a day.
        training_windows: days to train each engine on, in addition to all events.
        n_draws: number of bootstrap samples.
    """

    dates: tuple[Moment, ...]
    engines: Mapping[str, ListMaker]
    methods: tuple[Method, ...] = tuple(
        method for kind in DEFAULT_METHODS for method in standard_methods(kind)
    )
    baselines: Mapping[str, ListMaker] = field(default_factory=dict)
    metrics: tuple[str, ...] = METRICS
    k: int = 10
    n_listed: int = 50
    window: str = LENGTH
    windows: int = 3
    test: str | None = None
    training_windows: tuple[int, ...] = ()
    n_draws: int = 1000

    def __post_init__(self) -> None:
        require_k(self.k)
        if isinstance(self.n_listed, int) and self.n_listed < self.k and not self.is_of_lists:
            raise SettingError(f"n_listed={self.n_listed}: must be at least k={self.k}")
        for name in ("n_listed", "windows", "n_draws"):
            require_whole(name, getattr(self, name), 1)
        test = default_test(self.length) if self.test is None else read_duration("test", self.test)
        object.__setattr__(self, "test", duration_name(test))
        for metric in self.metrics:
            require_choice("metrics", metric, METRICS)
        for days in self.training_windows:
            require_whole("training_windows", days, 1)
        for name in ("dates", "engines", "metrics"):
            if not getattr(self, name):
                raise SettingError(f"{name} is empty: give at least one")
        if not self.methods or self.methods[0].kind != BASELINE:
            raise SettingError(f"methods must begin with kind '{BASELINE}', the engine alone")
        self._require_trainable()

    @property
    def length(self) -> int:
        """The length of a window, in microseconds."""
        return read_duration("window", self.window)

    @property
    def is_of_lists(self) -> bool:
        """Whether all lists are supplied; they are as long as they are."""
        return all(isinstance(maker, DatedFolder) for maker in self.engines.values())

    def _require_trainable(self) -> None:
        """Refuse what trains an engine with other settings, if an engine has no such settings."""
        fixed = [name for name, maker in self.engines.items() if not isinstance(maker, Engine)]
        training = [f"method {m.name}" for m in self.methods if m.kind in TRAINING_KINDS]
        training += ["training_windows"] if self.training_windows else []
        if fixed and training:
            raise SettingError(
                f"{training[0]}: needs an engine that Trimtab can train with other settings, and "
                f"{fixed[0]} is not one; leave it out"
            )


_NUMBERS = ("k", "n_listed", "window", "windows", "test", "n_draws")
_LISTS = ("dates", "engines", "methods", "baselines", "metrics", "training_windows")
_OTHERS = ("log", "tz", "items", "lists", "columns", "first", "last", "every")
_TABLES = ("engine", "method")


def read_plan_file(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file, with paths relative to the file's folder."""
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: not a readable TOML file ({error}); fix the file") from error
    known = (*_OTHERS, *_LISTS, *_NUMBERS)
    for name in settings:
        if name not in (*known, *_TABLES):
            raise SettingError(
                f"{name!r} in {path}: unknown setting; use {', '.join(known)}, [engine.NAME] or "
                f"[method.NAME]"
            )
    for name in ("log", "items", "lists", "tz"):
        value = settings.get(name, GIFT_SHOP)
        if not isinstance(value, str):
            raise SettingError(f"{name}={value!r} in {path}: must be text")
        if name != "tz" and value not in NAMED_LOGS and not is_address(value):
            settings[name] = str(path.parent / value)
    return settings


def open_log(settings: Mapping[str, Any]) -> Log:
    """Return the log named in settings: one of `NAMED_LOGS`, by default the gift shop, or a file.

    Of a file, `tz`, `items` and `columns` are the arguments of `read_log`.
    """
    place = settings.get("log", GIFT_SHOP)
    if place in NAMED_LOGS:
        return NAMED_LOGS[place]()
    return read_log(place, **{name: settings.get(name) for name in ("tz", "items", "columns")})


def make_plan(settings: Mapping[str, Any], log: Log) -> Plan:
    """Return a plan from the settings of a TOML file."""
    default = ["markov", "factorization", *(["category"] if log.levels else [])]
    engines, baselines = _list(settings, "engines", default), _list(settings, "baselines")
    made = make_engines([*engines, *baselines], settings.get("engine", {}), log)
    trained = all(isinstance(made[name], Engine) for name in engines)
    kinds = [kind for kind in DEFAULT_METHODS if trained or kind not in TRAINING_KINDS]
    return Plan(
        dates=_dates(settings), engines={name: made[name] for name in engines},
        baselines={name: made[name] for name in baselines}, **_options(settings, kinds),
    )  # fmt: skip


def plan_lists(settings: Mapping[str, Any], folder: DatedFolder) -> Plan:
    """Return a plan for dated lists, judged by NDCG with the methods that need only lists.

    It learns from as many windows as the daily job does.

    Args:
        settings: of a TOML file; those of engines are refused. Without dates, one date a week
            (`every`) in the last weeks that the lists cover.
        folder: the lists, and the log.
    """
    for refused in ("engines", "engine", "baselines", "training_windows", "n_listed"):
        if refused in settings:
            raise SettingError(
                f"{refused}={settings[refused]!r}: cannot be used with lists, which your own "
                f"engine has made; drop one of them"
            )
    own = {"metrics": ["ndcg"], "windows": WINDOWS, **settings}
    window = read_duration("window", settings.get("window", LENGTH))
    if any(name in settings for name in ("dates", "first", "last")):
        dates = _dates(settings)
        for day in dates:
            folder.require_lists(day, window)
    else:
        given = {n: read_duration(n, settings[n]) for n in ("test", "every") if n in settings}
        dates = tuple(folder.recent_dates(window, **given))
    return Plan(dates=dates, engines={folder.name: folder}, **_options(own, LISTS_METHODS))


def _list(settings: Mapping[str, Any], name: str, default: Sequence[str] = ()) -> Sequence[Any]:
    value: Sequence[Any] = settings.get(name, default)
    if not isinstance(value, list | tuple):
        raise SettingError(f"{name}={value!r}: must be a list")
    return value


def _dates(settings: Mapping[str, Any]) -> tuple[Moment, ...]:
    if "dates" in settings:
        return tuple(dict.fromkeys(read_day("dates", day) for day in _list(settings, "dates")))
    if "first" in settings and "last" in settings:
        every = settings.get("every", EVERY)
        return tuple(rolling_dates(settings["first"], settings["last"], every))
    raise SettingError("dates is missing: give dates, or both first and last (and every, like 7d)")


def _options(settings: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    """Return the methods and all other settings of a plan but its dates and engines."""
    options: dict[str, Any] = {name: settings[name] for name in _NUMBERS if name in settings}
    for name in ("metrics", "training_windows"):
        if name in settings:
            options[name] = tuple(dict.fromkeys(_list(settings, name)))
    names, methods = _list(settings, "methods", kinds), list[Method]()
    chosen = _read_chosen("method", names, settings.get("method", {}), KINDS)
    window = read_duration("window", settings.get("window", LENGTH))
    for name, (kind, own) in {BASELINE: (BASELINE, {}), **chosen}.items():
        is_standard = name == kind and not own
        methods += standard_methods(kind, window) if is_standard else [Method(name, kind, own)]
    return {**options, "methods": tuple(methods)}


def make_engines(
    names: Sequence[str], settings: Settings, log: Log
) -> dict[str, Engine | PythonEngine]:
    """Return engines by name; `settings` gives the `kind` if the name is not a kind.

    A kind is one of `ENGINES`, or `module:name`; see `PythonEngine`.
    """
    engines: dict[str, Engine | PythonEngine] = {}
    for name, (kind, options) in _read_chosen("engine", names, settings, [*ENGINES]).items():
        if is_engine_address(kind):
            engines[name] = PythonEngine(kind, options)
            continue
        allowed = [f.name for f in fields(ENGINES[kind]) if f.init and f.name != "items"]
        require_settings(f"engine {name}", kind, options, allowed)
        own: dict[str, Any] = {"tz": log.tz} if kind == "tifu-knn" else {}
        if kind == "category":
            own = {"level": log.levels[-1]} if log.levels else {}
            own["items"] = log.items.select([ITEM, *log.levels])
        try:
            engines[name] = ENGINES[kind](**{**own, **options})
        except SettingError as error:
            raise SettingError(f"engine {name}: {error}") from error
    return engines


def _read_chosen(
    what: str, names: Sequence[str], settings: Settings, kinds: Sequence[str]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the kind and the settings of each engine, or method, that is compared."""
    for name in settings:
        if name not in names:  # probably misspelt
            plan = ", ".join(map(str, names))
            raise SettingError(f"[{what}.{name}]: this {what} is not in the plan, which has {plan}")
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in names:
        if not isinstance(name, str):
            raise SettingError(f"{what} {name!r}: must be a name")
        options = settings.get(name, {}) if isinstance(settings, Mapping) else None
        if not isinstance(options, Mapping):
            raise SettingError(f"[{what}.{name}] must be a table of settings")
        others = dict(options)
        kind = others.pop("kind", name)
        is_own = what == "engine" and isinstance(kind, str) and is_engine_address(kind)
        if kind not in kinds and not is_own:
            more = " or module:name," if what == "engine" else ""
            raise SettingError(
                f"{what} {name!r}: must be one of {', '.join(kinds)},{more} or set kind to one of "
                f"these in [{what}.{name}]"
            )
        if name in kinds and (kind != name or (name in LEARNING_KINDS and others)):
            raise SettingError(
                f"[{what}.{name}]: {name} is the name of a kind with its default settings; use "
                f"another name and set kind = '{kind}'"
            )
        found[name] = kind, others
    return found
