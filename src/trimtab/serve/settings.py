"""What a service is told: where to look, whom to let in, and how much to take."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from trimtab.abtest.buckets import Experiment
from trimtab.checks import require_number, require_whole
from trimtab.errors import SettingError

TOKEN, ADMIN_TOKEN = "TRIMTAB_TOKEN", "TRIMTAB_ADMIN_TOKEN"  # environment variables
LEAST_TOKEN = 16
DEFAULT_K = 10
_MOST_TOKEN = 4096


@dataclass(frozen=True)
class Settings:
    """Settings of a service; each limit's default does for lists of a few hundred items.

    Args:
        poll: seconds between looks at the store.
        retry: seconds after which a version that was refused is tried again.
        salt: of a test; users are divided by it, see `trimtab.abtest.buckets.Experiment`.
        share: of users who get biases in the test.
        exposures: folder for what was shown to whom.
        exposure_rows: lists after which a file of them is written.
        exposure_seconds: or after so many seconds.
        exposure_buffer: ids of items kept while files cannot be written; the oldest go first.
        token: opens all routes but those of the admin.
        admin_token: opens the admin's.
        max_body: bytes of a request.
        max_items: items of a list.
        max_lists: lists of a batch.
        max_batch_items: items, and places, of all lists of a batch together.
        max_filter: ids in each of `exclude` and `allowed`.
        max_id_length: characters of an id.
        max_k: places; at least 10, which is what a request asks for that says nothing.
        max_requests: requests at once.
        body_seconds: until a request must have arrived.

    Raises:
        SettingError: if one is out of its range.
    """

    poll: float = 1.0
    retry: float = 30.0
    salt: str | None = None
    share: float = 0.5
    exposures: Path | None = None
    exposure_rows: int = 10_000
    exposure_seconds: float = 10.0
    exposure_buffer: int = 1_000_000
    token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    max_body: int = 2 * 2**20
    max_items: int = 10_000
    max_lists: int = 1_000
    max_batch_items: int = 100_000
    max_filter: int = 10_000
    max_id_length: int = 256
    max_k: int = 10_000
    max_requests: int = 128
    body_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("poll", "retry", "exposure_seconds", "body_seconds"):
            require_number(name, getattr(self, name), 0.01, 86_400)
        for name in ("exposure_rows", "exposure_buffer", *self.limits()):
            require_whole(name, getattr(self, name), 1)
        require_whole("max_k", self.max_k, DEFAULT_K)
        require_token("token", self.token)
        require_token("admin_token", self.admin_token)
        if self.token is not None and self.token == self.admin_token:
            raise SettingError("admin_token is the same as token: give the admin another one")
        _ = self.experiment

    def limits(self) -> dict[str, int]:
        """How much is taken, by the names of the settings."""
        names = (entry.name for entry in fields(self))
        return {name: getattr(self, name) for name in names if name.startswith("max_")}

    @property
    def experiment(self) -> Experiment | None:
        """The test that is on, if one is."""
        return None if self.salt is None else Experiment(self.salt, self.share)


def require_token(name: str, token: str | None) -> None:
    """Refuse a token that could be guessed, or that a header cannot carry; never shows it."""
    if token is None:
        return
    if len(token) < LEAST_TOKEN:
        raise SettingError(
            f"{name} has {len(token)} characters: must have at least {LEAST_TOKEN}; take one from "
            f"openssl rand -hex 32"
        )
    if len(token) > _MOST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise SettingError(
            f"{name} must be of letters, digits and ASCII marks without spaces, at most "
            f"{_MOST_TOKEN}; take one from openssl rand -hex 32"
        )


def read_token(variable: str, option: str, path: Path | None) -> str | None:
    """A token from a file, or from the environment; None if there is neither.

    Args:
        variable: name of the environment variable.
        option: name of the option that names the file.
        path: the file.
    """
    given = os.environ.get(variable)
    if path is None:
        require_token(variable, given)
        return given
    if given is not None:
        raise SettingError(f"{variable} is set and {option} given too: keep one of them")
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise SettingError(f"{option} {path}: cannot be read ({reason})") from error
    require_token(f"{option} {path}", token)
    return token
