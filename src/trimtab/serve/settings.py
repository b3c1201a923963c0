"""Settings of the service: its options, the limits of requests, and the tokens that protect it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.abtest.buckets import Experiment
from trimtab.checks import require_whole
from trimtab.errors import SettingError
from trimtab.models.model import require_strength

TOKEN, ADMIN_TOKEN = "TRIMTAB_TOKEN", "TRIMTAB_ADMIN_TOKEN"  # environment variables
COUNTS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where the counts of several processes are
DEFAULT_K = 10
LIMITS = {  # of a request; the first in bytes, the last at once in one process
    "max_body": 2 * 2**20, "max_items": 10_000, "max_lists": 1_000, "max_batch_slots": 100_000,
    "max_filter": 10_000, "max_recent": 1_000, "max_id_length": 256, "max_k": 10_000,
    "max_requests": 128,
}  # fmt: skip
REQUEST_SECONDS = 10.0  # allowed for the headers, and again for the body
_SHORTEST, _LONGEST = 16, 4096  # characters of a token


@dataclass(frozen=True)
class Settings:
    """Settings of a service; the command's options are made from them.

    Args:
        host: Address to listen on; one that is not local needs a token.
        port: Port to listen on, or 0 for any free port.
        workers: Processes that share the port; more than 1 only on Linux.
        strength: Share of what was learned to use, from 0 (the engine alone) to 1.
        salt: Name of the A/B test; it determines each user's group.
        share: Share of users in the treatment group with a salt; 0.5 by default.
        exposures: Folder for a log of the lists shown to each user.
        token: Token for all routes except /health and the admin routes.
        admin_token: Token for the admin routes.

    Raises:
        SettingError: if a setting is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    strength: float = 1.0
    salt: str | None = None
    share: float | None = None
    exposures: Path | None = None
    token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_whole("workers", self.workers, 1)
        require_strength(self.strength)
        require_token("token", self.token)
        require_token("admin_token", self.admin_token)
        if self.token is not None and self.token == self.admin_token:
            raise SettingError("admin_token must differ from token: choose another")
        if self.share is not None and self.salt is None:
            raise SettingError(f"share={self.share:g}: needs salt, the name of the test; add it")
        _ = self.experiment

    @property
    def experiment(self) -> Experiment | None:
        """The A/B test that is running, if any."""
        if self.salt is None:
            return None
        return Experiment(self.salt, Experiment.share if self.share is None else self.share)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name or address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def require_token(name: str, token: str | None) -> None:
    """Refuse a token that is easy to guess or not valid in a header; never show it."""
    if token is None:
        return
    if not (_SHORTEST <= len(token) <= _LONGEST and all("!" <= one <= "~" for one in token)):
        raise SettingError(
            f"{name} has {len(token)} characters: must have {_SHORTEST} to {_LONGEST}, all ASCII "
            f"and no spaces; make one with openssl rand -hex 32"
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
