"""The page of documentation that can be tried out; all of its files come from this service."""

from __future__ import annotations

import functools
from importlib import import_module, resources

from starlette.requests import Request
from starlette.responses import Response

from trimtab.serve.refusals import RefusalError, shown

_KINDS = {".css": "text/css", ".js": "text/javascript"}
_OURS = ("docs.css", "docs.js")
_BUNDLED = ("swagger-ui.css", "swagger-ui-bundle.js")
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
    """The page."""
    return Response(_content("docs.html"), media_type="text/html", headers=_PAGE_HEADERS)


async def asset(request: Request) -> Response:
    """A file that the page needs."""
    name = request.path_params["name"]
    if name not in _OURS + _BUNDLED:
        raise RefusalError(404, f"no file {shown(name)}: /docs needs none of that name")
    kind = _KINDS[name[name.rindex(".") :]]
    return Response(_content(name), media_type=kind, headers={"Cache-Control": "no-cache"})


@functools.cache
def _content(name: str) -> bytes:
    if name in _BUNDLED:
        folder = import_module("swagger_ui_bundle").swagger_ui_path
        return bytes(folder.joinpath(name).read_bytes())
    return resources.files("trimtab.serve").joinpath("static", name).read_bytes()
