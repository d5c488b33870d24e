"""A program as one text for a machine that is not ours, and what it says there, read while it comes (tools 3.2).

    wrapped = Wrapped.of(program)
    said = Said(wrapped.mark)
    said.hear(stdout=b"...")          # piece by piece; too much of it ends the program
    result = said.result(exit_code)

Arguments travel as data. The result is a line on standard output behind a mark with a nonce, so that nothing that a
program prints passes for its result by chance. Of several such lines the last one counts.
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

MOST_OUTPUT = 1024 * 1024  # bytes of stdout and stderr together
MOST_RESULT = 16 * 1024 * 1024  # bytes of a result
MOST_FILES_BYTES = 24 * 1024 * 1024  # of all files where they travel along with the result

_WRAPPERS = {"python": "wrapper.py", "nodejs": "wrapper.cjs"}
_MARK = "__RAGFLOW_RESULT__"
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


@dataclass(frozen=True, slots=True)
class RemoteProgram:
    """`text` is a whole program in the language of the one inside; `mark` begins the line with its result."""

    text: str = field(repr=False)
    mark: bytes = field(repr=False)

    @classmethod
    def of(cls, program: Program, *, ends: bool = True, with_files: bool = False) -> "RemoteProgram":
        """`ends`: the process ends with the program. `with_files`: what it leaves in `artifacts/` comes along."""
        mark = f"{_MARK}{secrets.token_hex(16)}:"
        told = {
            "mark": mark,
            "script": program.script,
            "arguments": dict(program.arguments),
            "ends": ends,
            "files": _file_limits() if with_files else None,
        }
        packed = base64.b64encode(json.dumps(told).encode()).decode()
        text = _wrapper(_WRAPPERS[program.language]).replace('TOLD = ""', f'TOLD = "{packed}"', 1)
        return cls(text, mark.encode())


class RemoteOutput:
    """What a program says, as far as it has come."""

    def __init__(self, mark: bytes, *, output: int = MOST_OUTPUT, result: int = MOST_RESULT) -> None:
        self._mark = mark
        self._output = output
        self._result = (result + MOST_FILES_BYTES) * 4 // 3 * 4 // 3
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._begin = -1  # of the first mark

    def hear(self, stdout: bytes = b"", stderr: bytes = b"") -> None:
        """Raises ToolError as soon as it is more than a program may say."""
        looked_at = max(0, len(self._stdout) - len(self._mark))
        self._stdout += stdout
        self._stderr += stderr
        if self._begin < 0:
            self._begin = self._stdout.find(self._mark, looked_at)
        spoken = len(self._stdout) if self._begin < 0 else self._begin
        if spoken + len(self._stderr) > self._output:
            raise ToolError(f"The program's output exceeded {self._output} bytes.")
        if len(self._stdout) - spoken > self._result:
            raise ToolError(f"The program's result exceeded {self._result} bytes.")

    def result(self, exit_code: int, complaint: str = "") -> ProgramResult:
        """All of it together. `complaint` is for a program that said nothing of its failure."""
        stdout, found = self._taken_out()
        files = produced_files.within_limits(_files(found))
        return ProgramResult(
            stdout=stdout.decode("utf-8", "replace"),
            stderr=self._stderr.decode("utf-8", "replace") or complaint,
            exit_code=exit_code,
            value=found.get("value"),
            has_value=found.get("present") is True,
            files=files.files,
            skipped=files.skipped,
        )

    def _taken_out(self) -> tuple[bytes, Mapping[str, Any]]:
        """What was printed without the lines that carry a result, and the last of those that can be read."""
        first, *others = bytes(self._stdout).split(self._mark)
        kept, found = [first], dict[str, Any]()
        for part in others:
            end = next((number for number, byte in enumerate(part) if byte not in _BASE64), len(part))
            carried = _carried(part[:end])
            found = carried or found
            kept.append(part[end:].removeprefix(b"\n") if carried else self._mark + part)
        return b"".join(kept), found


def _carried(text: bytes) -> Mapping[str, Any] | None:
    """What a line carries; None for one that only looks so."""
    try:
        found = json.loads(base64.b64decode(text, validate=True), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) and found.get("present") is True else None


def _files(found: Mapping[str, Any]) -> Iterator[ProducedFile | SkippedFile]:
    yield from produced_files.received(_named(found.get("files")))
    for skipped in found.get("skipped") or ():
        if isinstance(skipped, Mapping):
            yield SkippedFile(str(skipped.get("name")), str(skipped.get("reason")))


def _named(told: Any) -> Iterator[tuple[str, bytes]]:
    for file in told if isinstance(told, list) else ():
        if isinstance(file, Mapping):
            try:
                yield str(file.get("name") or ""), base64.b64decode(str(file.get("content_b64") or ""), validate=True)
            except ValueError:
                continue


def _file_limits() -> Mapping[str, Any]:
    return {
        "most": produced_files.MOST_FILES,
        "largest": produced_files.LARGEST,
        "room": MOST_FILES_BYTES,
        "most_skipped": produced_files.MOST_SKIPPED,
        "kinds": list(produced_files.MIME_TYPES),
        "not_plain": produced_files.NOT_PLAIN,
        "other_kind": produced_files.OTHER_KIND,
        "no_room": produced_files.NO_ROOM,
    }


@cache
def _wrapper(name: str) -> str:
    return (Path(__file__).parent / "inside" / name).read_text("utf-8")
