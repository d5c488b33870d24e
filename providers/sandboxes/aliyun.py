"""Alibaba Cloud's code interpreter (AgentRun): creates a sandbox from a template for each program, and deletes it.

Uses the public data API: JSON over HTTPS, each request signed with an access key. Programs run in an interpreter of the
sandbox, which answers after the program has ended with a list of its outputs:

    {"results": [{"type": "stdout", "text": "..."}, {"type": "endOfExecution", "status": "ok"}]}

Files are not supported. Implements `providers.interfaces.Sandbox`. Written from the vendor's documentation, and never
tested against the vendor's service.
"""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Http, HttpCall, Program, ProgramResult
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.settings import SandboxSettings

GRACE = 10.0  # seconds in addition to the timeout of the program
READY_TIMEOUT = 60.0  # until a new sandbox must be ready
READY_INTERVAL = 0.5  # seconds between two health checks of a new sandbox
MAX_RESPONSE_BYTES = 48 * 1024 * 1024  # of a response
MAX_EXCERPT = 200  # characters of an invalid response that the error quotes

ALGORITHM = "AGENTRUN4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LANGUAGES = {"python": "python", "nodejs": "javascript"}


class AliyunSettings(SandboxSettings):
    """Settings of AgentRun. `endpoint` replaces the default address of account and region."""

    access_key_id: str = Field(min_length=1)
    access_key_secret: SecretStr = Field(min_length=1)
    account_id: str = Field(pattern=r"^\d+$")
    region: Literal["cn-hangzhou", "cn-beijing", "cn-shanghai", "cn-shenzhen", "cn-guangzhou"] = "cn-hangzhou"
    template_name: str = Field(min_length=1)
    timeout: float = Field(default=30.0, ge=1, le=30)  # seconds of a program; 30 is the vendor's maximum
    endpoint: str | None = Field(default=None, pattern=r"^https?://")


class AliyunSandbox:
    """One account. The template decides what programs may reach, so no program is run twice."""

    def __init__(
        self,
        http: Http,
        settings: AliyunSettings,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        ready_interval: float = READY_INTERVAL,
    ) -> None:
        self._http = http
        self._settings = settings
        self._clock = clock
        self._ready_interval = ready_interval
        host = f"{settings.account_id}-ram.agentrun-data.{settings.region}.aliyuncs.com"
        self._base = (settings.endpoint or f"https://{host}").rstrip("/")

    @property
    def is_repeatable(self) -> bool:
        """Return False: the template may allow programs to reach a network."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded its timeout."""
        if program.language not in _LANGUAGES:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        seconds = min(program.timeout, self._settings.timeout)
        creating = asyncio.create_task(self._create(seconds))
        try:
            sandbox_id = await asyncio.shield(creating)
        except asyncio.CancelledError:  # the sandbox may still be created, and would cost money until its idle timeout
            with suppress(ToolError):
                await asyncio.shield(self._delete(await creating))
            raise
        try:
            await self._wait_until_ready(sandbox_id)
            return await self._execute(sandbox_id, program, seconds)
        finally:
            await asyncio.shield(self._delete(sandbox_id))

    async def _create(self, seconds: float) -> str:
        body = {
            "templateName": self._settings.template_name,
            "sandboxIdleTimeoutSeconds": int(seconds + READY_TIMEOUT + 3 * GRACE),
        }
        sandbox_id = str(_data(await self._request("POST", "/sandboxes", body)).get("sandboxId") or "")
        if not _ID.fullmatch(sandbox_id):
            raise ToolError("Provider system execution failed: the response has no valid sandbox id.")
        return sandbox_id

    async def _wait_until_ready(self, sandbox_id: str) -> None:
        """Wait until the sandbox is ready. Raises ToolError if that takes longer than READY_TIMEOUT."""
        last = "there was no response"
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                while True:
                    try:
                        health = await self._request("GET", f"/sandboxes/{sandbox_id}/health", None)
                    except ToolError as error:
                        if not error.retryable:
                            raise
                        last = error.message
                    else:
                        if _is_healthy(health):
                            return
                        last = "it is not ready"
                    await asyncio.sleep(self._ready_interval)
        except TimeoutError:
            raise ToolError(f"Provider system execution failed: no sandbox became ready ({last}).") from None

    async def _execute(self, sandbox_id: str, program: Program, seconds: float) -> ProgramResult:
        remote = RemoteProgram.of(program, ends=False)
        body = {"code": remote.text, "language": _LANGUAGES[program.language], "timeout": max(1, int(seconds))}
        try:
            async with asyncio.timeout(seconds + GRACE):
                answer = await self._request("POST", f"/sandboxes/{sandbox_id}/contexts/execute", body)
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        results = _data(answer).get("results")
        if not isinstance(results, list):
            raise ToolError("There is no response from sandbox")
        return _program_result(results, RemoteOutput(remote.mark), seconds)

    async def _delete(self, sandbox_id: str) -> None:
        with suppress(ToolError):  # the vendor ends the sandbox after its idle timeout
            await self._request("DELETE", f"/sandboxes/{sandbox_id}", None)

    async def _request(self, method: str, path: str, body: Any) -> Any:
        url = self._base + path
        call = HttpCall(
            method,
            url,
            headers=sign_headers(method, url, self._settings, self._clock()),
            json=body,
            timeout=self._settings.timeout + 2 * GRACE,
            trusted=True,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        try:
            reply = await self._http.send(call)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}", retryable=error.retryable) from error
        answer = await in_untrusted_thread(_parse_json, reply.content)
        if not reply.is_success:
            message = answer.get("message") if isinstance(answer, Mapping) else None
            text = message or reply.content[:MAX_EXCERPT].decode("utf-8", "replace")
            is_temporary = reply.status >= 500 or reply.status in (404, 429)  # 404: a new sandbox is not yet visible
            raise ToolError(f"Provider system execution failed: HTTP {reply.status}: {text}", retryable=is_temporary)
        if isinstance(answer, Mapping) and answer.get("code") not in (None, "SUCCESS"):
            raise ToolError(f"Provider system execution failed: {answer.get('code')}: {answer.get('message')}")
        return answer


