"""A local server with the protocol of E2B, which really runs the programs that it receives."""

import base64
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from providers.sandboxes.e2b import EnvelopeParser

KEY, TOKEN = "e2b-k3y", "t0ken"
DEADLINE_S = 10.0


def envelope(message: Mapping[str, Any], flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def event(**fields: Any) -> bytes:
    return envelope({"event": fields})


def output(text: bytes, stream: str = "stdout") -> bytes:
    return event(data={stream: base64.b64encode(text).decode()})


def _path() -> str:
    """Return a search path with the Python of these tests before all others."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def split(stream: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(stream), size):
        yield stream[begin : begin + size]


@dataclass
class Vendor:
    """The vendor's two servers in one. If `answer` is set, it replaces the output stream of a process.

    `home` is the home directory of a sandbox, `workdir` where its processes start, `envd_version` the daemon's version.
    """

    server: HTTPServer
    home: Path
    workdir: Path
    envd_version: str = "0.6.9"
    has_second_version: bool = True  # of the API
    create_requests: list[Mapping[str, Any]] = field(default_factory=list)
    started: list[Mapping[str, Any]] = field(default_factory=list)
    daemon_requests: list[Request] = field(default_factory=list)
    deleted_ids: list[str] = field(default_factory=list)
    answer: Callable[[], Response] | None = None
    has_started: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    before_creation: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        (self.home / ".bash_profile").write_text(f"export PROFILE=read PATH={shlex.quote(_path())}\n")
        self.server.expect_request("/v2/sandboxes", method="POST").respond_with_handler(self.create_v2)
        self.server.expect_request("/sandboxes", method="POST").respond_with_handler(self.create)
        self.server.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_handler(self.delete)
        self.server.expect_request("/sbx-1/process.Process/Start").respond_with_handler(self.start)
        self.server.expect_request("/sbx-1/files", method="POST").respond_with_handler(self.save_file)

    def create_v2(self, request: Request) -> Response:
        return self.create(request) if self.has_second_version else Response("method not allowed", 405)

    def create(self, request: Request) -> Response:
        if request.headers.get("X-API-Key") != KEY:
            return Response(json.dumps({"code": 401, "message": "Invalid API key"}), 401)
        self.create_requests.append(request.get_json())
        self.before_creation()
        body = {
            "sandboxID": "sbx-1",
            "envdAccessToken": TOKEN,
            "envdVersion": self.envd_version,
            "templateID": "base",
            "clientID": "c",
        }
        return Response(json.dumps(body), 201)

    def delete(self, request: Request) -> Response:
        assert request.headers["X-API-Key"] == KEY
        self.deleted_ids.append("sbx-1")
        return Response(status=204)

    def save_file(self, request: Request) -> Response:
        assert request.headers["X-Access-Token"] == TOKEN
        self.daemon_requests.append(request)
        path = self.home / request.args["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        request.files["file"].save(path)
        return Response(json.dumps([{"name": path.name, "path": str(path), "type": "file"}]))

    def start(self, request: Request) -> Response:
        assert (request.headers["X-Access-Token"], request.headers["Connect-Protocol-Version"]) == (TOKEN, "1")
        assert request.headers["Content-Type"] == "application/connect+json"
        self.daemon_requests.append(request)
        [(_, data)] = EnvelopeParser().feed(request.data)
        self.started.append(json.loads(data)["process"])
        self.has_started.set()
        if self.answer is not None:
            return self.answer()
        process = self.started[-1]
        completed = subprocess.run(
            [process["cmd"], *process["args"]],
            cwd=self.workdir,
            env={"HOME": str(self.home), **process["envs"]},
            capture_output=True,
            check=False,
        )
        end = {"exited": True, "status": f"exit status {completed.returncode}"}
        stream = (
            event(start={"pid": 7})
            + event(keepalive={})
            + output(completed.stderr, "stderr")
            + b"".join(output(part) for part in split(completed.stdout, 50))
            + event(end=end | ({"exitCode": completed.returncode} if completed.returncode else {}))
            + envelope({}, flags=2)
        )
        return Response(split(stream, 7), content_type="application/connect+json")


@contextmanager
def e2b_vendor(folder: Path) -> Iterator[Vendor]:
    """Start a server whose sandboxes have their home and their working directory below a folder."""
    home, workdir = folder / "home", folder / "app"
    home.mkdir()
    workdir.mkdir()
    with HTTPServer(threaded=True) as server:
        vendor = Vendor(server, home, workdir)
        yield vendor
        vendor.may_end.set()
