"""Engines that a replay trains by date: Trimtab's, and one's own, named by `module:name`.

The smallest engine is a function that takes the events before an instant, and the instant, and
returns lists (a table of user_id, item_id, score) or any model that `recs_from` reads.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa

from trimtab.adapters.libraries import can_read, recs_from
from trimtab.adapters.numbered_lists import user_items
from trimtab.engines.base import Engine
from trimtab.errors import DataError, SettingError, TrimtabError, TrimtabWarning
from trimtab.tables.columns import ITEM, SCORE, USER, read_frame
from trimtab.tables.times import as_datetime

_WANTED = "it must be a class or an object with fit(events, as_of), or a function of these two"


@dataclass
class PythonEngine:
    """An engine that is trained by calling one's own Python.

    Args:
        address: `module:name` of a class or an object with `fit(events, as_of)`, or of a function
            that takes events and as_of. What `fit` or the function returns (the object itself if
            `fit` returns None) makes the lists: by its `recommend(users, n)`, or by `recs_from`, if
            that can read it. A dict holds the arguments of `recs_from`, with `model`. Models of
            implicit are trained on the counts of who bought what.
        settings: passed to the class, or to the function, by name.
    """

    address: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    _target: Any = field(init=False, repr=False)
    _source: str = field(init=False, repr=False)
    _model: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        module, _, name = self.address.partition(":")
        loaded = _import(self.address, module)
        if not name or not hasattr(loaded, name):
            known = ", ".join(own for own in vars(loaded) if not own.startswith("_"))
            raise SettingError(f"engine {self.address}: {module} has no {name!r}; it has {known}")
        self._target, path = getattr(loaded, name), getattr(loaded, "__file__", None)
        # Another version of the module runs again, the same one does not.
        source = b"" if path is None else Path(path).read_bytes()
        self._source = hashlib.sha256(source).hexdigest()[:16]
        if not (callable(self._target) or callable(getattr(self._target, "fit", None))):
            kind = type(self._target).__name__
            raise SettingError(f"engine {self.address} is of type {kind}: {_WANTED}")
        if self.settings and not callable(self._target):
            raise SettingError(
                f"engine {self.address} is an object: it takes no settings; name a class or a "
                f"function, or leave {', '.join(self.settings)} out"
            )

    def fit(self, events: Any, as_of: Any) -> Self:
        """Train on the events before an instant; the model of an earlier call is not used."""
        self._model = self._call("fit", self._train, events, as_of)
        return self

    def _train(self, events: Any, as_of: Any) -> Any:
        target = self._target
        if str(getattr(target, "__module__", "")).startswith("implicit."):
            return self._train_implicit(events)
        if not isinstance(target, type) and not hasattr(target, "fit"):
            return target(events, as_of, **self.settings)
        model = target(**self.settings) if isinstance(target, type) else copy.deepcopy(target)
        if not callable(getattr(model, "fit", None)):
            raise SettingError(f"{self.address} has no method fit: {_WANTED}")
        fitted = model.fit(events, as_of)
        return model if fitted is None else fitted

    def _train_implicit(self, events: Any) -> dict[str, Any]:
        """Train a model of implicit; some of its names are functions that make one."""
        target, bought = self._target, user_items(events)
        model = target(**self.settings) if callable(target) else copy.deepcopy(target)
        model.fit(bought.matrix, show_progress=False)
        return {"model": model, "data": bought}

    def recommend(self, users: Any | None = None, n: int = 50) -> pa.Table:
        """Return user_id, item_id, score: the n best items of users, of all users if None."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # new users have no list: no surprise
            lists = self._call("recommend", self._list, users, n)
        return read_frame(lists, f"lists of engine {self.address}", USER, ITEM, SCORE).columns

    def _list(self, users: Any | None, n: int) -> Any:
        model = self._model
        if isinstance(model, Mapping):
            return recs_from(users=users, n=n, **model)
        if can_read(model):
            return recs_from(model, users, n)
        if not callable(getattr(model, "recommend", None)):
            raise DataError(
                f"it gave a {type(model).__name__}, which has no method recommend(users, n) and "
                f"is not a model that recs_from reads"
            )
        return recs_from(model.recommend(users, n), users, n)

    def describe(self) -> dict[str, Any]:
        """Return the address, the settings and a hash of the module's file."""
        return {"kind": self.address, **self.settings, "source": self._source}

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        """Call one's own code; an error becomes one sentence that says where it was raised."""
        try:
            return function(*arguments)
        except TrimtabError as error:
            raise DataError(f"engine {self.address}, {what}: {error}") from error
        except Exception as error:
            raise DataError(
                f"engine {self.address}: {what} failed {self._place(error)} ({_shorten(error)}); "
                f"fix the engine"
            ) from error

    def _place(self, error: Exception) -> str:
        """Return the last line of the engine's own file that the error went through."""
        frames = traceback.extract_tb(error.__traceback__)
        own = sys.modules[self.address.partition(":")[0]].__file__
        last = ([frame for frame in frames if frame.filename == own] or frames)[-1]
        return f"in {Path(last.filename).name}, line {last.lineno}"


def is_engine_address(name: str) -> bool:
    """Return whether a name has the form `module:name`."""
    return ":" in name


def _import(address: str, module: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # commands do not look into the current folder otherwise
    try:
        return importlib.import_module(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        reason = f"importing {module} failed ({_shorten(error)}); fix the module"
        if not module or missing in (module, module.partition(".")[0]):
            reason = (
                f"there is no module {module!r} in this folder or installed; write module:name, "
                f"with the module as Python imports it"
            )
        elif missing is not None:
            reason = f"{error}; install it"
        raise SettingError(f"engine {address}: {reason}") from error


def _shorten(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class OwnEngine(Protocol):
    """An engine that is not one of Trimtab's."""

    def fit(self, events: Any, as_of: Any) -> Any:
        """Learn from the events before an instant, and return the engine."""

    def recommend(self, users: Any | None = None, n: int = 50) -> Any:
        """Return user_id, item_id, score: the n best items of users, of all users if None."""

    def describe(self) -> dict[str, Any]:
        """Return what the lists depend on, besides the events; `kind` is its name."""


def make_lists(
    engine: Engine | OwnEngine, events: Any, instant: int, users: Any | None, n: int
) -> Any:
    """Return lists of at most n items of an engine that is trained anew, on events before."""
    return copy.copy(engine).fit(events, as_datetime(instant)).recommend(users, n)


def describe_engine(engine: Engine | OwnEngine) -> dict[str, Any]:
    """Return what lists depend on, besides the events, as values that JSON has."""
    if isinstance(engine, Engine):
        shown = {k: v for k, v in vars(engine).items() if not k.startswith("_") and k != "items"}
        return {"kind": type(engine).__name__, **shown}
    return engine.describe()
