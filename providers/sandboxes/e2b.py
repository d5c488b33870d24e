"""Sandboxes of E2B and compatible services: creates a sandbox for each program, and deletes it.

    result = await E2BSandbox(http, E2BSettings(api_key="...")).run(program)

The program runs as a process of the sandbox's daemon, which sends events over one streamed response (Connect protocol:
five bytes, flags and length, before each JSON message). Every answer of the daemon has a size limit, since a program
may put a server of its own in the daemon's place: the vendor's default user is allowed sudo. The requests are those of
the vendor's SDK (tests/integration/providers/test_e2b_vendor_sdk.py, docs/decisions/0064-e2b-by-our-own-client.md).
Implements `providers.interfaces.Sandbox`. Never tested against E2B's own service.
"""

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from packaging.version import Version
from pydantic import Field, SecretStr

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import HttpCall, HttpResponse, Program, ProgramResult, StreamedResponse, StreamingHttp
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.settings import SandboxSettings

DAEMON_PORT = 49983
USER = "user"  # the user of programs where the daemon is older than DEFAULT_USER_SINCE
DEFAULT_USER_SINCE = Version("0.4.0")  # of the daemon: it knows the template's user
GRACE = 10.0  # seconds in addition to the timeout of the program, for creating and deleting the sandbox
MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # bytes; the daemon sends 32 KiB of output a message, JSON may unpack to 30 times
MAX_STREAMED_BYTES = 256 * 1024 * 1024  # bytes of all messages; output of single characters has much JSON around it
MAX_ARGUMENT_BYTES = 100_000  # bytes of a program sent as an argument (Linux allows 131,072); longer ones are uploaded
MAX_EXCERPT = 200  # characters of an invalid response that the error quotes

_COMPRESSED, _END_OF_STREAM = 1, 2
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?")
_COMMANDS = {"python": "python3", "nodejs": "node"}
_FILES = {"python": "program.py", "nodejs": "program.cjs"}
_FOLDER = "easel-code"  # below the user's home, where relative paths of uploads start; a process starts elsewhere


class E2BSettings(SandboxSettings):
    """Settings of E2B. `sandbox_url` is the URL of a sandbox's daemon, with `{id}`, `{port}`, `{domain}` filled in."""

    api_key: SecretStr = Field(min_length=1)
    region: str = "us"  # accepted because stored settings contain it; not used
    api_url: str | None = Field(default=None, pattern=r"^https?://")
    domain: str = "e2b.app"
    sandbox_url: str = Field(default="https://{port}-{id}.{domain}", pattern=r"^https?://")
    template: str = "base"
    timeout: float = Field(default=30.0, ge=1, le=3600)  # seconds of a program
    allow_internet_access: bool = False


