"""A program as one self-contained text for a remote machine, and the parser of its output.

    remote = RemoteProgram.of(program)
    output = RemoteOutput(remote.mark)
    output.add(stdout=b"...")           # for each part that arrives; raises ToolError if there is too much
    result = output.result(exit_code)

Arguments are sent as data. The result is a line on standard output after a mark with a nonce, so that ordinary output
of a program is not mistaken for its result. If there are several such lines, the last one counts.
"""

import base64
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from canvas.errors import ToolError
from providers.interfaces import ProducedFile, Program, ProgramResult, SkippedFile
from providers.sandboxes import produced_files

MAX_OUTPUT_BYTES = 1024 * 1024  # bytes of stdout and stderr together
MAX_RESULT_BYTES = 16 * 1024 * 1024  # bytes of a result
MAX_FILES_BYTES = 24 * 1024 * 1024  # of all files that are sent with the result

_WRAPPERS = {"python": "wrapper.py", "nodejs": "wrapper.cjs"}
_MARK = "__RAGFLOW_RESULT__"
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


@dataclass(frozen=True, slots=True)
class RemoteProgram:
    """A program in its wrapper. `text` is the source code to run; the line with the result begins with `mark`."""

    text: str = field(repr=False)
    mark: bytes = field(repr=False)

    @classmethod
    def of(cls, program: Program, *, ends: bool = True, with_files: bool = False) -> "RemoteProgram":
        """Wrap a program. `ends`: the process ends with the program. `with_files`: send the files of `artifacts/`."""
        mark = f"{_MARK}{secrets.token_hex(16)}:"
        job = {
            "mark": mark,
            "script": program.script,
            "arguments": dict(program.arguments),
            "ends": ends,
            "files": _file_limits() if with_files else None,
        }
        packed = base64.b64encode(json.dumps(job).encode()).decode()
        text = _wrapper(_WRAPPERS[program.language]).replace('JOB = ""', f'JOB = "{packed}"', 1)
        return cls(text, mark.encode())


class RemoteOutput:
    """Collects the output of a program, with limits, and extracts its result."""

    def __init__(self, mark: bytes, *, output: int = MAX_OUTPUT_BYTES, result: int = MAX_RESULT_BYTES) -> None:
        self._mark = mark
        self._output = output
        self._result = (result + MAX_FILES_BYTES) * 4 // 3 * 4 // 3
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._begin = -1  # position of the first mark

    def add(self, stdout: bytes = b"", stderr: bytes = b"") -> None:
        """Add output. Raises ToolError as soon as output or result exceeds its limit."""
        searched = max(0, len(self._stdout) - len(self._mark))
        self._stdout += stdout
        self._stderr += stderr
        if self._begin < 0:
            self._begin = self._stdout.find(self._mark, searched)
        printed = len(self._stdout) if self._begin < 0 else self._begin
        if printed + len(self._stderr) > self._output:
            raise ToolError(f"The program's output exceeded {self._output} bytes.")
        if len(self._stdout) - printed > self._result:
            raise ToolError(f"The program's result exceeded {self._result} bytes.")

    def result(self, exit_code: int, error_text: str = "") -> ProgramResult:
        """Return the result of the program. `error_text` is the error text if stderr is empty."""
        stdout, found = self._extract_result()
        files = produced_files.select_files(_files(found))
        return ProgramResult(
            stdout=stdout.decode("utf-8", "replace"),
            stderr=self._stderr.decode("utf-8", "replace") or error_text,
            exit_code=exit_code,
            value=found.get("value"),
            has_value=found.get("present") is True,
            files=files.files,
            skipped=files.skipped,
        )

    def _extract_result(self) -> tuple[bytes, Mapping[str, Any]]:
        """Return stdout without the result lines, and the last valid result."""
        first, *others = bytes(self._stdout).split(self._mark)
        printed, found = [first], dict[str, Any]()
        for part in others:
            end = next((number for number, byte in enumerate(part) if byte not in _BASE64), len(part))
            result = _decode_result(part[:end])
            found = result or found
            printed.append(part[end:].removeprefix(b"\n") if result else self._mark + part)
        return b"".join(printed), found


def _decode_result(text: bytes) -> Mapping[str, Any] | None:
    """Decode a result; return None if the text is not a valid one."""
    try:
        result = json.loads(base64.b64decode(text, validate=True), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, Mapping) and result.get("present") is True else None


def _files(found: Mapping[str, Any]) -> Iterator[ProducedFile | SkippedFile]:
    yield from produced_files.check_files(_decode_files(found.get("files")))
    for skipped in found.get("skipped") or ():
        if isinstance(skipped, Mapping):
            yield SkippedFile(str(skipped.get("name")), str(skipped.get("reason")))


def _decode_files(files: Any) -> Iterator[tuple[str, bytes]]:
    for file in files if isinstance(files, list) else ():
        if isinstance(file, Mapping):
            try:
                yield str(file.get("name") or ""), base64.b64decode(str(file.get("content_b64") or ""), validate=True)
            except ValueError:
                continue


def _file_limits() -> Mapping[str, Any]:
    return {
        "most": produced_files.MAX_FILES,
        "largest": produced_files.MAX_FILE_BYTES,
        "room": MAX_FILES_BYTES,
        "most_skipped": produced_files.MAX_SKIPPED,
        "kinds": list(produced_files.MIME_TYPES),
        "not_plain": produced_files.NOT_REGULAR,
        "other_kind": produced_files.UNSUPPORTED_TYPE,
        "no_room": produced_files.TOO_LARGE,
    }


@cache
def _wrapper(name: str) -> str:
    return (Path(__file__).parent / "inside" / name).read_text("utf-8")
