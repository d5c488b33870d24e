"""Functions for child processes: normal, endless, memory-hungry, and crashing ones."""

import ctypes
import os
import re
import time
from typing import Any

from canvas.errors import NodeFailure, ToolError
from components.text.extraction.file_kinds import FileUnreadable
from components.text.templates import jinja


def return_value(value: Any) -> Any:
    return value


def length(data: bytes, *, twice: bool = False) -> int:
    return len(data) * (1 + twice)


def process_id() -> int:
    return os.getpid()


def environment_variables() -> list[str]:
    return sorted(os.environ)


def sleep_for(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def hold_interpreter_lock() -> None:
    """Block in a single call in C that never releases the interpreter lock."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def allocate_8_gib() -> int:
    return len(bytearray(8 * 1024**3))


def crash() -> None:
    ctypes.string_at(0)


def exit_process() -> None:
    os._exit(0)


def raise_file_unreadable(name: str) -> None:
    raise FileUnreadable(f'The file "{name}" is damaged.', file=name)


def raise_retryable() -> None:
    raise ToolError("Later.", retryable=True, odd=object())


def raise_lookup_error() -> None:
    raise LookupError("nobody is here")


def return_unpicklable() -> Any:
    return object()


def return_text(size: int) -> str:
    return "a" * size


def render(source: str) -> tuple[str, float]:
    """Return a template's text or error, and the seconds of computing that it took."""
    began = time.process_time()
    try:
        text = jinja.render(source, {}, {})
    except (jinja.RenderFailed, NodeFailure) as failure:
        text = f"{type(failure).__name__}: {failure}"
    return text[:10_000], time.process_time() - began
