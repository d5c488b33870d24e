"""Sandboxes of E2B, and of whoever speaks its protocol: one is made for each program, and given back (tools 3.5).

    result = await E2BSandbox(http, E2BSettings(api_key="...")).run(program)

The program runs as a process of the sandbox's daemon, whose events come over one streamed answer (Connect protocol:
five bytes, flags and length, before each JSON message). It keeps the promise of `providers.interfaces.Sandbox`. That
E2B itself still answers so was never tried here.
"""

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field, SecretStr

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Answer, Call, Program, ProgramResult, Reply, Streaming
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram
from providers.sandboxes.settings import SandboxSettings

DAEMON_PORT = 49983
USER = "user"  # of the sandbox, as whom programs run
GRACE = 10.0  # seconds beyond the program's own, for making and giving back
LARGEST_MESSAGE = 64 * 1024 * 1024  # bytes
MOST_STREAMED = 256 * 1024 * 1024  # bytes of all messages: JSON around single letters is long
LONGEST_ARGUMENT = 100_000  # bytes of a text that goes as an argument (Linux takes 131,072); a longer one is a file
SHOWN = 200  # characters of an answer that is none

_COMPRESSED, _END_OF_STREAM = 1, 2
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?")
_COMMANDS = {"python": "python3", "nodejs": "node"}
_FILES = {"python": "program.py", "nodejs": "program.cjs"}
_FOLDER = "easel-code"  # below the user's home, where paths and processes of a sandbox begin


class E2BSettings(SandboxSettings):
    """`sandbox_url` is where a sandbox's daemon answers; `{id}`, `{port}` and `{domain}` are put in."""

    api_key: SecretStr = Field(min_length=1)
    region: str = "us"  # in stored settings; the vendor has no such thing
    api_url: str | None = Field(default=None, pattern=r"^https?://")
    domain: str = "e2b.app"
    sandbox_url: str = Field(default="https://{port}-{id}.{domain}", pattern=r"^https?://")
    template: str = "base"
    timeout: float = Field(default=30.0, ge=1, le=3600)  # seconds of a program
    allow_internet_access: bool = False


class E2BSandbox:
    """One vendor's account. A sandbox without internet is as good as one that was never there."""

    def __init__(self, http: Streaming, settings: E2BSettings) -> None:
        self._http = http
        self._settings = settings
        self._api = (settings.api_url or f"https://api.{settings.domain}").rstrip("/")

    @property
    def repeatable(self) -> bool:
        """Whether nothing outside can have changed by what a program did."""
        return not self._settings.allow_internet_access

    async def run(self, program: Program) -> ProgramResult:
        """Raises ToolError when it could not be run, or ran out of time."""
        if program.language not in _COMMANDS:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        seconds = min(program.timeout, self._settings.timeout)
        made = await self._made(seconds)
        try:
            wrapped = RemoteProgram.of(program, with_files=True)
            async with asyncio.timeout(seconds):
                return await self._carried_out(made, program.language, wrapped, seconds)
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        finally:
            await asyncio.shield(self._given_back(made.id))

    async def _made(self, seconds: float) -> "_Made":
        body = {
            "templateID": self._settings.template,
            "timeout": int(seconds + 3 * GRACE),  # then the vendor ends it, should nobody here be left to do so
            "secure": True,
            "allow_internet_access": self._settings.allow_internet_access,
            "metadata": {},
            "envVars": {},
        }
        making = asyncio.create_task(self._asked("POST", "/sandboxes", body))
        try:
            answer = await asyncio.shield(making)
        except asyncio.CancelledError:  # it may be there all the same, and would go on costing
            with suppress(ToolError):
                await asyncio.shield(self._given_back(_made_of(await making, self._settings).id))
            raise
        return _made_of(answer, self._settings)

    async def _given_back(self, sandbox_id: str) -> None:
        with suppress(ToolError):  # the vendor ends it when its time is over
            await self._asked("DELETE", f"/sandboxes/{sandbox_id}", None)

    async def _asked(self, method: str, path: str, body: Any) -> Any:
        call = Call(
            method,
            f"{self._api}{path}",
            headers={"X-API-Key": self._settings.api_key.get_secret_value()},
            json=body,
            timeout=GRACE * 3,
            trusted=True,
        )
        try:
            reply = await self._http.send(call)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}", retryable=error.retryable) from error
        if not reply.is_success:
            raise ToolError(f"Provider system execution failed: {_told(reply)}", retryable=reply.status >= 500)
        return _json(reply.content)

    async def _carried_out(self, made: "_Made", language: str, wrapped: RemoteProgram, seconds: float) -> ProgramResult:
        said = RemoteOutput(wrapped.mark)
        packed = base64.b64encode(wrapped.text.encode()).decode()
        if len(packed) > LONGEST_ARGUMENT:
            await self._put(made, f"{_FOLDER}/{_FILES[language]}", wrapped.text)
            packed = ""
        call = Call(
            "POST",
            f"{made.url}/process.Process/Start",
            headers={
                **made.headers,
                "Connect-Protocol-Version": "1",
                "Content-Type": "application/connect+json",
                "Keepalive-Ping-Interval": "50",
            },
            content=_enveloped({"process": _process(language, packed), "stdin": False}),
            timeout=seconds + GRACE,
            trusted=made.is_ours,
            most_bytes=MOST_STREAMED,
        )
        try:
            async with self._http.stream(call) as answer:
                if answer.status != 200:
                    raise ToolError(f"Provider system execution failed: {await _refusal(answer)}")
                return await _heard(answer, said)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}") from error

    async def _put(self, made: "_Made", path: str, content: str) -> None:
        kind, form = _form_of(path, content)
        call = Call(
            "POST",
            f"{made.url}/files",
            params={"path": path, "username": USER},
            headers={**made.headers, "Content-Type": kind},
            content=form,
            timeout=GRACE * 3,
            trusted=made.is_ours,
        )
        try:
            reply = await self._http.send(call)
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}", retryable=error.retryable) from error
        if not reply.is_success:
            raise ToolError(f"Provider system execution failed: {_told(reply)}")


