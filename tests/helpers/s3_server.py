"""A small S3 server on loopback that serves a folder: each subfolder is a bucket.

It knows what reading needs: the head, the list and the bytes of objects. Requests must be signed
with its access key; the signature itself is not checked.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "shopkey", "pw0rd-of-the-shop"


@contextlib.contextmanager
def serve_s3(folder: Path) -> Iterator[int]:
    """Serves a folder until the end of the block; gives the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.folder = folder
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._respond()

    def do_GET(self) -> None:
        self._respond()

    def log_message(self, *_: object) -> None:
        pass

    def _respond(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        place = self.folder / bucket / key
        if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
            self._fail(403, "AccessDenied", "Access Denied")
        elif not (self.folder / bucket).is_dir():
            self._fail(404, "NoSuchBucket", "The specified bucket does not exist")
        elif not key:
            self._send(200, _list(self.folder / bucket, asked.get("prefix", ""), asked))
        elif not place.is_file():
            self._fail(404, "NoSuchKey", "The specified key does not exist.")
        else:
            self._send_bytes(place.read_bytes())

    def _send_bytes(self, content: bytes) -> None:
        span = self.headers.get("Range", "").removeprefix("bytes=")
        if not span or self.command == "HEAD":
            self._send(200, content)
            return
        first, _, last = span.partition("-")
        begin, end = int(first), min(int(last or len(content)), len(content) - 1)
        header = {"Content-Range": f"bytes {begin}-{end}/{len(content)}"}
        self._send(206, content[begin : end + 1], header)

    def _fail(self, status: int, code: str, message: str) -> None:
        self._send(
            status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        )

    def _send(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Length": str(len(body)), "ETag": '"1"', "x-amz-bucket-region": "us-east-1",
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", **(more or {}),
        }  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _list(bucket: Path, prefix: str, asked: dict[str, str]) -> bytes:
    """The answer to ListObjectsV2, all on one page."""
    files = [path for path in sorted(bucket.rglob("*")) if path.is_file()]
    keys = {path.relative_to(bucket).as_posix(): path for path in files}
    rows, folders = [], []
    for key, path in keys.items():
        if not key.startswith(prefix):
            continue
        rest = key[len(prefix) :]
        if "delimiter" in asked and asked["delimiter"] in rest:
            folders.append(prefix + rest.partition(asked["delimiter"])[0] + asked["delimiter"])
            continue
        rows.append(
            f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
            f'<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
        )
    common = [
        f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        for name in dict.fromkeys(folders)
    ]
    return (
        '<?xml version="1.0"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket.name}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(rows) + len(common)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{''.join(rows)}{''.join(common)}</ListBucketResult>"
    ).encode()
