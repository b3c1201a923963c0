"""Re-ranking over HTTP, from the store that the daily job publishes to.

    >>> from trimtab.serve import Settings, make_app
    >>> app = make_app("store", Settings(salt="summer", share=0.5))  # doctest: +SKIP

`trimtab serve` runs it; `make_app` returns the ASGI application, to run in another server.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.serve.settings import Settings

__all__ = ["Settings", "make_app", "read_exposures", "run"]
_MODULES = {"make_app": "app", "read_exposures": "exposures", "run": "server"}
_LIBRARIES = {
    "make_app": ("prometheus_client", "starlette"),
    "read_exposures": ("prometheus_client",),
    "run": ("granian", "starlette"),  # prometheus_client only once its folder is known
}


def __getattr__(name: str) -> Any:
    """Functions that need optional libraries, loaded when first used; `Settings` needs none."""
    if name not in _MODULES:
        raise AttributeError(f"module 'trimtab.serve' has no attribute {name!r}")
    try:
        for library in _LIBRARIES[name]:
            import_module(library)
        return getattr(import_module(f"trimtab.serve.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise TrimtabError(
            "serving support is not installed: pip install 'trimtab[serve]'"
        ) from error