class E2BSandbox:
    """One account. A program in a sandbox without internet access may be run again."""

    def __init__(self, http: StreamingHttp, settings: E2BSettings) -> None:
        self._http = http
        self._settings = settings
        self._api = (settings.api_url or f"https://api.{settings.domain}").rstrip("/")

    @property
    def is_repeatable(self) -> bool:
        """Return whether programs have no internet access, so that they may be run again."""
        return not self._settings.allow_internet_access

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded its timeout."""
        if program.language not in _COMMANDS:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        seconds = min(program.timeout, self._settings.timeout)
        sandbox = await self._create(seconds)
        try:
            remote = RemoteProgram.of(program, with_files=True)
            async with asyncio.timeout(seconds):
                return await self._execute(sandbox, program.language, remote, seconds)
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        finally:
            await asyncio.shield(self._delete(sandbox.id))

    async def _create(self, seconds: float) -> "_RunningSandbox":
        body = {
            "templateID": self._settings.template,
            "timeout": int(seconds + 3 * GRACE),  # the vendor ends the sandbox then, if this worker has died
            "allow_internet_access": self._settings.allow_internet_access,
            "metadata": {},
            "envVars": {},
        }
        creating = asyncio.create_task(self._request_creation(body))
        try:
            answer = await asyncio.shield(creating)
        except asyncio.CancelledError:  # the sandbox may still be created, and would cost money until its timeout
            with suppress(ToolError):
                await asyncio.shield(self._delete(_sandbox_from(await creating, self._settings).id))
            raise
        return _sandbox_from(answer, self._settings)

    async def _request_creation(self, body: Mapping[str, Any]) -> Any:
        """Create a sandbox, over the first version of the API where a compatible service has no second one."""
        reply = await self._send("POST", "/v2/sandboxes", body)
        if reply.status in (404, 405):
            reply = await self._send("POST", "/sandboxes", {**body, "secure": True})  # always so in the second version
        return _success(reply)

    async def _delete(self, sandbox_id: str) -> None:
        with suppress(ToolError):  # the vendor ends the sandbox after its timeout
            await self._send("DELETE", f"/sandboxes/{sandbox_id}", None)

    async def _send(self, method: str, path: str, body: Any) -> HttpResponse:
        call = HttpCall(
            method,
            f"{self._api}{path}",
            headers={"X-API-Key": self._settings.api_key.get_secret_value()},
            json=body,
            timeout=GRACE * 3,
            trusted=True,
        )
        try:
            return await self._http.send(call)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}", retryable=error.retryable) from error

    async def _execute(
        self, sandbox: "_RunningSandbox", language: str, remote: RemoteProgram, seconds: float
    ) -> ProgramResult:
        output = RemoteOutput(remote.mark)
        packed = base64.b64encode(remote.text.encode()).decode()
        if len(packed) > MAX_ARGUMENT_BYTES:
            await self._upload(sandbox, f"{_FOLDER}/{_FILES[language]}", remote.text)
            packed = ""
        call = HttpCall(
            "POST",
            f"{sandbox.url}/process.Process/Start",
            headers={
                **sandbox.headers,
                **sandbox.user_header,
                "Connect-Protocol-Version": "1",
                "Connect-Timeout-Ms": str(round((seconds + GRACE) * 1000)),  # the daemon ends the program then
                "Content-Type": "application/connect+json",
                "Keepalive-Ping-Interval": "50",
            },
            content=_envelope({"process": _process(language, packed), "stdin": False}),
            timeout=seconds + GRACE,
            trusted=sandbox.is_trusted,
            max_bytes=MAX_STREAMED_BYTES,
        )
        try:
            async with self._http.stream(call) as answer:
                if answer.status != 200:
                    raise ToolError(f"Provider system execution failed: {await _stream_error_text(answer)}")
                return await _read_events(answer, output)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}") from error

    async def _upload(self, sandbox: "_RunningSandbox", path: str, content: str) -> None:
        kind, form = _file_form(path, content)
        call = HttpCall(
            "POST",
            f"{sandbox.url}/files",
            params={"path": path, **sandbox.user_parameter},
            headers={**sandbox.headers, "Content-Type": kind},
            content=form,
            timeout=GRACE * 3,
            trusted=sandbox.is_trusted,
        )
        try:
            reply = await self._http.send(call)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}", retryable=error.retryable) from error
        if not reply.is_success:
            raise ToolError(f"Provider system execution failed: {_error_text(reply)}")


class _RunningSandbox:
    """A running sandbox: the URL of its daemon and the headers to access it.

    `is_old`: the daemon does not know the template's user, so that requests have to name one.
    """

    def __init__(self, sandbox_id: str, token: str, domain: str, is_old: bool, settings: E2BSettings) -> None:
        self.id = sandbox_id
        self.url = (
            settings.sandbox_url.replace("{port}", str(DAEMON_PORT))
            .replace("{id}", sandbox_id)
            .replace("{domain}", domain)
            .rstrip("/")
        )
        # a domain that only a response names is checked like any other host
        self.is_trusted = domain == settings.domain
        self.headers = {"E2b-Sandbox-Id": sandbox_id, "E2b-Sandbox-Port": str(DAEMON_PORT)}
        user = base64.b64encode(f"{USER}:".encode()).decode()
        self.user_header = {"Authorization": f"Basic {user}"} if is_old else {}
        self.user_parameter = {"username": USER} if is_old else {}
        if token:
            self.headers["X-Access-Token"] = token


class EnvelopeParser:
    """Splits a byte stream into messages; the stream may be fed in parts of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, part: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield flags and data of each complete message. Raises ToolError if a message is invalid."""
        self._buffer += part
        begin = 0
        while len(self._buffer) >= begin + 5:
            flags, size = self._buffer[begin], int.from_bytes(self._buffer[begin + 1 : begin + 5], "big")
            if flags & _COMPRESSED:
                raise ToolError("Provider system execution failed: a message is compressed, which is not supported.")
            if size > MAX_MESSAGE_BYTES:
                raise ToolError(
                    f"Provider system execution failed: a message is larger than {MAX_MESSAGE_BYTES:,} bytes."
                )
            if len(self._buffer) < begin + 5 + size:
                break
            yield flags, bytes(self._buffer[begin + 5 : begin + 5 + size])
            begin += 5 + size
        del self._buffer[:begin]


async def _read_events(answer: StreamedResponse, output: RemoteOutput) -> ProgramResult:
    """Read the events of a process until it ends. Raises ToolError if the stream ends first."""
    envelopes = EnvelopeParser()
    async for part in answer.chunks:
        for flags, data in envelopes.feed(part):
            message = _parse_json(data)
            if flags & _END_OF_STREAM:
                raise ToolError(f"Provider system execution failed: {_error_of(message)}")
            event = message.get("event") if isinstance(message, Mapping) else None
            if not isinstance(event, Mapping):
                continue
            printed, ended = event.get("data"), event.get("end")
            if isinstance(printed, Mapping):
                output.add(_decode_bytes(printed.get("stdout")), _decode_bytes(printed.get("stderr")))
            if isinstance(ended, Mapping):
                code = ended.get("exitCode", ended.get("exit_code", 0))  # JSON of protobuf omits a field that is 0
                return output.result(code if isinstance(code, int) else 1, str(ended.get("error") or ""))
    raise ToolError("Provider system execution failed: the stream ended before the program did.")


def _process(language: str, packed: str) -> Mapping[str, Any]:
    """Return the request for a process that runs the base64 text in `packed`, or, if empty, the uploaded file."""
    file = _FILES[language]
    unpack = f'mkdir -p ~/{_FOLDER} && cd ~/{_FOLDER} && {{ [ -z "$1" ] || printf %s "$1" | base64 -d > {file}; }}'
    script = f"{unpack} && exec {_COMMANDS[language]} {file}"
    return {"cmd": "/bin/bash", "args": ["-l", "-c", script, "easel", packed], "envs": {"MPLBACKEND": "Agg"}}


def _file_form(file: str, content: str) -> tuple[str, bytes]:
    """Return the content type and the bytes of a form with one file."""
    edge = secrets.token_hex(16)
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{file}"\r\n\r\n'
    return f"multipart/form-data; boundary={edge}", f"{head}{content}\r\n--{edge}--\r\n".encode()


def _envelope(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    return bytes([0]) + len(data).to_bytes(4, "big") + data


def _sandbox_from(answer: Any, settings: E2BSettings) -> _RunningSandbox:
    fields: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    sandbox_id, domain = str(fields.get("sandboxID") or ""), str(fields.get("domain") or settings.domain)
    if not _ID.fullmatch(sandbox_id) or not _HOST.fullmatch(domain):
        raise ToolError("Provider system execution failed: the response has no valid sandbox id.")
    is_old = _is_older(str(fields.get("envdVersion") or ""), DEFAULT_USER_SINCE)
    return _RunningSandbox(sandbox_id, str(fields.get("envdAccessToken") or ""), domain, is_old, settings)


def _is_older(version: str, than: Version) -> bool:
    try:
        return Version(version) < than
    except ValueError:
        return True


def _success(reply: HttpResponse) -> Any:
    """Return the JSON of a response. Raises ToolError if its status is an error."""
    if not reply.is_success:
        is_temporary = reply.status == 429 or reply.status >= 500
        raise ToolError(f"Provider system execution failed: {_error_text(reply)}", retryable=is_temporary)
    return _parse_json(reply.content)


async def _stream_error_text(answer: StreamedResponse) -> str:
    content = b""
    async for part in answer.chunks:
        content += part
        if len(content) > MAX_EXCERPT * 4:
            break
    return _error_text(HttpResponse(answer.status, {}, content, ""))


def _error_text(reply: HttpResponse) -> str:
    message = _parse_json(reply.content)
    text = message.get("message") if isinstance(message, Mapping) else None
    return f"HTTP {reply.status}: {text or reply.content[:MAX_EXCERPT].decode('utf-8', 'replace')}"


def _error_of(message: Any) -> str:
    error = message.get("error") if isinstance(message, Mapping) else None
    if not isinstance(error, Mapping):
        return "the stream ended before the program did."
    return f"{error.get('code')}: {error.get('message') or 'no reason given'}"


def _decode_bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