@dataclass(frozen=True, slots=True)
class _SignatureScope:
    """The scope of a signature: a day, a region and this product."""

    day: str
    region: str

    def __str__(self) -> str:
        return f"{self.day}/{self.region}/agentrun/aliyun_v4_request"

    def key(self, secret: str) -> bytes:
        """Return the signing key of this scope."""
        key = f"aliyun_v4{secret}".encode()
        for part in str(self).split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key


def sign_headers(method: str, url: str, settings: AliyunSettings, now: datetime) -> Mapping[str, str]:
    """Return the headers with the vendor's signature. The URL has no query, and the body is not signed."""
    place = urlsplit(url)
    headers = {
        "host": place.netloc,
        "x-acs-content-sha256": _UNSIGNED,
        "x-acs-date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{place.path or '/'}\n\n{lines}\n{names}\n{_UNSIGNED}"
    scope = _SignatureScope(now.strftime("%Y%m%d"), settings.region)
    text = f"{ALGORITHM}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(scope.key(settings.access_key_secret.get_secret_value()), text.encode(), "sha256").hex()
    credential = f"{settings.access_key_id}/{scope}"
    return headers | {
        "Agentrun-Authorization": f"{ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signature}"
    }


def _program_result(results: list[Any], output: RemoteOutput, seconds: float) -> ProgramResult:
    """Return the result of a program from the items of a response. Raises ToolError if the program timed out."""
    exit_code = 0
    for item in results:
        if not isinstance(item, Mapping):
            continue
        text = str(item.get("text") or "").encode("utf-8", "replace")
        match item.get("type"):
            case "stdout":
                output.add(stdout=text)
            case "stderr":
                output.add(stderr=text)
            case "error":
                exit_code = 1
                output.add(stderr=text or str(item.get("value") or item.get("ename") or "").encode())
            case "endOfExecution":
                if item.get("status") == "timeout":
                    raise ToolError(f"Execution timed out after {seconds:g} seconds")
                exit_code = exit_code or int(item.get("status") not in (None, "ok"))
            case _:
                pass
    return output.result(exit_code)


def _is_healthy(health: Any) -> bool:
    return str(_data(health).get("status")).lower() in ("ok", "healthy", "ready")


def _data(answer: Any) -> Mapping[str, Any]:
    """Return the data of a response; some responses have it in an envelope of code and message."""
    fields: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    data = fields.get("data")
    return data if isinstance(data, Mapping) else fields


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
