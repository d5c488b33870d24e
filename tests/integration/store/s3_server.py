"""A server with the part of S3 that the file storage uses. It refuses requests with a wrong signature.

Signatures are those of AWS' version 4: of the request's method, path, query, signed headers and body.
"""

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

KEY, SECRET, REGION, BUCKET = "AKIAEASEL", "a secret of forty characters, more or less", "eu-central-1", "easel"
PAGE = 3  # keys in one answer to a list, so that lists have pages
_AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\S+), ?SignedHeaders=(\S+), ?Signature=(\w+)")


@dataclass
class Bucket:
    """The stored objects: bytes, and the time of the upload in seconds."""

    url: str = ""
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict[str, tuple[bytes, float]])
    puts: int = 0
    refused: int = 0
    is_unavailable: bool = False

    def age(self, key: str, seconds: float) -> None:
        """Set the upload time of an object to so many seconds ago."""
        self.objects[key] = (self.objects[key][0], time.time() - seconds)


@contextmanager
def s3_server() -> Generator[Bucket]:
    """A server with one bucket, until the block ends."""
    bucket = Bucket()

    class Handler(_Handler):
        of = bucket

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    bucket.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Bucket

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.of.is_unavailable:
            return self._answer(503, _error("SlowDown"))
        if not _is_signed(self.command, self.path, self.headers, body):
            self.of.refused += 1
            return self._answer(403, _error("SignatureDoesNotMatch"))
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return self._answer(404, _error("NoSuchBucket"))
        match self.command, key:
            case "HEAD", "":
                return self._answer(200)
            case "GET", "":
                return self._answer(200, self._list(query))
            case "POST", "" if "delete" in query:
                for found in ElementTree.fromstring(body).iter():
                    if found.tag.endswith("Key"):
                        self.of.objects.pop(found.text or "", None)
                return self._answer(200, b"<DeleteResult/>")
            case "PUT", _:
                self.of.puts += 1
                self.of.objects[key] = (body, time.time())
                return self._answer(200)
            case "DELETE", _:
                self.of.objects.pop(key, None)
                return self._answer(204)
            case _ if key in self.of.objects:
                data, at = self.of.objects[key]
                return self._answer(200, data, at)
            case _:
                return self._answer(404, _error("NoSuchKey"))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _list(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        found: dict[str, str] = {}
        for key in sorted(self.of.objects):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                group = prefix + rest.split(delimiter)[0] + delimiter
                found[group] = f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>"
            else:
                found[key] = f"<Contents><Key>{escape(key)}</Key></Contents>"
        names = [name for name in found if name > after]
        shown = names[:PAGE]
        is_cut = len(names) > PAGE
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if is_cut else ""
        rows = "".join(found[name] for name in shown)
        cut = str(is_cut).lower()
        return f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{more}{rows}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes = b"", at: float | None = None) -> None:
        self.send_response(status)
        if at is not None:
            self.send_header("Last-Modified", formatdate(at, usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the base class)
        """Log nothing."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


def _is_signed(method: str, path: str, headers: Any, body: bytes) -> bool:
    """Return whether the signature of the request is valid."""
    match = _AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if match is None or match[1] != KEY or not match[2].endswith(f"/{REGION}/s3/aws4_request"):
        return False
    body_hash = headers.get("x-amz-content-sha256", "")
    if body_hash != "UNSIGNED-PAYLOAD" and body_hash != hashlib.sha256(body).hexdigest():
        return False
    parts = urlsplit(path)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    names = match[3].split(";")
    signed = "".join(f"{name}:{' '.join((headers.get(name) or '').split())}\n" for name in names)
    canonical_request = [method, parts.path, "&".join(f"{k}={v}" for k, v in pairs), signed, match[3], body_hash]
    digest = hashlib.sha256("\n".join(canonical_request).encode()).hexdigest()
    string_to_sign = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], match[2], digest])
    key = f"AWS4{SECRET}".encode()
    for part in match[2].split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.new(key, string_to_sign.encode(), "sha256").hexdigest(), match[4])
