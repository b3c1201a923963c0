"""A real PostgreSQL server on loopback, for as long as a test module needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.errors import StoreError
from trimtab.replay.shop import query_events

SECRET = "s3cret-word"


def find_programs() -> Path | None:
    """Folder of the server's programs: Debian keeps them off the path."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((place for place in places if (place / "initdb").exists()), None)


def as_server(command: list[object]) -> list[str]:
    """A command run as a user that may start the server: not root."""
    plain = [str(part) for part in command]
    return ["runuser", "-u", "postgres", "--", *plain] if os.getuid() == 0 else plain


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def postgres_server(programs: Path | None = None) -> Iterator[str]:
    """The address of a server that is stopped afterwards; skips the test if there is none.

    Args:
        programs: folder of the server's programs; by default the installed ones.
    """
    place = programs or find_programs()
    if place is None:
        reason = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get("TRIMTAB_REQUIRE_POSTGRES"):
            pytest.fail(reason)
        pytest.skip(reason)
    # Not in pytest's folder, which only its user may enter: the server runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="trimtab-postgres-"))
    folder.chmod(0o755)
    data, secret = folder / "data", folder / "secret"
    data.mkdir()
    secret.write_text(SECRET)
    if os.getuid() == 0:
        for path in (data, secret):
            shutil.chown(path, "postgres")
    subprocess.run(
        as_server(
            [place / "initdb", "-D", data, "-U", "shop", "--auth=scram-sha-256",
             f"--pwfile={secret}", "-E", "UTF8", "--no-sync"]
        ),
        check=True, capture_output=True, cwd="/",
    )  # fmt: skip
    port = free_port()
    process = subprocess.Popen(
        as_server(
            [place / "postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", "", "-F"]
        ),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    try:
        address = f"postgresql://shop:{SECRET}@127.0.0.1:{port}/postgres"
        wait_for(address, process)
        yield address
    finally:
        subprocess.run(
            as_server([place / "pg_ctl", "-D", data, "-m", "immediate", "stop"]),
            check=False, capture_output=True, cwd="/",
        )  # fmt: skip
        process.communicate(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(address: str, process: subprocess.Popen[str]) -> None:
    """Wait until the server answers queries."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(StoreError):
            assert query_events(address, "select 1 as one")["one"].to_pylist() == [1]
            return
        time.sleep(0.05)
    pytest.fail(f"the server did not start: {process.communicate()[1]}")
