"""A client of E2B against a server that speaks the vendor's protocol and runs what it is given for real."""

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
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.e2b import MAX_ARGUMENT_BYTES, E2BSandbox, E2BSettings, EnvelopeParser
from providers.sandboxes.produced_files import UNSUPPORTED_TYPE

KEY, TOKEN = "e2b-k3y", "t0ken"
PATIENCE = 10.0
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


def envelope(message: Mapping[str, Any], flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def event(**told: Any) -> bytes:
    return envelope({"event": told})


def spoken(text: bytes, stream: str = "stdout") -> bytes:
    return event(data={stream: base64.b64encode(text).decode()})


def cut(stream: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(stream), size):
        yield stream[begin : begin + size]


@dataclass
class Vendor:
    """The vendor's two servers in one. `answer` stands for the stream of a process where it is given."""

    server: HTTPServer
    home: Path
    made: list[Mapping[str, Any]] = field(default_factory=list)
    started: list[Mapping[str, Any]] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    answer: Callable[[], Response] | None = None
    has_started: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.server.expect_request("/sandboxes", method="POST").respond_with_handler(self.make)
        self.server.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_handler(self.take_back)
        self.server.expect_request("/sbx-1/process.Process/Start").respond_with_handler(self.start)
        self.server.expect_request("/sbx-1/files", method="POST").respond_with_handler(self.keep)

    def make(self, request: Request) -> Response:
        if request.headers.get("X-API-Key") != KEY:
            return Response(json.dumps({"code": 401, "message": "Invalid API key"}), 401)
        self.made.append(request.get_json())
        told = {"sandboxID": "sbx-1", "envdAccessToken": TOKEN, "envdVersion": "0.4.0", "templateID": "base"}
        return Response(json.dumps(told), 201)

    def take_back(self, request: Request) -> Response:
        assert request.headers["X-API-Key"] == KEY
        self.given_back.append("sbx-1")
        return Response(status=204)

    def keep(self, request: Request) -> Response:
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
        done = subprocess.run([process["cmd"], *process["args"]], cwd=self.home, capture_output=True, check=False)
        end = {"exited": True, "status": f"exit status {done.returncode}"}
        stream = (
            event(start={"pid": 7})
            + event(keepalive={})
            + spoken(done.stderr, "stderr")
            + b"".join(spoken(part) for part in cut(done.stdout, 50))
            + event(end=end | ({"exitCode": done.returncode} if done.returncode else {}))
            + envelope({}, flags=2)
        )
        return Response(cut(stream, 7), content_type="application/connect+json")


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with HTTPServer(threaded=True) as server:
        vendor = Vendor(server, tmp_path)
        yield vendor
        vendor.may_end.set()


def sandbox(vendor: Vendor, **settings: Any) -> E2BSandbox:
    url = vendor.server.url_for("")
    told = {"api_key": KEY, "api_url": url, "sandbox_url": f"{url}/{{id}}"} | settings
    return E2BSandbox(HttpClient(Guard()), E2BSettings(**told))


def program(script: str, language: str = "python", arguments: Mapping[str, Any] | None = None, **more: Any) -> Program:
    return Program(language, script, arguments or {}, more.get("timeout", PATIENCE), "key")


def run(given: E2BSandbox, script: str, language: str = "python", arguments: Any = None, **more: Any) -> ProgramResult:
    return asyncio.run(given.run(program(script, language, arguments, **more)))


def test_a_program_runs_and_its_sandbox_is_given_back(vendor: Vendor):
    given = {"a": True, "b": None, "c": ["é'\"\\$`", 1.5]}

    result = run(sandbox(vendor), "print('hello')\ndef main(**given): return given", arguments=given)

    assert (result.value, result.has_value, result.stdout, result.stderr) == (given, True, "hello\n", "")
    assert vendor.given_back == ["sbx-1"]
    assert (vendor.made[0]["templateID"], vendor.made[0]["allow_internet_access"]) == ("base", False)


@needs_node
def test_javascript_runs_as_well(vendor: Vendor):
    result = run(
        sandbox(vendor), "async function main({a}) { console.log('x'); return {a} }", "nodejs", {"a": [1, None]}
    )

    assert (result.value, result.stdout) == ({"a": [1, None]}, "x\n")


def test_a_program_too_long_for_an_argument_goes_as_a_file(vendor: Vendor):
    long = "é" * MAX_ARGUMENT_BYTES

    assert run(sandbox(vendor), "def main(a): return len(a)", arguments={"a": long}).value == MAX_ARGUMENT_BYTES
    assert all(len(part) < MAX_ARGUMENT_BYTES for part in vendor.started[0]["args"])


def test_files_come_along_and_what_is_not_taken_is_told(vendor: Vendor):
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


def test_a_program_that_fails_says_why_and_its_sandbox_is_given_back(vendor: Vendor):
    result = run(sandbox(vendor), "def main(): raise ValueError('no')")

    assert (result.has_value, result.exit_code) == (False, 1)
    assert 'File "main.py", line 1, in main\n    def main(): raise' in result.stderr
    assert result.stderr.endswith("ValueError: no\n")
    assert vendor.given_back == ["sbx-1"]


def test_what_is_printed_does_not_pass_for_the_result(vendor: Vendor):
    forged = base64.b64encode(b'{"present": true, "value": "forged"}').decode()
    script = (
        f"print('__RAGFLOW_RESULT__:{forged}')\nprint('__RAGFLOW_RESULT__{'0' * 32}:{forged}')\ndef main(): return 1"
    )

    result = run(sandbox(vendor), script)

    assert result.value == 1
    assert result.stdout.count(forged) == 2


def test_a_wrong_key_is_told_without_it(vendor: Vendor):
    with pytest.raises(ToolError, match=r"^Provider system execution failed: HTTP 401: Invalid API key$") as failed:
        run(sandbox(vendor, api_key="wr0ng-key"), "def main(): return 1")

    assert "wr0ng-key" not in str(failed.value)
    assert vendor.given_back == []


@pytest.mark.parametrize(
    ("answer", "told"),
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
def test_a_vendor_that_fails_is_told_and_the_sandbox_is_given_back(vendor: Vendor, answer: Response, told: str):
    vendor.answer = lambda: answer

    with pytest.raises(ToolError) as failed:
        run(sandbox(vendor), "def main(): return 1")

    assert str(failed.value) == f"Provider system execution failed: {told}"
    assert vendor.given_back == ["sbx-1"]


def test_a_program_that_never_stops_talking_is_cut_off(vendor: Vendor):
    def endless() -> Iterator[bytes]:
        while not vendor.given_back and not vendor.may_end.is_set():
            yield spoken(b"x" * 50_000)

    vendor.answer = lambda: Response(endless())

    with pytest.raises(ToolError, match=r"^The program's output exceeded 1048576 bytes\.$"):
        run(sandbox(vendor), "def main(): return 1")

    assert vendor.given_back == ["sbx-1"]


def test_a_program_without_an_end_has_the_time_that_was_set(vendor: Vendor):
    def silent() -> Iterator[bytes]:
        yield event(start={"pid": 1})
        while not vendor.may_end.wait(0.05):
            yield event(keepalive={})

    vendor.answer = lambda: Response(silent())

    with pytest.raises(ToolError, match=r"^Execution timed out after 0\.5 seconds$"):
        run(sandbox(vendor), "def main(): return 1", timeout=0.5)

    assert vendor.given_back == ["sbx-1"]


def test_whoever_stops_waiting_gives_the_sandbox_back(vendor: Vendor):
    def silent() -> Iterator[bytes]:
        yield event(start={"pid": 1})
        vendor.may_end.wait(PATIENCE)

    vendor.answer = lambda: Response(silent())

    async def called_off() -> None:
        task = asyncio.create_task(sandbox(vendor).run(program("def main(): return 1")))
        assert await asyncio.to_thread(vendor.has_started.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(called_off())

    assert vendor.given_back == ["sbx-1"]


@pytest.mark.parametrize("named", [{"sandboxID": "../teams"}, {"sandboxID": "a.evil.example/"}, {}, []])
def test_an_answer_that_names_no_sandbox_leads_nowhere(httpserver: HTTPServer, named: Any):
    httpserver.expect_oneshot_request("/sandboxes").respond_with_json(named)
    url = httpserver.url_for("")
    given = E2BSandbox(HttpClient(Guard()), E2BSettings(api_key=KEY, api_url=url, sandbox_url=f"{url}/{{id}}"))  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="the response has no valid sandbox id"):
        run(given, "def main(): return 1")


def test_a_domain_that_only_an_answer_names_is_checked_like_a_strangers(httpserver: HTTPServer):
    told = {"sandboxID": "sbx-1", "domain": f"127.0.0.1:{httpserver.port}"}
    httpserver.expect_request("/sandboxes", method="POST").respond_with_json(told)
    httpserver.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_data(status=204)
    settings = E2BSettings(api_key=KEY, api_url=httpserver.url_for(""), sandbox_url="http://{domain}/{id}")  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="non-public address"):
        run(E2BSandbox(HttpClient(Guard()), settings), "def main(): return 1")
