"""Print a run as it happens: the answer on stdout as it is streamed, everything else on stderr.

If both are one terminal, messages about nodes wait until the current line of the answer is complete.
"""

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from canvas.budget import budget_stop
from canvas.events import run_events
from canvas.events.stream_sequencer import THINK_END, THINK_START, Frame, SequencedEvent, TextDelta, without_audio
from canvas.graph.canvas import Canvas
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from canvas.graph.uncertain_outcomes import OUTCOME, OUTPUTS
from canvas.run_warnings import WARNINGS, has_model_error
from cli.shell import output
from cli.shell.connection import CommandConnection
from cli.shell.output import DIM, GREEN, RED, YELLOW
from scheduler.views.event_frames import EventSerializer
from store.primitives.ids import created_at_of
from store.runs import run_rows
from store.runs.events import EventRow
from store.runs.passwords import load_mask
from store.runs.run_queries import RunSummary

ReadMask = Callable[[RunSummary], PasswordMask]
"""Returns the mask of the passwords that a run has now."""

_MARKERS = re.compile(f"([{THINK_START}{THINK_END}])")


def read_mask(connection: CommandConnection, canvas: Canvas, run: RunSummary) -> PasswordMask:
    """Return the mask of the passwords that a run has now; without a statement if its canvas asks for none."""
    if not canvas.password_fields:
        return NO_PASSWORDS
    with connection.database.transaction() as tx:
        tenant_id = run_rows.tenant_of(tx, run.id)
        return load_mask(tx, canvas, tenant_id, run.id) if tenant_id is not None else NO_PASSWORDS


class FramePrinter(Protocol):
    """Prints the frames of a run."""

    def show(self, frame: Frame[EventRow], run: RunSummary) -> None:
        """Print one frame; `run` is the row of the run as of the last read."""
        ...

    def end(self) -> None:
        """Complete the output: the run is over or waits."""
        ...


class JsonPrinter:
    """Prints the events of the HTTP API as JSON, one per line."""

    def __init__(self, canvas: Canvas, read_mask: ReadMask = lambda run: NO_PASSWORDS) -> None:
        self._canvas = canvas
        self._read_mask = read_mask

    def show(self, frame: Frame[EventRow], run: RunSummary) -> None:
        for position, event in EventSerializer(run, self._canvas, self._read_mask(run)).frames(frame):
            output.print_json({"id": str(position), **event})

    def end(self) -> None:
        """Print nothing more."""


