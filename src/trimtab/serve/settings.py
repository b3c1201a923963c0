"""Settings of the service, and the tokens that protect it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from trimtab.abtest.buckets import Experiment
from trimtab.checks import require_number, require_whole
from trimtab.errors import SettingError
from trimtab.models.model import require_strength

TOKEN, ADMIN_TOKEN = "TRIMTAB_TOKEN", "TRIMTAB_ADMIN_TOKEN"  # environment variables
MIN_TOKEN_LENGTH = 16
DEFAULT_K = 10
HOST, PORT, WORKERS = "127.0.0.1", 8000, 1
_MAX_TOKEN_LENGTH = 4096


@dataclass(frozen=True)
class Settings:
    """Settings of a service; the default limits suit lists of a few hundred items.

    Args:
        poll: Seconds between checks of the store.
        retry: Seconds before a version that could not be loaded is tried again.
        strength: Share of what a version has learned to use, from 0 to 1.
        salt: Salt of an A/B test that assigns users, see `trimtab.abtest.buckets.Experiment`.
        share: Share of users in the treatment group.
        exposures: Folder for the log of who was shown what.
        exposure_rows: Lists per exposure file.
        exposure_seconds: Longest time between exposure files, in seconds.
        exposure_buffer: Item ids kept while files cannot be written; the oldest are dropped first.
        token: Token for all routes except /health and the admin routes.
        admin_token: Token for the admin routes.
        max_body: Maximum bytes in a request.
        max_items: Maximum items in a list.
        max_lists: Maximum lists in a batch.
        max_batch_items: Maximum items, recent items, or slots over all lists in a batch.
        max_filter: Maximum ids in `exclude` or in `allowed`.
        max_recent: Maximum recent items of a user.
        max_id_length: Maximum characters in an id.
        max_k: Maximum slots in a list; at least 10, the default of a request.
        max_requests: Maximum concurrent requests.
        max_connections: Maximum open connections; above it, the one idle longest is closed.
        body_seconds: Seconds allowed for a request to arrive.
        send_seconds: Seconds a client may take to read 64 KiB of its answers.

    Raises:
        SettingError: if a setting is out of range.
    """

    poll: float = 0.5
    retry: float = 30.0
    strength: float = 1.0
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
    max_recent: int = 1_000
    max_id_length: int = 256
    max_k: int = 10_000
    max_requests: int = 128
    max_connections: int = 900
    body_seconds: float = 10.0
    send_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("poll", "retry", "exposure_seconds", "body_seconds", "send_seconds"):
            require_number(name, getattr(self, name), 0.01, 86_400)
        for name in ("exposure_rows", "exposure_buffer", *self.limits()):
            require_whole(name, getattr(self, name), 1)
        require_strength(self.strength)
        require_whole("max_k", self.max_k, DEFAULT_K)
        require_token("token", self.token)
        require_token("admin_token", self.admin_token)
        if self.token is not None and self.token == self.admin_token:
            raise SettingError("admin_token must differ from token: choose another")
        _ = self.experiment

    def limits(self) -> dict[str, int]:
        """Return the `max_` settings by name."""
        names = (entry.name for entry in fields(self))
        return {name: getattr(self, name) for name in names if name.startswith("max_")}

    @property
    def experiment(self) -> Experiment | None:
        """The A/B test that is running, if any."""
        return None if self.salt is None else Experiment(self.salt, self.share)


def require_token(name: str, token: str | None) -> None:
    """Refuse a token that is easy to guess or not valid in a header; never show it."""
    if token is None:
        return
    if len(token) < MIN_TOKEN_LENGTH:
        raise SettingError(
            f"{name} has {len(token)} characters: must have at least {MIN_TOKEN_LENGTH}; make one "
            f"with openssl rand -hex 32"
        )
    if len(token) > _MAX_TOKEN_LENGTH or not all("!" <= character <= "~" for character in token):
        raise SettingError(
            f"{name} must have at most {_MAX_TOKEN_LENGTH} characters, all ASCII and no spaces; "
            f"make one with openssl rand -hex 32"
        )


def read_token(variable: str, option: str, path: Path | None) -> str | None:
    """Return a token from a file or from the environment; None if there is neither.

    Args:
        variable: Name of the environment variable.
        option: Name of the command's option for the file.
        path: The file.
    """
    given = os.environ.get(variable)
    if path is None:
        require_token(variable, given)
        return given
    if given is not None:
        raise SettingError(f"{variable} and {option} are both set: use one of them")
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise SettingError(f"{option} {path}: cannot be read ({reason})") from error
    require_token(f"{option} {path}", token)
    return token
