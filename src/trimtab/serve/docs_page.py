"""The documentation page; the service itself has all files of it, so no other host is needed."""

from __future__ import annotations

import functools
from importlib import import_module, resources

from starlette.requests import Request
from starlette.responses import Response

from trimtab.serve.refusals import RefusalError, shorten
from trimtab.serve.routes import DOCS

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}
_OWN_FILES = ("docs.css", "docs.js")
_SWAGGER_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")
_POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
        "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )
)  # fmt: skip
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def docs(_: Request) -> Response:
    """Return the page."""
    return Response(_read("docs.html"), media_type="text/html", headers=_PAGE_HEADERS)


async def asset(request: Request) -> Response:
    """Return a file that the page loads."""
    name = request.path_params["name"]
    if name not in _OWN_FILES + _SWAGGER_FILES:
        raise RefusalError(404, f"no file {shorten(name)}: open {DOCS} instead")
    media_type = _MEDIA_TYPES[name[name.rindex(".") :]]
    return Response(_read(name), media_type=media_type, headers={"Cache-Control": "no-cache"})


@functools.cache
def _read(name: str) -> bytes:
    if name in _SWAGGER_FILES:
        folder = import_module("swagger_ui_bundle").swagger_ui_path
        return bytes(folder.joinpath(name).read_bytes())
    return resources.files("trimtab.serve").joinpath("static", name).read_bytes()
