"""A sandbox behind RAGFlow's executor manager: one request for each program.

Implements `providers.interfaces.Sandbox`. A request is only retried if the manager says that its pool is busy: after
any other failure the program may have been run although the response was lost.

A manager may also return the result as a line on standard output: a mark followed by JSON in base64.
"""

import asyncio
import base64
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Http, HttpCall, Program, ProgramResult
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.sandboxes.produced_files import check_files, select_files

PROGRAM_TIMEOUT = 30.0  # default timeout of a program
GRACE = 5.0  # additional seconds for the manager to answer
MAX_TRIES = 4
RETRY_DELAY = 0.5  # base of the random wait before another try; the wait doubles each time
MAX_RESPONSE_BYTES = 64 * 1024 * 1024  # of a response, including files
MAX_EXCERPT = 200  # characters of an invalid response that the error quotes

_BUSY_EXIT_CODES = frozenset({-10, -429})  # exit codes that mean that the program was not run
_RESULT_LINE = re.compile(r"^__RAGFLOW_RESULT__(?:[0-9a-f]+)?:([A-Za-z0-9+/=]*)\r?\n?", re.MULTILINE)


class ManagedSandbox:
    """The manager of the deployment's settings. `seconds` is the manager's own timeout for a program."""

    def __init__(
        self,
        http: Http,
        endpoint: str,
        *,
        seconds: float = PROGRAM_TIMEOUT,
        tries: int = MAX_TRIES,
        retry_delay: float = RETRY_DELAY,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._http = http
        self._endpoint = endpoint.rstrip("/")
        self._seconds = seconds
        self._tries = tries
        self._retry_delay = retry_delay
        self._jitter = jitter

    @property
    def is_repeatable(self) -> bool:
        """Return False: the manager may allow programs to reach a network."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if the manager does not answer in time."""
        seconds = min(program.timeout, self._seconds)
        body = {
            "code_b64": base64.b64encode(program.script.encode("utf-8", "replace")).decode(),
            "language": program.language,
            "arguments": dict(program.arguments),
        }
        call = HttpCall(
            "POST",
            f"{self._endpoint}/run",
            json=body,
            timeout=seconds + 2 * GRACE,  # longer than the timeout in `_request`, which has a clearer message
            trusted=True,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        for attempt in range(1, self._tries):
            answer = await self._request(call, seconds)
            if answer.get("exit_code") not in _BUSY_EXIT_CODES:
                return await in_untrusted_thread(_program_result, answer)
            await asyncio.sleep(self._retry_delay * 2**attempt * self._jitter())
        return _program_result(await self._request(call, seconds))

    async def _request(self, call: HttpCall, seconds: float) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(seconds + GRACE):
                reply = await self._http.send(call)
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}") from error
        if not reply.is_success:
            excerpt = reply.content[:MAX_EXCERPT].decode("utf-8", "replace")
            raise ToolError(f"Provider system execution failed: HTTP {reply.status}: {excerpt}")
        answer = await in_untrusted_thread(_parse_json, reply.content)
        if not isinstance(answer, Mapping):
            raise ToolError("There is no response from sandbox")
        return answer


def _parse_json(content: bytes) -> Any:
    """Parse the JSON of a response; return None if it is not valid."""
    try:
        return json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _program_result(answer: Mapping[str, Any]) -> ProgramResult:
    stdout, has_value, value = _extract_result(str(answer.get("stdout") or ""))
    result = answer.get("result")
    if isinstance(result, Mapping) and result.get("present"):
        has_value, value = True, result.get("value")
    exit_code = answer.get("exit_code")
    artifacts = select_files(check_files(_decode_files(answer.get("artifacts"))))
    return ProgramResult(
        stdout=stdout,
        stderr=str(answer.get("stderr") or ""),
        exit_code=exit_code if isinstance(exit_code, int) else 0,
        value=value,
        has_value=has_value,
        files=artifacts.files,
        skipped=artifacts.skipped,
    )


def _extract_result(stdout: str) -> tuple[str, bool, Any]:
    """Return stdout without the result lines, whether there is a result, and the last result."""
    has_value, value = False, None
    printed: list[str] = []
    end = 0
    for line in _RESULT_LINE.finditer(stdout):
        result = _decode_result(line[1])
        if result is not None:
            has_value, value = True, result.get("value")
            printed.append(stdout[end : line.start()])
            end = line.end()
    return "".join([*printed, stdout[end:]]), has_value, value


def _decode_result(text: str) -> Mapping[str, Any] | None:
    """Decode a result; return None if the text is not a valid one."""
    try:
        result = json.loads(base64.b64decode(text, validate=True), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, Mapping) and result.get("present") is True else None


def _decode_files(files: Any) -> Iterator[tuple[str, bytes]]:
    for file in files if isinstance(files, list) else ():
        if isinstance(file, Mapping):
            try:
                yield str(file.get("name") or ""), base64.b64decode(str(file.get("content_b64") or ""), validate=True)
            except ValueError:
                continue
