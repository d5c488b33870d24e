"""Output of commands: tables for people, JSON for machines; results on stdout, messages about them on stderr."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

DIM, RED, GREEN, YELLOW, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
MAX_CELL_CHARS = 60  # characters of a cell

_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])  # all but tab and line feed


def print_line(text: str = "") -> None:
    """Print a line of the result."""
    _write(sys.stdout, text + "\n")


def print_in_colour(colour: str, word: str, rest: str) -> None:
    """Print a line of the result whose first word has a colour."""
    _write(sys.stdout, word, colour)
    _write(sys.stdout, rest + "\n")


def print_message(text: str, colour: str = "") -> None:
    """Print a line about the result or its progress to stderr."""
    _write(sys.stderr, text + "\n", colour)


def print_text(text: str) -> None:
    """Print a part of the result without a line end."""
    _write(sys.stdout, text)


def print_message_text(text: str, colour: str = "") -> None:
    """Print a part of a message to stderr without a line end."""
    _write(sys.stderr, text, colour)


def print_json(value: Any) -> None:
    """Print a JSON value of the result on one line."""
    print_line(json.dumps(value, ensure_ascii=False, default=_plain))


def print_document(value: Any) -> None:
    """Print a JSON document of the result, indented over several lines."""
    print_line(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str = "") -> None:
    """Print rows as a table, or as one JSON object per line; print `empty` to stderr if there are no rows."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    if not rows:
        print_message(empty)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, *cells):
        print_line("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def format_seconds(elapsed: float) -> str:
    """Return a duration for people: `0.1 s`, `2 min 5 s`, `3 h 2 min`."""
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    whole = round(elapsed)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_time(at: datetime | None) -> str:
    """Return a point in time in this machine's time zone; "" for None."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at is not None else ""


def _plain(value: Any) -> str:
    """Return a value that JSON does not have as text; a point in time in ISO 8601."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = format_time(value) if isinstance(value, datetime) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


def _write(stream: TextIO, text: str, colour: str = "") -> None:
    """Write and flush. Characters that the stream's encoding lacks are replaced, so that the command goes on.

    Control characters of canvases and answers do not reach a terminal, where they could overwrite other text.
    """
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    if stream.isatty():
        text = text.translate(_CONTROLS)
        text = f"{colour}{text}{PLAIN}" if colour and not os.environ.get("NO_COLOR") else text
    stream.write(text)
    stream.flush()
