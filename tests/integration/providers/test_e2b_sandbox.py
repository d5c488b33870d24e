"""The E2B sandbox, against a server with the vendor's protocol that really runs the programs it receives."""

import asyncio
import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.e2b import MAX_ARGUMENT_BYTES, E2BSandbox, E2BSettings, EnvelopeParser
from providers.sandboxes.produced_files import UNSUPPORTED_TYPE

KEY, TOKEN = "e2b-k3y", "t0ken"
DEADLINE_S = 10.0
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


def envelope(message: Mapping[str, Any], flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def event(**fields: Any) -> bytes:
    return envelope({"event": fields})


def output(text: bytes, stream: str = "stdout") -> bytes:
    return event(data={stream: base64.b64encode(text).decode()})


def split(stream: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(stream), size):
        yield stream[begin : begin + size]


@dataclass
class Vendor:
    """The vendor's two servers in one. If `answer` is set, it replaces the output stream of a process."""

    server: HTTPServer
    home: Path
    create_requests: list[Mapping[str, Any]] = field(default_factory=list)
    started: list[Mapping[str, Any]] = field(default_factory=list)
    deleted_ids: list[str] = field(default_factory=list)
    answer: Callable[[], Response] | None = None
    has_started: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.server.expect_request("/sandboxes", method="POST").respond_with_handler(self.create)
        self.server.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_handler(self.delete)
        self.server.expect_request("/sbx-1/process.Process/Start").respond_with_handler(self.start)
        self.server.expect_request("/sbx-1/files", method="POST").respond_with_handler(self.save_file)

    def create(self, request: Request) -> Response:
        if request.headers.get("X-API-Key") != KEY:
            return Response(json.dumps({"code": 401, "message": "Invalid API key"}), 401)
        self.create_requests.append(request.get_json())
        body = {"sandboxID": "sbx-1", "envdAccessToken": TOKEN, "envdVersion": "0.4.0", "templateID": "base"}
        return Response(json.dumps(body), 201)

    def delete(self, request: Request) -> Response:
        assert request.headers["X-API-Key"] == KEY
        self.deleted_ids.append("sbx-1")
        return Response(status=204)

    def save_file(self, request: Request) -> Response:
        assert request.headers["X-Access-Token"] == TOKEN
        path = self.home / request.args["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        request.files["file"].save(path)
        return Response("[]")

    def start(self, request: Request) -> Response:
        assert (request.headers["X-Access-Token"], request.headers["Connect-Protocol-Version"]) == (TOKEN, "1")
        assert request.headers["Content-Type"] == "application/connect+json"
        [(_, data)] = EnvelopeParser().feed(request.data)
        self.started.append(json.loads(data)["process"])
        self.has_started.set()
        if self.answer is not None:
            return self.answer()
        process = self.started[-1]
        completed = subprocess.run([process["cmd"], *process["args"]], cwd=self.home, capture_output=True, check=False)
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


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with HTTPServer(threaded=True) as server:
        vendor = Vendor(server, tmp_path)
        yield vendor
        vendor.may_end.set()


def sandbox(vendor: Vendor, **settings: Any) -> E2BSandbox:
    url = vendor.server.url_for("")
    fields = {"api_key": KEY, "api_url": url, "sandbox_url": f"{url}/{{id}}"} | settings
    return E2BSandbox(HttpClient(Guard()), E2BSettings(**fields))


def program(script: str, language: str = "python", arguments: Mapping[str, Any] | None = None, **more: Any) -> Program:
    return Program(language, script, arguments or {}, more.get("timeout", DEADLINE_S), "key")


def run(target: E2BSandbox, script: str, language: str = "python", arguments: Any = None, **more: Any) -> ProgramResult:
    return asyncio.run(target.run(program(script, language, arguments, **more)))


def test_program_runs_and_its_sandbox_is_deleted(vendor: Vendor):
    arguments = {"a": True, "b": None, "c": ["é'\"\\$`", 1.5]}

    result = run(sandbox(vendor), "print('hello')\ndef main(**given): return given", arguments=arguments)

    assert (result.value, result.has_value, result.stdout, result.stderr) == (arguments, True, "hello\n", "")
    assert vendor.deleted_ids == ["sbx-1"]
    assert (vendor.create_requests[0]["templateID"], vendor.create_requests[0]["allow_internet_access"]) == (
        "base",
        False,
    )


@needs_node
def test_javascript_program_runs(vendor: Vendor):
    result = run(
        sandbox(vendor), "async function main({a}) { console.log('x'); return {a} }", "nodejs", {"a": [1, None]}
    )

    assert (result.value, result.stdout) == ({"a": [1, None]}, "x\n")


def test_program_too_long_for_an_argument_is_uploaded_as_a_file(vendor: Vendor):
    long = "é" * MAX_ARGUMENT_BYTES

    assert run(sandbox(vendor), "def main(a): return len(a)", arguments={"a": long}).value == MAX_ARGUMENT_BYTES
    assert all(len(part) < MAX_ARGUMENT_BYTES for part in vendor.started[0]["args"])


def test_produced_files_are_returned_and_skipped_files_are_listed(vendor: Vendor):
    script = (
        "import os\n"
        "def main():\n"
        "    os.makedirs('artifacts/d')\n"
        "    open('artifacts/d/a.csv', 'w').write('1,2')\n"
        "    open('artifacts/b.exe', 'w').write('2')\n"
        "    os.symlink('/etc/passwd', 'artifacts/c.csv')\n"
    )

    result = run(sandbox(vendor), script)

    assert [(file.name, file.data, file.mime_type) for file in result.files] == [("d/a.csv", b"1,2", "text/csv")]
    assert {file.name for file in result.skipped} == {"b.exe", "c.csv"}
    assert UNSUPPORTED_TYPE in {file.reason for file in result.skipped}


def test_failed_program_returns_its_traceback_and_its_sandbox_is_deleted(vendor: Vendor):
    result = run(sandbox(vendor), "def main(): raise ValueError('no')")

    assert (result.has_value, result.exit_code) == (False, 1)
    assert 'File "main.py", line 1, in main\n    def main(): raise' in result.stderr
    assert result.stderr.endswith("ValueError: no\n")
    assert vendor.deleted_ids == ["sbx-1"]


def test_printed_result_marker_is_not_read_as_the_result(vendor: Vendor):
    forged = base64.b64encode(b'{"present": true, "value": "forged"}').decode()
    script = (
        f"print('__RAGFLOW_RESULT__:{forged}')\nprint('__RAGFLOW_RESULT__{'0' * 32}:{forged}')\ndef main(): return 1"
    )

    result = run(sandbox(vendor), script)

    assert result.value == 1
    assert result.stdout.count(forged) == 2


def test_error_for_a_wrong_key_does_not_contain_it(vendor: Vendor):
    with pytest.raises(ToolError, match=r"^Provider system execution failed: HTTP 401: Invalid API key$") as failed:
        run(sandbox(vendor, api_key="wr0ng-key"), "def main(): return 1")

    assert "wr0ng-key" not in str(failed.value)
    assert vendor.deleted_ids == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Response('{"code": "not_found", "message": "sandbox not found"}', 404), "HTTP 404: sandbox not found"),
        (Response("bad gateway", 502), "HTTP 502: bad gateway"),
        (Response(envelope({"error": {"code": "unauthenticated", "message": "no"}}, 2)), "unauthenticated: no"),
        (Response(event(start={"pid": 1}) + envelope({}, 2)), "the stream ended before the program did."),
        (Response(event(start={"pid": 1})[:-3]), "the stream ended before the program did."),
        (Response(envelope({}, flags=1)), "a message is compressed, which is not supported."),
        (Response(b"\x00\xff\xff\xff\xff"), "a message is larger than 67,108,864 bytes."),
    ],
)
def test_vendor_error_is_reported_and_the_sandbox_is_deleted(vendor: Vendor, answer: Response, error: str):
    vendor.answer = lambda: answer

    with pytest.raises(ToolError) as failed:
        run(sandbox(vendor), "def main(): return 1")

    assert str(failed.value) == f"Provider system execution failed: {error}"
    assert vendor.deleted_ids == ["sbx-1"]


