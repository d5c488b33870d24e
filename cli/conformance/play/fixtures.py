"""Fixtures of cases for everything outside of a canvas except the model: HTTP, dataset search, web search, SQL.

with HttpFixture(case.http) as http:
    play(case.document_at(http.base))
http.calls  # [(method, path with query), ...]
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from canvas.errors import ToolError
from cli.conformance.cases import HttpRoute
from providers.interfaces import Rows

_POLL_SECONDS = 0.02  # how long `__exit__` may wait for the serving thread


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # wide fans call at the same time; with the default of 5, some calls wait a second for a retry
    request_queue_size = 128


class HttpFixture:
    """A server on a loopback port that answers by a case's routes and records every call."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._routes = tuple(routes)
        self._calls: list[tuple[str, str]] = []
        self._used: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)

    @property
    def base(self) -> str:
        """The URL that replaces `__HTTP_BASE__`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def calls(self) -> list[tuple[str, str]]:
        """(method, path with query) of all calls so far, including those without a route."""
        with self._lock:
            return list(self._calls)

    def __enter__(self) -> "HttpFixture":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()  # delayed answers are not waited for
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def next_answer(self, method: str, target: str) -> HttpRoute | None:
        """Record a call and use one answer of the first route that matches; None if no route does."""
        path = urlsplit(target).path
        with self._lock:
            self._calls.append((method, target))
            for number, route in enumerate(self._routes):
                is_match = route.path == path and (route.method or method).upper() == method
                if is_match and (route.times is None or self._used[number] < route.times):
                    self._used[number] += 1
                    return route
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fixture = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                route = fixture.next_answer(self.command, self.path)
                if route is None:
                    self._send(404, "text/plain; charset=utf-8", b"no route", {})
                    return
                fixture._is_over.wait(route.delay_ms / 1000)
                if route.close:
                    self.close_connection = True
                    return
                text = json.dumps(self._describe(route, body), sort_keys=True) if route.echo else route.body
                self._send(route.status, route.content_type, text.encode(), route.headers)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _answer

            def _send(self, status: int, content_type: str, body: bytes, headers: Mapping[str, str]) -> None:
                try:
                    self.send_response(status)
                    for name, value in {"Content-Type": content_type, **headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(body)
                except OSError:  # the caller has timed out, as routes with a delay intend
                    self.close_connection = True

            def _describe(self, route: HttpRoute, body: bytes) -> dict[str, Any]:
                headers = {name: self.headers.get(name) for name in route.echo_headers}
                return describe_request(self.command, self.path, self.headers.get("Content-Type") or "", headers, body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name it is called by
                """Log nothing: `calls` is the log."""

        return Handler


def describe_request(
    method: str, target: str, content_type: str, headers: Mapping[str, str | None], body: bytes
) -> dict[str, Any]:
    """Return a description of a request, with its body as `json`, as sorted pairs of a `form`, or as text."""
    split = urlsplit(target)
    text = body.decode("utf-8", "replace")
    described: dict[str, Any] = {
        "method": method,
        "path": split.path,
        "query": _pairs(split.query),
        "content_type": content_type,
        "headers": dict(headers),
    }
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return described | {"form": _pairs(text)}
    if kind == "application/json":
        try:
            return described | {"json": json.loads(text)}
        except ValueError:  # not JSON despite its content type: described as text
            pass
    return described | {"body": text}


def _pairs(encoded: str) -> list[list[str]]:
    return sorted([name, value] for name, value in parse_qsl(encoded, keep_blank_values=True))


def find_chunks(entries: Sequence[Mapping[str, Any]], query: str) -> dict[str, Any]:
    """Return the result of dataset search: {"chunks", "doc_aggs"} of the first entry whose text the query contains."""
    entry = _first_contained(entries, query)
    chunks = [dict(chunk) for chunk in entry.get("chunks", ())] if entry else []
    counts = Counter(str(chunk.get("docnm_kwd", "")) for chunk in chunks)
    ids = {str(chunk.get("docnm_kwd", "")): chunk.get("doc_id") for chunk in reversed(chunks)}
    return {
        "chunks": chunks,
        "doc_aggs": [{"doc_name": name, "doc_id": ids[name], "count": count} for name, count in counts.most_common()],
    }


def find_results(entries: Sequence[Mapping[str, Any]], query: str) -> list[dict[str, Any]]:
    """Return the result of web search, by the same rule. Raises ToolError if the entry has an error."""
    entry = _first_contained(entries, query) or {}
    if "error" in entry:
        raise ToolError(str(entry["error"]))
    return [{"raw_content": None, "score": 0.5, **result} for result in entry.get("results", ())]


@dataclass(frozen=True, slots=True)
class SqliteDatabases:
    """Gives every node a new SQLite database in memory instead of the server that it names."""

    statements: Sequence[str]

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator["SqliteSession"]:
        """Open a session on a database that the statements have set up."""
        with closing(sqlite3.connect(":memory:")) as database:
            for statement in self.statements:
                database.execute(statement)
            yield SqliteSession(database)


@dataclass(frozen=True, slots=True)
class SqliteSession:
    """One session of a node on its database."""

    database: sqlite3.Connection

    async def execute(self, sql: str, most_rows: int) -> Rows:
        """Execute a statement and return its rows. Raises ToolError with the database's message."""
        try:
            cursor = self.database.execute(sql)
        except sqlite3.Error as error:
            raise ToolError(str(error)) from error
        return Rows([column[0] for column in cursor.description or ()], cursor.fetchmany(most_rows))


def _first_contained(entries: Sequence[Mapping[str, Any]], query: str) -> Mapping[str, Any] | None:
    return next((entry for entry in entries if str(entry["contains"]) in query), None)