class _Made:
    """A sandbox that was made: where its daemon answers, and with which token."""

    def __init__(self, sandbox_id: str, token: str, domain: str, settings: E2BSettings) -> None:
        self.id = sandbox_id
        self.url = (
            settings.sandbox_url.replace("{port}", str(DAEMON_PORT))
            .replace("{id}", sandbox_id)
            .replace("{domain}", domain)
            .rstrip("/")
        )
        self.is_ours = domain == settings.domain  # a domain that only an answer names is checked like a stranger's
        self.headers = {
            "Authorization": f"Basic {base64.b64encode(f'{USER}:'.encode()).decode()}",
            "E2b-Sandbox-Id": sandbox_id,
            "E2b-Sandbox-Port": str(DAEMON_PORT),
        }
        if token:
            self.headers["X-Access-Token"] = token


class Envelopes:
    """Messages of a stream, fed with bytes cut anywhere."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Flags and data of each message that is whole. Raises ToolError for one that cannot be read."""
        self._kept += piece
        begin = 0
        while len(self._kept) >= begin + 5:
            flags, size = self._kept[begin], int.from_bytes(self._kept[begin + 1 : begin + 5], "big")
            if flags & _COMPRESSED:
                raise ToolError("Provider system execution failed: a message is packed, which was not asked for.")
            if size > LARGEST_MESSAGE:
                raise ToolError(
                    f"Provider system execution failed: a message is larger than {LARGEST_MESSAGE:,} bytes."
                )
            if len(self._kept) < begin + 5 + size:
                break
            yield flags, bytes(self._kept[begin + 5 : begin + 5 + size])
            begin += 5 + size
        del self._kept[:begin]


async def _heard(answer: Answer, said: RemoteOutput) -> ProgramResult:
    """What a process says until it ends. Raises ToolError when the stream ends before it does."""
    envelopes = Envelopes()
    async for piece in answer.pieces:
        for flags, data in envelopes.feed(piece):
            message = _json(data)
            if flags & _END_OF_STREAM:
                raise ToolError(f"Provider system execution failed: {_error_of(message)}")
            event = message.get("event") if isinstance(message, Mapping) else None
            if not isinstance(event, Mapping):
                continue
            spoken, ended = event.get("data"), event.get("end")
            if isinstance(spoken, Mapping):
                said.hear(_bytes(spoken.get("stdout")), _bytes(spoken.get("stderr")))
            if isinstance(ended, Mapping):
                code = ended.get("exitCode", ended.get("exit_code", 0))  # JSON of protobuf leaves out what is 0
                return said.result(code if isinstance(code, int) else 1, str(ended.get("error") or ""))
    raise ToolError("Provider system execution failed: the stream ended before the program did.")


def _process(language: str, packed: str) -> Mapping[str, Any]:
    """A process that runs a text: the argument, unpacked, or where that is empty the file that is there already."""
    file = _FILES[language]
    unpack = f'mkdir -p {_FOLDER} && cd {_FOLDER} && {{ [ -z "$1" ] || printf %s "$1" | base64 -d > {file}; }}'
    script = f"{unpack} && exec {_COMMANDS[language]} {file}"
    return {"cmd": "/bin/bash", "args": ["-c", script, "easel", packed], "envs": {"MPLBACKEND": "Agg"}}


def _form_of(file: str, content: str) -> tuple[str, bytes]:
    """A form with one file in it: its type and its bytes."""
    edge = secrets.token_hex(16)
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{file}"\r\n\r\n'
    return f"multipart/form-data; boundary={edge}", f"{head}{content}\r\n--{edge}--\r\n".encode()


def _enveloped(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    return bytes([0]) + len(data).to_bytes(4, "big") + data


def _made_of(answer: Any, settings: E2BSettings) -> _Made:
    told: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {}
    sandbox_id, domain = str(told.get("sandboxID") or ""), str(told.get("domain") or settings.domain)
    if not _ID.fullmatch(sandbox_id) or not _HOST.fullmatch(domain):
        raise ToolError("Provider system execution failed: the answer names no sandbox.")
    return _Made(sandbox_id, str(told.get("envdAccessToken") or ""), domain, settings)


async def _refusal(answer: Answer) -> str:
    content = b""
    async for piece in answer.pieces:
        content += piece
        if len(content) > SHOWN * 4:
            break
    return _told(Reply(answer.status, {}, content, ""))


def _told(reply: Reply) -> str:
    message = _json(reply.content)
    text = message.get("message") if isinstance(message, Mapping) else None
    return f"HTTP {reply.status}: {text or reply.content[:SHOWN].decode('utf-8', 'replace')}"


def _error_of(message: Any) -> str:
    error = message.get("error") if isinstance(message, Mapping) else None
    if not isinstance(error, Mapping):
        return "the stream ended before the program did."
    return f"{error.get('code')}: {error.get('message') or 'no reason given'}"


def _bytes(told: Any) -> bytes:
    try:
        return base64.b64decode(told) if isinstance(told, str) else b""
    except ValueError:
        return b""


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
