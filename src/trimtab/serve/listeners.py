"""Sockets to listen on."""

from __future__ import annotations

import errno
import socket

from trimtab.errors import SettingError
from trimtab.serve.gate import is_loopback
from trimtab.serve.settings import Settings


def require_token_for(host: str, settings: Settings) -> None:
    """Refuse to serve without a token on an address that other machines can reach."""
    if settings.token is None and not is_loopback(host):
        raise SettingError(
            f"host={host}: needs a token, because other machines can reach it; set TRIMTAB_TOKEN "
            f"or --token-file, or serve on 127.0.0.1"
        )


def bind(host: str, port: int, is_shared: bool = False) -> socket.socket:
    """Return a socket bound to an address.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        is_shared: Let other sockets of this user bind to the same port. The system spreads new
            connections over those of them that listen.
    """
    if not 0 <= port <= 65535:
        raise SettingError(f"port={port}: must be from 0 to 65535; 0 picks a free one")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingError(f"host={host}: not an address of this machine ({error})") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(
                f"port={port}: in use on {host}; choose another one, or 0"
            ) from error
        raise SettingError(
            f"host={host}, port={port}: cannot be used ({error.strerror}); choose another"
        ) from error
    return listener


def format_url(listener: socket.socket) -> str:
    """Return the address of a socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bind_shared(host: str, port: int) -> socket.socket:
    """Return a shared socket bound to an address that nobody else has; it does not listen."""
    if port != 0:
        bind(host, port).close()  # a shared socket would not notice another service
    return bind(host, port, is_shared=True)
