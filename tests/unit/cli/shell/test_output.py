"""How results are printed."""

import io
import json
import sys
from datetime import UTC, datetime

import pytest

from cli.shell import output


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_table_has_columns_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]):
    rows = [{"run": "a", "status": "succeeded"}, {"run": "bcd", "status": None}]

    output.print_table(rows, ("run", "status"), as_json=False)

    assert capsys.readouterr().out == "run  status\na    succeeded\nbcd\n"


def test_json_table_has_one_object_per_line_with_every_field(capsys: pytest.CaptureFixture[str]):
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    output.print_table([{"run": "a", "at": at, "more": "é"}], ("run",), as_json=True)

    assert json.loads(capsys.readouterr().out) == {"run": "a", "at": "2026-01-02T03:04:05+00:00", "more": "é"}


def test_empty_table_prints_its_notice_to_stderr(capsys: pytest.CaptureFixture[str]):
    output.print_table([], ("run",), as_json=False, empty="There are no runs.")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "There are no runs.\n"


def test_cell_is_one_line_of_limited_length(capsys: pytest.CaptureFixture[str]):
    output.print_table([{"query": "two\nlines " + "x" * 100}], ("query",), as_json=False)

    cell = capsys.readouterr().out.splitlines()[1]
    assert cell.startswith("two lines x")
    assert cell.endswith("…")
    assert len(cell) == output.MAX_CELL_CHARS


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7385, "2 h 3 min")],
)
def test_durations_are_formatted_for_people(elapsed: float, text: str):
    assert output.format_seconds(elapsed) == text


def test_control_sequences_are_removed_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    output.print_text("one\ttwo\n\x1b[2J\x1b]0;title\x07\x9bthree\x7f\r")

    assert terminal.getvalue() == "one\ttwo\n[2J]0;titlethree"


def test_control_characters_are_not_removed_in_a_file(capsys: pytest.CaptureFixture[str]):
    output.print_text("\x1b[2J")

    assert capsys.readouterr().out == "\x1b[2J"


def test_colours_are_used_only_on_terminals_without_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    output.print_message("failed", output.RED)
    assert capsys.readouterr().err == "failed\n"

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.print_message("failed", output.RED)
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_message("failed", output.RED)

    assert terminal.getvalue() == "\x1b[31mfailed\n\x1b[0mfailed\n"


def test_characters_that_the_encoding_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    output.print_line("✓ done \ud800")

    assert written.getvalue() == b"? done ?\n"
