"""Re-ranking over HTTP, from the store that the daily job publishes to.

    >>> from trimtab.serve import Settings, make_app
    >>> app = make_app("store", Settings(salt="summer", share=0.5))  # doctest: +SKIP

`trimtab serve` runs it; `make_app` returns the ASGI application, to run in another server.
"""

from __future__ import annotations

from importlib import import_module

from trimtab.errors import TrimtabError

try:
    for _name in ("httptools", "msgspec", "prometheus_client", "starlette", "swagger_ui_bundle"):
        import_module(_name)
    import_module("uvicorn")
except ImportError as error:
    raise TrimtabError("serving support is not installed: pip install 'trimtab[serve]'") from error

from trimtab.serve.app import make_app
from trimtab.serve.exposures import read_exposures
from trimtab.serve.server import run
from trimtab.serve.settings import Settings

__all__ = ["Settings", "make_app", "read_exposures", "run"]
