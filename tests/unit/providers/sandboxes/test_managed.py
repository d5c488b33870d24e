"""The client of an executor manager, with recorded responses. No real manager is called."""

import asyncio
import base64
import json
from typing import Any

import pytest

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import HttpCall, HttpResponse, ProducedFile, Program, ProgramResult
from providers.sandboxes.managed import ManagedSandbox
from tests.fakes import FakeHttp

DONE = {
    "status": "success", "stdout": "", "stderr": "", "exit_code": 0,
    "result": {"present": True, "value": 1, "type": "json"}, "artifacts": [],
}  # fmt: skip
BUSY = {"status": "program_runner_error", "stdout": "", "stderr": "Container pool is busy", "exit_code": -10}


def reply(body: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(
        status, {}, body if isinstance(body, bytes) else json.dumps(body).encode(), "http://manager.test/run"
    )


def manager(*answers: HttpResponse | Exception, **settings: Any) -> tuple[ManagedSandbox, FakeHttp]:
    """Return a sandbox whose manager gives `answers` in order and repeats the last one."""
    remaining = list(answers)

    def answer(call: HttpCall) -> HttpResponse:
        response = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(response, Exception):
            raise response
        return response

    http = FakeHttp(answer)
    return ManagedSandbox(http, "http://manager.test/", retry_delay=0, **settings), http


def run(sandbox: ManagedSandbox, **program: Any) -> ProgramResult:
    fields = {"language": "python", "script": "def main(): return 1", "arguments": {}, "timeout": 10.0, "key": "k"}
    return asyncio.run(sandbox.run(Program(**(fields | program))))


def marked(mark: str, payload: Any) -> str:
    return f"{mark}:{base64.b64encode(json.dumps(payload).encode()).decode()}"


def test_program_is_sent_to_the_manager_and_its_result_is_returned():
    sandbox, http = manager(reply(DONE))

    result = run(sandbox, arguments={"x": True})

    assert (result.has_value, result.value, result.exit_code) == (True, 1, 0)
    [call] = http.calls
    assert (call.method, call.url, call.trusted) == ("POST", "http://manager.test/run", True)
    assert call.json == {
        "code_b64": base64.b64encode(b"def main(): return 1").decode(),
        "language": "python",
        "arguments": {"x": True},
    }


def test_error_of_a_program_names_the_exceeded_limit():
    stopped = {
        "status": "resource_limit_exceeded", "resource_limit_type": "time", "exit_code": -124, "stdout": "",
        "stderr": "Execution timeout",
    }  # fmt: skip
    sandbox, http = manager(reply(stopped))

    result = run(sandbox)

    assert (result.has_value, result.stderr, result.exit_code) == (False, "Execution timeout", -124)
    assert len(http.calls) == 1


def test_busy_manager_is_retried_up_to_the_limit():
    sandbox, _ = manager(reply(BUSY), reply({**BUSY, "exit_code": -429}), reply(DONE))
    assert run(sandbox).value == 1

    sandbox, http = manager(reply(BUSY), tries=3)
    assert run(sandbox).stderr == "Container pool is busy"
    assert len(http.calls) == 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (HttpFailed("cannot connect", retryable=True), "Provider system execution failed: cannot connect"),
        (reply(b"upstream is down", 502), "Provider system execution failed: HTTP 502: upstream is down"),
        (reply(b""), "There is no response from sandbox"),
        (reply([1]), "There is no response from sandbox"),
    ],
)
def test_request_without_a_valid_answer_is_not_retried(answer: HttpResponse | Exception, text: str):
    sandbox, http = manager(answer)

    with pytest.raises(ToolError) as failed:
        run(sandbox)

    assert str(failed.value) == text
    assert len(http.calls) == 1


def test_manager_that_does_not_answer_in_time_is_abandoned(monkeypatch: pytest.MonkeyPatch):
    class Slow:
        async def send(self, call: HttpCall) -> HttpResponse:
            await asyncio.Event().wait()
            raise AssertionError("the event is never set")

    monkeypatch.setattr("providers.sandboxes.managed.GRACE", 0.01)

    with pytest.raises(ToolError, match=r"^Execution timed out after 0\.01 seconds$"):
        run(ManagedSandbox(Slow(), "http://manager.test", seconds=0.01))


@pytest.mark.parametrize("mark", ["__RAGFLOW_RESULT__", "__RAGFLOW_RESULT__0a1b"])
def test_last_result_line_in_stdout_is_the_result(mark: str):
    first, last = (marked(mark, {"present": True, "value": value, "type": "json"}) for value in ("no", {"a": None}))
    sandbox, _ = manager(reply({"stdout": f"hello\n{first}\n{last}\nbye\n", "exit_code": 0}))

    result = run(sandbox)

    assert (result.has_value, result.value, result.stdout) == (True, {"a": None}, "hello\nbye\n")


@pytest.mark.parametrize(
    "line", ["__RAGFLOW_RESULT__:", "__RAGFLOW_RESULT__:e30=", "__RAGFLOW_RESULT__:!!", "x __RAGFLOW_RESULT__:e30="]
)
def test_a_line_that_only_looks_like_a_result_is_output(line: str):
    sandbox, _ = manager(reply({"stdout": f"{line}\n", "exit_code": 0}))

    result = run(sandbox)

    assert (result.has_value, result.stdout) == (False, f"{line}\n")


def test_files_of_known_types_are_returned():
    artifacts = [
        {
            "name": "chart.png",
            "mime_type": "text/html",
            "size": 4,
            "content_b64": base64.b64encode(b"\x89PNG").decode(),
        },
        {"name": "run.exe", "content_b64": ""},
        {"name": "bad.csv", "content_b64": "!"},
        {"name": "odd.csv", "content_b64": "é"},
        "odd",
    ]
    sandbox, _ = manager(reply({**DONE, "artifacts": artifacts}))

    assert run(sandbox).files == [ProducedFile("chart.png", b"\x89PNG", "image/png")]