class AnswerPrinter:
    """Prints the answer to stdout, and thoughts, nodes, forms and errors to stderr."""

    def __init__(self, canvas: Canvas, read_mask: ReadMask = lambda run: NO_PASSWORDS) -> None:
        self._canvas = canvas
        self._read_mask = read_mask
        self._is_thinking = False
        self._answer_open = False  # the answer's last line is not complete
        self._thought_open = False
        self._has_answered = False
        self._delayed: list[tuple[str, str]] = []
        self._is_one_terminal = sys.stdout.isatty() and sys.stderr.isatty()

    def show(self, frame: Frame[EventRow], run: RunSummary) -> None:
        if isinstance(frame, TextDelta):
            self._print_text(frame.text)
        else:
            self._print_event(frame, run)

    def end(self) -> None:
        self._complete()

    def _print_text(self, text: str) -> None:
        for part in filter(None, _MARKERS.split(without_audio(text))):
            if part == THINK_START:
                self._begin_thought()
            elif part == THINK_END:
                self._end_thought()
            elif self._is_thinking:
                output.print_message_text(part, DIM)
                self._thought_open = not part.endswith("\n")
            else:
                output.print_text(part)
                self._has_answered = True
                self._answer_open = not part.endswith("\n")

    def _begin_thought(self) -> None:
        self._is_thinking = True
        if self._answer_open and self._is_one_terminal:
            output.print_message_text("\n")
        output.print_message_text("thinking: ", DIM)
        self._thought_open = True

    def _end_thought(self) -> None:
        self._is_thinking = False
        if self._thought_open:
            output.print_message_text("\n")
        self._thought_open = False

    def _complete(self) -> None:
        """End the open lines, then print the messages that waited for that."""
        self._end_thought()
        if self._answer_open:
            output.print_text("\n")
        self._answer_open = False
        for text, colour in self._delayed:
            output.print_message(text, colour)
        self._delayed.clear()

    def _print_message(self, text: str, colour: str = "") -> None:
        if self._answer_open and self._is_one_terminal:
            self._delayed.append((text, colour))
        else:
            self._end_thought()
            output.print_message(text, colour)

    def _print_event(self, frame: SequencedEvent[EventRow], run: RunSummary) -> None:
        stored = frame.stored
        match stored.name:
            case run_events.NODE_FINISHED:
                self._print_message(*finished_line(stored, self._canvas))
            case run_events.MESSAGE_END:
                self._complete()
            case run_events.MESSAGE_RESET:
                self._complete()
                self._print_message(f"the answer restarts after its first {frame.retained_length} characters", YELLOW)
            case run_events.USER_INPUTS:
                self._complete()
                for line in form_lines(stored.body, run.id.hex):
                    output.print_message(line)
            case run_events.RUN_FAILED:
                self._complete()
                error, code = (str(stored.body.get(name) or "") for name in ("error", "code"))
                output.print_message(f"failed: {self._canvas.error_of(stored.node_id or '', error, code)}", RED)
            case run_events.WORKFLOW_FINISHED:
                self._complete()
                self._print_end(stored, run)
            case _:
                pass

    def _print_end(self, stored: EventRow, run: RunSummary) -> None:
        if stored.body.get("outputs") == run_events.CANCELLED_TEXT:
            output.print_message("cancelled", YELLOW)
            return
        if not self._has_answered:
            shown = {name: value for name, value in (stored.outputs or {}).items() if not name.startswith("_")}
            output.print_json(self._read_mask(run).node_values(stored.node_id, shown))
        begun = created_at_of(run.message_id)
        tokens = run.usage.get("total_tokens")
        spent = f", {tokens} tokens" if tokens else ""
        output.print_message(
            f"done in {output.format_seconds((stored.created_at - begun).total_seconds())}{spent}", GREEN
        )
        if has_model_error(run.usage):
            output.print_message("A model failed. Its error was given as the answer.", RED)
        if warnings := run.usage.get(WARNINGS):
            output.print_message(
                f"{warnings} {'warning' if warnings == 1 else 'warnings'}: easel show {run.id.hex}", YELLOW
            )


def finished_line(stored: EventRow, canvas: Canvas) -> tuple[str, str]:
    """Return the line about a finished node, and its colour."""
    node_id = stored.node_id or ""
    name = canvas.node(node_id).name if node_id in canvas.numbers else ""
    label = f"{node_id} {name}" if name and name != node_id else node_id
    error = stored.body.get("error")
    if error:
        return f"✗ {label}: {error}", RED
    elapsed = (stored.outputs or {}).get("_elapsed_time")
    return f"✓ {label}" + (f" ({output.format_seconds(elapsed)})" if isinstance(elapsed, int | float) else ""), GREEN


def form_lines(body: Mapping[str, Any], run_id: str) -> list[str]:
    """Return the lines that show the open form of a run, and the command that answers it."""
    fields: Mapping[str, Any] = body.get("inputs") or {}
    lines = [f"waiting for input{': ' + str(body['tips']) if body.get('tips') else ''}"]
    lines += [f"  {name}{_describe_field(field)}" for name, field in fields.items()]
    if budget_stop(fields) is not None:
        return [*lines[:1], f"continue with: easel resume {run_id} --tokens N (or --calls, --money)"]
    uncertain = [name.removesuffix(OUTCOME) for name in fields if name.endswith(OUTCOME)]
    about = [node + end for node in uncertain for end in (OUTCOME, OUTPUTS)]
    answers = [f"--input {_quote(name)}=…" for name in fields if name not in about]
    answers += [f"--happened {_quote(node)} | --again {_quote(node)}" for node in uncertain]
    return [*lines, " ".join([f"answer with: easel resume {run_id}", *answers])]


def _describe_field(field: Any) -> str:
    """Return the type, the label and the choices of a form field, as the end of its line."""
    if not isinstance(field, Mapping):
        return ""
    kind = ", ".join(filter(None, [str(field.get("type") or ""), "optional" if field.get("optional") else ""]))
    options = field.get("options")
    parts = [
        f"({kind})" if kind else "",
        str(field.get("name") or ""),
        f"one of: {', '.join(map(str, options))}" if isinstance(options, list) and options else "",
    ]
    return "".join(f"  {part}" for part in parts if part)


def _quote(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name.replace("'", "'\\''") + "'"