def test_program_with_endless_output_is_stopped(vendor: Vendor):
    def endless_output() -> Iterator[bytes]:
        while not vendor.deleted_ids and not vendor.may_end.is_set():
            yield output(b"x" * 50_000)

    vendor.answer = lambda: Response(endless_output())

    with pytest.raises(ToolError, match=r"^The program's output exceeded 1048576 bytes\.$"):
        run(sandbox(vendor), "def main(): return 1")

    assert vendor.deleted_ids == ["sbx-1"]


def test_program_that_does_not_end_times_out(vendor: Vendor):
    def never_end() -> Iterator[bytes]:
        yield event(start={"pid": 1})
        while not vendor.may_end.wait(0.05):
            yield event(keepalive={})

    vendor.answer = lambda: Response(never_end())

    with pytest.raises(ToolError, match=r"^Execution timed out after 0\.5 seconds$"):
        run(sandbox(vendor), "def main(): return 1", timeout=0.5)

    assert vendor.deleted_ids == ["sbx-1"]


def test_cancelled_run_deletes_its_sandbox(vendor: Vendor):
    def never_end() -> Iterator[bytes]:
        yield event(start={"pid": 1})
        vendor.may_end.wait(DEADLINE_S)

    vendor.answer = lambda: Response(never_end())

    async def cancel_run() -> None:
        task = asyncio.create_task(sandbox(vendor).run(program("def main(): return 1")))
        assert await asyncio.to_thread(vendor.has_started.wait, DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_run())

    assert vendor.deleted_ids == ["sbx-1"]


@pytest.mark.parametrize("body", [{"sandboxID": "../teams"}, {"sandboxID": "a.evil.example/"}, {}, []])
def test_answer_without_a_valid_sandbox_id_is_an_error(httpserver: HTTPServer, body: Any):
    httpserver.expect_oneshot_request("/sandboxes").respond_with_json(body)
    url = httpserver.url_for("")
    target = E2BSandbox(HttpClient(Guard()), E2BSettings(api_key=KEY, api_url=url, sandbox_url=f"{url}/{{id}}"))  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="the response has no valid sandbox id"):
        run(target, "def main(): return 1")


def test_sandbox_domain_from_an_answer_is_checked_by_the_guard(httpserver: HTTPServer):
    body = {"sandboxID": "sbx-1", "domain": f"127.0.0.1:{httpserver.port}"}
    httpserver.expect_request("/sandboxes", method="POST").respond_with_json(body)
    httpserver.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_data(status=204)
    settings = E2BSettings(api_key=KEY, api_url=httpserver.url_for(""), sandbox_url="http://{domain}/{id}")  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="non-public address"):
        run(E2BSandbox(HttpClient(Guard()), settings), "def main(): return 1")
