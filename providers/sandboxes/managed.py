"""A sandbox behind RAGFlow's executor manager: one request for each program (tools 3.4).

It keeps the promise of `providers.interfaces.Sandbox`. A manager whose pool is busy is asked again after a while;
nothing else is, for a program may have been run although its answer got lost.

A manager may also give the result on standard output, in a line of its own: a mark, and JSON in base64 behind it (3.2).
"""

import asyncio
import base64
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from canvas.errors import HttpFailed, ToolError
from providers.interfaces import Call, Http, Program, ProgramResult
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.sandboxes.produced_files import received, within_limits

SECONDS = 30.0  # that a program may take, unless the deployment says otherwise
GRACE = 5.0  # seconds beyond, for the manager to answer
TRIES = 4
PAUSE = 0.5  # seconds before the second try; then twice as long each time
MOST_BYTES = 64 * 1024 * 1024  # of an answer, its files among it
SHOWN = 200  # characters of an answer that is none

_BUSY = frozenset({-10, -429})  # exit codes: nothing has been run
_RESULT_LINE = re.compile(r"^__RAGFLOW_RESULT__(?:[0-9a-f]+)?:([A-Za-z0-9+/=]*)\r?\n?", re.MULTILINE)


class ExecutorManager:
    """A manager that a deployment's settings name. `seconds` is its own limit for a program."""

    def __init__(
        self,
        http: Http,
        endpoint: str,
        *,
        seconds: float = SECONDS,
        tries: int = TRIES,
        pause: float = PAUSE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._http = http
        self._endpoint = endpoint.rstrip("/")
        self._seconds = seconds
        self._tries = tries
        self._pause = pause
        self._chance = chance

    @property
    def repeatable(self) -> bool:
        """The manager's programs may reach a network that nobody here knows."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Raises ToolError when the manager cannot be asked, or has no answer in time."""
        seconds = min(program.timeout, self._seconds)
        body = {
            "code_b64": base64.b64encode(program.script.encode("utf-8", "replace")).decode(),
            "language": program.language,
            "arguments": dict(program.arguments),
        }
        call = Call(
            "POST",
            f"{self._endpoint}/run",
            json=body,
            timeout=seconds + 2 * GRACE,  # the clock here runs out first, and has a text of its own
            trusted=True,
            most_bytes=MOST_BYTES,
        )
        for attempt in range(1, self._tries):
            answer = await self._answer(call, seconds)
            if answer.get("exit_code") not in _BUSY:
                return await in_untrusted_thread(_result, answer)
            await asyncio.sleep(self._pause * 2**attempt * self._chance())
        return _result(await self._answer(call, seconds))

    async def _answer(self, call: Call, seconds: float) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(seconds + GRACE):
                reply = await self._http.send(call)
        except TimeoutError:
            raise ToolError(f"Execution timed out after {seconds:g} seconds") from None
        except HttpFailed as error:
            raise ToolError(f"Provider system execution failed: {error.message}") from error
        if not reply.is_success:
            told = reply.content[:SHOWN].decode("utf-8", "replace")
            raise ToolError(f"Provider system execution failed: HTTP {reply.status}: {told}")
        answer = await in_untrusted_thread(_read, reply.content)
        if not isinstance(answer, Mapping):
            raise ToolError("There is no response from sandbox")
        return answer


def _read(content: bytes) -> Any:
    """The JSON of an answer; None for anything else."""
    try:
        return json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _result(answer: Mapping[str, Any]) -> ProgramResult:
    stdout, has_value, value = _taken_out(str(answer.get("stdout") or ""))
    told = answer.get("result")
    if isinstance(told, Mapping) and told.get("present"):
        has_value, value = True, told.get("value")
    exit_code = answer.get("exit_code")
    found = within_limits(received(_files(answer.get("artifacts"))))
    return ProgramResult(
        stdout=stdout,
        stderr=str(answer.get("stderr") or ""),
        exit_code=exit_code if isinstance(exit_code, int) else 0,
        value=value,
        has_value=has_value,
        files=found.files,
        skipped=found.skipped,
    )


def _taken_out(stdout: str) -> tuple[str, bool, Any]:
    """What was printed without the lines that carry a result, and the result of the last of them."""
    has_value, value = False, None
    kept: list[str] = []
    end = 0
    for line in _RESULT_LINE.finditer(stdout):
        found = _carried(line[1])
        if found is not None:
            has_value, value = True, found.get("value")
            kept.append(stdout[end : line.start()])
            end = line.end()
    return "".join([*kept, stdout[end:]]), has_value, value


def _carried(text: str) -> Mapping[str, Any] | None:
    """What a line carries; None for one that only looks so."""
    try:
        found = json.loads(base64.b64decode(text, validate=True), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) and found.get("present") is True else None


def _files(told: Any) -> Iterator[tuple[str, bytes]]:
    for file in told if isinstance(told, list) else ():
        if isinstance(file, Mapping):
            try:
                yield str(file.get("name") or ""), base64.b64decode(str(file.get("content_b64") or ""), validate=True)
            except ValueError:
                continue
