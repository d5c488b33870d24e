"""Alibaba Cloud's code interpreter, with responses from its documentation. The vendor itself is not called."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import HttpCall, HttpResponse, Program, ProgramResult
from providers.sandboxes.aliyun import AliyunSandbox, AliyunSettings, sign_headers
from tests.fakes import FakeHttp

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTINGS = AliyunSettings(
    access_key_id="LTAI-id", access_key_secret="s3cret", account_id="1234", template_name="codes"  # pyright: ignore[reportArgumentType]
)  # fmt: skip
OK = {"code": "SUCCESS"}


class Vendor:
    """Answer each request, with `health` and `execute` as configured, and record the requests in order."""

    def __init__(self, execute: Callable[[Mapping[str, Any]], Any], health: list[Any] | None = None) -> None:
        self.execute = execute
        self.health = health or [{"status": "ok"}]
        self.requests: list[str] = []
        self.bodies: list[Any] = []

    def __call__(self, call: HttpCall) -> HttpResponse:
        path = call.url.partition("aliyuncs.com")[2]
        self.requests.append(f"{call.method} {path}")
        self.bodies.append(call.json)
        if path == "/sandboxes":
            return reply(OK | {"data": {"sandboxId": "sbx-1", "status": "CREATING"}})
        if path.endswith("/health"):
            answer = self.health.pop(0) if len(self.health) > 1 else self.health[0]
            return answer if isinstance(answer, HttpResponse) else reply(answer)
        if path.endswith("/contexts/execute"):
            answer = self.execute(call.json)
            return answer if isinstance(answer, HttpResponse) else reply(answer)
        return reply(OK)


def reply(body: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(
        status, {}, body if isinstance(body, bytes) else json.dumps(body).encode(), "http://vendor.test/"
    )


def run(vendor: Vendor, script: str = "def main(): return 1", language: str = "python", **more: Any) -> ProgramResult:
    sandbox = AliyunSandbox(FakeHttp(vendor), SETTINGS, clock=lambda: NOON, ready_interval=0)
    return asyncio.run(sandbox.run(Program(language, script, {"a": True}, more.get("timeout", 10.0), "key")))


def interpreter_with(result: Any, *items: Mapping[str, Any], status: str = "ok") -> Callable[[Mapping[str, Any]], Any]:
    """Return an interpreter that prints `result` after the marker that it finds in the code."""

    def execute(body: Mapping[str, Any]) -> Any:
        job = json.loads(base64.b64decode(re.search(r'JOB = "([^"]+)"', body["code"])[1]))  # pyright: ignore[reportOptionalSubscript]
        line = job["mark"] + base64.b64encode(json.dumps({"present": True, "value": result}).encode()).decode()
        stdout = [{"type": "stdout", "text": f"hello\n{line}\n"}] if result is not None else []
        return {"results": [*stdout, *items, {"type": "endOfExecution", "status": status}], "contextId": "k"}

    return execute


def test_sandbox_is_created_used_and_deleted():
    vendor = Vendor(
        interpreter_with({"n": 1}),
        health=[reply({"message": "not yet"}, 404), {"status": "starting"}, {"status": "ok"}],
    )

    result = run(vendor)

    assert (result.value, result.has_value, result.stdout) == ({"n": 1}, True, "hello\n")
    assert vendor.requests == [
        "POST /sandboxes",
        *["GET /sandboxes/sbx-1/health"] * 3,
        "POST /sandboxes/sbx-1/contexts/execute",
        "DELETE /sandboxes/sbx-1",
    ]
    assert (vendor.bodies[0]["templateName"], vendor.bodies[4]["language"], vendor.bodies[4]["timeout"]) == (
        "codes",
        "python",
        10,
    )


def test_nodejs_program_is_sent_as_javascript():
    vendor = Vendor(interpreter_with(1))

    assert run(vendor, "const main = () => 1", "nodejs").value == 1
    assert vendor.bodies[2]["language"] == "javascript"


@pytest.mark.parametrize(
    ("items", "status", "message"),
    [
        ([{"type": "error", "text": "ValueError: no"}], "error", "ValueError: no"),
        ([{"type": "stderr", "text": "Traceback ..."}], "error", "Traceback ..."),
        ([{"type": "error", "ename": "NameError"}], "ok", "NameError"),
    ],
)
def test_failed_program_is_reported_with_its_error(items: list[Any], status: str, message: str):
    vendor = Vendor(interpreter_with(None, *items, status=status))

    result = run(vendor)

    assert (result.has_value, result.exit_code, result.stderr) == (False, 1, message)
    assert vendor.requests[-1] == "DELETE /sandboxes/sbx-1"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (interpreter_with(None, status="timeout"), "Execution timed out after 10 seconds"),
        (lambda _: {"results": None}, "There is no response from sandbox"),
        (lambda _: reply({"message": "gone"}, 404), "Provider system execution failed: HTTP 404: gone"),
        (lambda _: {"code": "ERR", "message": "no"}, "Provider system execution failed: ERR: no"),
        (lambda _: reply(b"<html>", 502), "Provider system execution failed: HTTP 502: <html>"),
    ],
)
def test_vendor_failure_is_reported_and_the_sandbox_is_deleted(answer: Callable[[Any], Any], message: str):
    vendor = Vendor(answer)

    with pytest.raises(ToolError) as failed:
        run(vendor)

    assert str(failed.value) == message
    assert vendor.requests[-1] == "DELETE /sandboxes/sbx-1"


def test_error_about_a_wrong_key_does_not_contain_the_key():
    def refuse(call: HttpCall) -> HttpResponse:
        return reply({"code": "Unauthorized", "message": "signature does not match"}, 401)

    with pytest.raises(ToolError, match=r"HTTP 401: signature does not match$") as failed:
        asyncio.run(AliyunSandbox(FakeHttp(refuse), SETTINGS).run(Program("python", "x", {}, 1, "key")))

    assert "s3cret" not in str(failed.value)


def test_unreachable_vendor_is_reported():
    def fail(call: HttpCall) -> HttpResponse:
        raise HttpFailed("https://x: cannot connect", retryable=True)

    with pytest.raises(ToolError, match=r"^Provider system execution failed: https://x: cannot connect$") as failed:
        asyncio.run(AliyunSandbox(FakeHttp(fail), SETTINGS).run(Program("python", "x", {}, 1, "key")))

    assert failed.value.retryable


def test_signature_is_specific_to_its_request():
    url = "https://1234-ram.agentrun-data.cn-hangzhou.aliyuncs.com/sandboxes"

    headers = sign_headers("POST", url, SETTINGS, NOON)

    assert headers["host"] == "1234-ram.agentrun-data.cn-hangzhou.aliyuncs.com"
    assert (headers["x-acs-date"], headers["x-acs-content-sha256"]) == ("2026-01-02T12:00:00Z", "UNSIGNED-PAYLOAD")
    assert headers["Agentrun-Authorization"] == (
        "AGENTRUN4-HMAC-SHA256 Credential=LTAI-id/20260102/cn-hangzhou/agentrun/aliyun_v4_request,"
        "SignedHeaders=host;x-acs-content-sha256;x-acs-date,"
        "Signature=5a783e29a01707fb1edcbaa8d783cbcc4b2fc142a2f1561fb4789b60bc5a19e8"
    )
    others = [sign_headers("GET", url, SETTINGS, NOON), sign_headers("POST", f"{url}/x", SETTINGS, NOON)]
    assert all(other["Agentrun-Authorization"] != headers["Agentrun-Authorization"] for other in others)
