"""The E2B sandbox, against a server with the vendor's protocol that really runs the programs it receives."""

import asyncio
import base64
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.e2b import MAX_ARGUMENT_BYTES, E2BSandbox, E2BSettings
from providers.sandboxes.produced_files import UNSUPPORTED_TYPE
from tests.integration.providers.e2b_vendor import DEADLINE_S, KEY, Vendor, e2b_vendor, envelope, event, output

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with e2b_vendor(tmp_path) as vendor:
        yield vendor


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


@pytest.mark.parametrize("script", ["", "#" * MAX_ARGUMENT_BYTES])
def test_template_with_a_working_directory_of_its_own_runs_programs_in_the_home(vendor: Vendor, script: str):
    result = run(sandbox(vendor), f"import os\ndef main(): return os.getcwd()\n{script}")

    assert result.value == str(vendor.home.resolve() / "easel-code")


def test_program_sees_what_the_template_sets_in_the_profile_of_its_user(vendor: Vendor):
    result = run(sandbox(vendor), "import os\ndef main(): return os.environ['PROFILE']")

    assert result.value == "read"


@pytest.mark.parametrize(
    ("version", "header", "parameter"),
    [
        ("0.3.9", "Basic dXNlcjo=", "user"),
        ("0.4.0", None, None),
        ("0.10.1", None, None),
        ("", "Basic dXNlcjo=", "user"),
        ("of the vendor's own", "Basic dXNlcjo=", "user"),
    ],
)
def test_user_is_named_only_to_a_daemon_that_does_not_know_the_templates_user(
    vendor: Vendor, version: str, header: str | None, parameter: str | None
):
    vendor.envd_version = version

    run(sandbox(vendor), "#" * MAX_ARGUMENT_BYTES + "\ndef main(): return 1")

    upload, start = vendor.daemon_requests
    assert start.headers.get("Authorization") == header
    assert upload.args.get("username") == parameter


def test_service_without_the_second_version_of_the_api_creates_a_secure_sandbox(vendor: Vendor):
    vendor.has_second_version = False

    result = run(sandbox(vendor), "def main(): return 1")

    assert result.value == 1
    assert [(request["secure"], request["allow_internet_access"]) for request in vendor.create_requests] == [
        (True, False)
    ]
    assert vendor.deleted_ids == ["sbx-1"]


def test_daemon_is_told_when_to_end_a_program_whose_worker_is_lost(vendor: Vendor):
    run(sandbox(vendor, timeout=2.5), "def main(): return 1")

    assert [request.headers["Connect-Timeout-Ms"] for request in vendor.daemon_requests] == ["12500"]


@pytest.mark.parametrize(("status", "is_temporary"), [(429, True), (503, True), (400, False), (403, False)])
def test_refused_creation_is_repeated_only_if_that_may_help(httpserver: HTTPServer, status: int, is_temporary: bool):
    httpserver.expect_request("/v2/sandboxes").respond_with_json({"code": status, "message": "no"}, status)
    target = E2BSandbox(HttpClient(Guard()), E2BSettings(api_key=KEY, api_url=httpserver.url_for("")))  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match=f"^Provider system execution failed: HTTP {status}: no$") as failed:
        run(target, "def main(): return 1")

    assert failed.value.retryable is is_temporary


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
        (Response(b"\x00\xff\xff\xff\xff"), "a message is larger than 4,194,304 bytes."),
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


def test_run_that_is_cancelled_while_its_sandbox_is_created_deletes_it(vendor: Vendor):
    is_creating, may_create = threading.Event(), threading.Event()

    def wait() -> None:
        is_creating.set()
        may_create.wait(DEADLINE_S)

    vendor.before_creation = wait

    async def cancel_run() -> None:
        task = asyncio.create_task(sandbox(vendor).run(program("def main(): return 1")))
        assert await asyncio.to_thread(is_creating.wait, DEADLINE_S)
        task.cancel()
        may_create.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_run())

    assert vendor.deleted_ids == ["sbx-1"]
    assert vendor.started == []


def test_endless_error_of_a_daemon_is_cut_off(vendor: Vendor):
    def endless_text() -> Iterator[bytes]:
        while not vendor.deleted_ids and not vendor.may_end.is_set():
            yield b"x" * 50_000

    vendor.answer = lambda: Response(endless_text(), 500)

    with pytest.raises(ToolError, match=r"^Provider system execution failed: HTTP 500: x{200}$"):
        run(sandbox(vendor), "def main(): return 1")

    assert vendor.deleted_ids == ["sbx-1"]


@pytest.mark.parametrize("body", [{"sandboxID": "../teams"}, {"sandboxID": "a.evil.example/"}, {}, []])
def test_answer_without_a_valid_sandbox_id_is_an_error(httpserver: HTTPServer, body: Any):
    httpserver.expect_oneshot_request("/v2/sandboxes").respond_with_json(body)
    url = httpserver.url_for("")
    target = E2BSandbox(HttpClient(Guard()), E2BSettings(api_key=KEY, api_url=url, sandbox_url=f"{url}/{{id}}"))  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="the response has no valid sandbox id"):
        run(target, "def main(): return 1")


def test_sandbox_domain_from_an_answer_is_checked_by_the_guard(httpserver: HTTPServer):
    body = {"sandboxID": "sbx-1", "domain": f"127.0.0.1:{httpserver.port}"}
    httpserver.expect_request("/v2/sandboxes", method="POST").respond_with_json(body)
    httpserver.expect_request("/sandboxes/sbx-1", method="DELETE").respond_with_data(status=204)
    settings = E2BSettings(api_key=KEY, api_url=httpserver.url_for(""), sandbox_url="http://{domain}/{id}")  # pyright: ignore[reportArgumentType]

    with pytest.raises(ToolError, match="non-public address"):
        run(E2BSandbox(HttpClient(Guard()), settings), "def main(): return 1")
