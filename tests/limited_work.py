"""Work for child processes: honest, endless, hungry, and such that it ends its process."""

import ctypes
import os
import re
import time
from typing import Any

from canvas.errors import NodeFailure, ToolError
from components.text.extraction.file_kinds import FileUnreadable
from components.text.templates import jinja


def returned(value: Any) -> Any:
    return value


def length(data: bytes, *, twice: bool = False) -> int:
    return len(data) * (1 + twice)


def process_id() -> int:
    return os.getpid()


def variables() -> list[str]:
    return sorted(os.environ)


def sleeping(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def holding_the_lock() -> None:
    """A single call in C that never gives the interpreter's lock to another thread."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def hungry() -> int:
    return len(bytearray(8 * 1024**3))


def crashing() -> None:
    ctypes.string_at(0)


def leaving() -> None:
    os._exit(0)


def unreadable(name: str) -> None:
    raise FileUnreadable(f'The file "{name}" is damaged.', file=name)


def retryable() -> None:
    raise ToolError("Later.", retryable=True, odd=object())


def failing() -> None:
    raise LookupError("nobody is here")


def unsendable() -> Any:
    return object()


def verbose(size: int) -> str:
    return "a" * size


def render(source: str) -> tuple[str, float]:
    """A template's text, or why there is none; and the seconds of computing that it took."""
    began = time.process_time()
    try:
        text = jinja.render(source, {}, {})
    except (jinja.RenderFailed, NodeFailure) as failure:
        text = f"{type(failure).__name__}: {failure}"
    return text[:10_000], time.process_time() - began
