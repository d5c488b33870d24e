"""What the printers write to the terminal for a run."""

import io
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from canvas.document import parsing
from canvas.events import run_events
from canvas.events.stream_sequencer import (
    AUDIO_END,
    AUDIO_START,
    THINK_END,
    THINK_START,
    Position,
    SequencedEvent,
    TextDelta,
)
from canvas.graph.canvas import Canvas, compile_canvas
from canvas.graph.uncertain_outcomes import question
from cli.runs.builtin_models import find_builtin_models
from cli.runs.printer import AnswerPrinter, JsonPrinter, form_lines
from store.primitives.ids import new_id
from store.runs.events import EventRow
from store.runs.run_queries import RunSummary

NOW = datetime.now(UTC)
STREAM = UUID(int=7)


class Terminal(io.StringIO):
    """A terminal to which both stdout and stderr write."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def canvas_document(**params: Any) -> dict[str, Any]:
    return {
        "components": {
            "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["LLM:0"], "upstream": []},
            "LLM:0": {
                "obj": {"component_name": "LLM", "params": {"llm_id": "echo@Easel", **params}},
                "downstream": ["Message:0"],
                "upstream": ["begin"],
            },
            "Message:0": {
                "obj": {"component_name": "Message", "params": {"content": ["{LLM:0@content}"]}},
                "downstream": [],
                "upstream": ["LLM:0"],
            },
        },
        "graph": {"nodes": [{"id": "LLM:0", "data": {"name": "reply"}}], "edges": []},
    }


@pytest.fixture
def canvas() -> Canvas:
    return compile_canvas(parsing.parse(canvas_document()))


@pytest.fixture
def run() -> RunSummary:
    run_id = new_id()
    return RunSummary(
        run_id, new_id(), new_id(), new_id(), new_id(), "running", 1, 9, {"inputs": None}, {"total_tokens": 12}, "",
        NOW, NOW, None,
    )  # fmt: skip


def text_delta(text: str) -> TextDelta:
    return TextDelta(Position(3, len(text)), STREAM, text)


def event(
    name: str, node_id: str | None = None, body: Mapping[str, Any] | None = None, outputs: Any = None
) -> SequencedEvent[EventRow]:
    return SequencedEvent(
        Position(4), EventRow(4, name, STREAM, node_id, body or {}, NOW, None, outputs), retained_length=2, epoch=1
    )


def test_answer_is_printed_to_stdout_and_node_progress_to_stderr(
    canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]
):
    printer = AnswerPrinter(canvas)

    printer.show(event(run_events.NODE_FINISHED, "begin", outputs={"_elapsed_time": 0.04}), run)
    printer.show(text_delta("Hel"), run)
    printer.show(text_delta("lo"), run)
    printer.show(event(run_events.MESSAGE_END, "Message:0"), run)
    printer.show(event(run_events.NODE_FINISHED, "LLM:0", outputs={"_elapsed_time": 1.26}), run)
    printer.end()

    seen = capsys.readouterr()
    assert seen.out == "Hello\n"
    assert seen.err == "✓ begin (0.0 s)\n✓ LLM:0 reply (1.3 s)\n"


def test_reasoning_is_printed_to_stderr_and_not_in_the_answer(
    canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]
):
    printer = AnswerPrinter(canvas)

    printer.show(text_delta(f"{THINK_START}Hm"), run)
    printer.show(text_delta(f"m.{THINK_END}Yes"), run)
    printer.end()

    seen = capsys.readouterr()
    assert seen.out == "Yes\n"
    assert seen.err == "thinking: Hmm.\n"


def test_audio_is_not_printed(canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]):
    printer = AnswerPrinter(canvas)

    printer.show(text_delta(f"Yes.{AUDIO_START}{'0' * 32}{AUDIO_END}"), run)
    printer.end()

    assert capsys.readouterr().out == "Yes.\n"


def test_failed_node_is_printed_with_its_error(canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]):
    printer = AnswerPrinter(canvas)

    printer.show(event(run_events.NODE_FINISHED, "LLM:0", {"error": "no account"}), run)
    printer.show(event(run_events.RUN_FAILED, "LLM:0", {"error": "no account"}), run)

    assert capsys.readouterr().err == '✗ LLM:0 reply: no account\nfailed: Node "reply" (LLM:0): no account\n'


def test_node_progress_on_a_terminal_waits_for_the_end_of_the_answer_line(
    canvas: Canvas, run: RunSummary, monkeypatch: pytest.MonkeyPatch
):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    printer = AnswerPrinter(canvas)

    printer.show(text_delta("Hel"), run)
    printer.show(event(run_events.NODE_FINISHED, "begin"), run)
    printer.show(text_delta("lo"), run)
    printer.show(event(run_events.MESSAGE_END, "Message:0"), run)

    assert terminal.getvalue() == "Hello\n✓ begin\n"


def test_form_lines_list_the_fields_and_the_resume_command():
    body = {
        "tips": "Which order?",
        "inputs": {
            "order": {"type": "line", "name": "Order number", "optional": True},
            "the reason": {"type": "options", "options": ["damaged", "other"]},
        },
    }

    lines = form_lines(body, "abc")

    assert lines == [
        "waiting for input: Which order?",
        "  order  (line, optional)  Order number",
        "  the reason  (options)  one of: damaged, other",
        "answer with: easel resume abc --input order=… --input 'the reason'=…",
    ]


def test_form_about_an_unknown_outcome_offers_both_answers():
    body = {"inputs": question("Browser:0", "Shop", (("each", 0, 3),))[0], "tips": "Has it?"}

    *_, last_line = form_lines(body, "abc")

    assert last_line == "answer with: easel resume abc --happened 'Browser:0[3]' | --again 'Browser:0[3]'"


def test_restart_of_the_answer_is_printed(canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]):
    printer = AnswerPrinter(canvas)

    printer.show(text_delta("Hello"), run)
    printer.show(event(run_events.MESSAGE_RESET), run)
    printer.show(text_delta("rmit"), run)
    printer.end()

    seen = capsys.readouterr()
    assert seen.out == "Hello\nrmit\n"
    assert "restarts after its first 2 characters" in seen.err


def test_run_without_text_prints_its_outputs(canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]):
    printer = AnswerPrinter(canvas)

    printer.show(event(run_events.WORKFLOW_FINISHED, "LLM:0", outputs={"content": "ü", "_elapsed_time": 1}), run)

    seen = capsys.readouterr()
    assert seen.out == '{"content": "ü"}\n'
    assert "12 tokens" in seen.err


def test_cancelled_run_is_printed_as_cancelled(canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]):
    AnswerPrinter(canvas).show(event(run_events.WORKFLOW_FINISHED, None, {"outputs": run_events.CANCELLED_TEXT}), run)

    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "cancelled\n")


def test_json_printer_prints_one_wire_event_per_line(
    canvas: Canvas, run: RunSummary, capsys: pytest.CaptureFixture[str]
):
    lines = JsonPrinter(canvas)

    lines.show(text_delta(f"{THINK_START}Hm{THINK_END}Yes"), run)
    lines.show(event(run_events.NODE_FINISHED, "LLM:0", outputs={"content": "Yes"}), run)

    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 5
    assert shown[0].startswith('{"id": "3.1", "event": "message"')
    assert '"id": "4", "event": "node_finished"' in shown[-1]
    assert '"component_name": "reply"' in shown[-1]


@pytest.mark.parametrize(
    ("params", "labels"),
    [
        ({}, ["echo (built in, no real model)"]),
        ({"llm_id": "scripted"}, ["scripted (built in, no real model)"]),
        ({"llm_id": "gpt-5@OpenAI"}, []),
        (
            {"tools": [{"params": {"llm_id": "scripted@Easel"}}]},
            ["echo (built in, no real model)", "scripted (built in, no real model)"],
        ),
    ],
)
def test_builtin_models_of_a_canvas_are_labelled(params: dict[str, Any], labels: list[str]):
    assert find_builtin_models(parsing.parse(canvas_document(**params))) == labels
