"""Parsing of the output of a program on another machine."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import ToolError
from providers.interfaces import Program
from providers.sandboxes.remote_program import RemoteOutput, RemoteProgram

MARK = b"__RAGFLOW_RESULT__0123:"
OTHER = b"__RAGFLOW_RESULT__4567:"


def line(mark: bytes, value: Any, **more: Any) -> bytes:
    return mark + base64.b64encode(json.dumps({"present": True, "value": value} | more).encode()) + b"\n"


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(1, 9), st.none() | st.booleans())
def test_result_and_stdout_are_the_same_for_any_chunk_size(before: bytes, after: bytes, size: int, value: Any):
    stream = before + line(MARK, value) + after
    output = RemoteOutput(MARK)

    for begin in range(0, len(stream), size):
        output.add(stdout=stream[begin : begin + size])

    result = output.result(0)
    assert (result.has_value, result.value) == (True, value)
    assert result.stdout == (before + after).decode("utf-8", "replace")


@pytest.mark.parametrize(
    "forged", [line(OTHER, "forged"), line(b"__RAGFLOW_RESULT__:", "forged"), MARK + b"???\n", MARK]
)
def test_only_a_complete_line_with_the_programs_own_marker_is_the_result(forged: bytes):
    output = RemoteOutput(MARK)

    output.add(stdout=forged + line(MARK, 1) + b"rest")

    result = output.result(0)
    assert (result.value, result.stdout) == (1, forged.decode() + "rest")


def test_last_of_two_results_is_used():
    output = RemoteOutput(MARK)

    output.add(stdout=line(MARK, 1) + line(MARK, 2))

    assert (output.result(0).value, output.result(0).stdout) == (2, "")


def test_output_without_a_result_line_has_no_value():
    output = RemoteOutput(MARK)

    output.add(stdout=b"x", stderr=b"\xff")

    assert (output.result(3).has_value, output.result(3).exit_code, output.result(3).stderr) == (False, 3, "\ufffd")


def test_output_and_result_have_separate_limits():
    output = RemoteOutput(MARK, output=10, result=10)
    output.add(stdout=b"12345" + line(MARK, "x" * 100), stderr=b"67890")

    with pytest.raises(ToolError, match=r"^The program's output exceeded 10 bytes\.$"):
        output.add(stderr=b"1")


def test_files_of_a_remote_program_are_checked_locally():
    files = [
        {"name": "a.csv", "content_b64": "MQ=="}, {"name": "../b.csv", "content_b64": "MQ=="},
        {"name": "c.sh", "content_b64": "MQ=="}, {"name": "d.csv", "content_b64": "?"}, 7,
    ]  # fmt: skip
    output = RemoteOutput(MARK)

    output.add(stdout=line(MARK, None, files=files, skipped=[{"name": "e.csv", "reason": "r"}, 8]))

    result = output.result(0)
    assert [(file.name, file.data) for file in result.files] == [("a.csv", b"1")]
    assert [file.name for file in result.skipped] == ["b.csv", "c.sh", "e.csv"]


@settings(max_examples=2, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, max_size=3)),
    )
)
def test_arguments_reach_the_program_unchanged(tmp_path_factory: pytest.TempPathFactory, arguments: dict[str, Any]):
    folder = tmp_path_factory.mktemp("elsewhere")
    program = Program("python", "def main(**given): return given", arguments, 1, "key")
    wrapped = RemoteProgram.of(program)
    (folder / "program.py").write_text(wrapped.text, "utf-8")

    done = subprocess.run([sys.executable, "-S", "program.py"], cwd=folder, capture_output=True, check=True)

    output = RemoteOutput(wrapped.mark)
    output.add(done.stdout, done.stderr)
    assert output.result(0).value == arguments
    assert Path(folder / "artifacts").is_dir()
