"""What a program says on another machine, read however it comes."""

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
def test_it_does_not_matter_where_the_pieces_are_cut(before: bytes, after: bytes, size: int, value: Any):
    stream = before + line(MARK, value) + after
    said = RemoteOutput(MARK)

    for begin in range(0, len(stream), size):
        said.add(stdout=stream[begin : begin + size])

    result = said.result(0)
    assert (result.has_value, result.value) == (True, value)
    assert result.stdout == (before + after).decode("utf-8", "replace")


@pytest.mark.parametrize(
    "forged", [line(OTHER, "forged"), line(b"__RAGFLOW_RESULT__:", "forged"), MARK + b"???\n", MARK]
)
def test_only_a_whole_line_behind_the_runs_own_mark_is_the_result(forged: bytes):
    said = RemoteOutput(MARK)

    said.add(stdout=forged + line(MARK, 1) + b"rest")

    result = said.result(0)
    assert (result.value, result.stdout) == (1, forged.decode() + "rest")


def test_the_last_result_counts():
    said = RemoteOutput(MARK)

    said.add(stdout=line(MARK, 1) + line(MARK, 2))

    assert (said.result(0).value, said.result(0).stdout) == (2, "")


def test_without_a_result_there_is_none():
    said = RemoteOutput(MARK)

    said.add(stdout=b"x", stderr=b"\xff")

    assert (said.result(3).has_value, said.result(3).exit_code, said.result(3).stderr) == (False, 3, "\ufffd")


def test_output_and_result_have_limits_of_their_own():
    said = RemoteOutput(MARK, output=10, result=10)
    said.add(stdout=b"12345" + line(MARK, "x" * 100), stderr=b"67890")

    with pytest.raises(ToolError, match=r"^The program's output exceeded 10 bytes\.$"):
        said.add(stderr=b"1")


def test_files_from_elsewhere_are_named_and_limited_here():
    files = [
        {"name": "a.csv", "content_b64": "MQ=="}, {"name": "../b.csv", "content_b64": "MQ=="},
        {"name": "c.sh", "content_b64": "MQ=="}, {"name": "d.csv", "content_b64": "?"}, 7,
    ]  # fmt: skip
    said = RemoteOutput(MARK)

    said.add(stdout=line(MARK, None, files=files, skipped=[{"name": "e.csv", "reason": "r"}, 8]))

    result = said.result(0)
    assert [(file.name, file.data) for file in result.files] == [("a.csv", b"1")]
    assert [file.name for file in result.skipped] == ["b.csv", "c.sh", "e.csv"]


@settings(max_examples=2, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, max_size=3)),
    )
)
def test_arguments_arrive_as_they_are(tmp_path_factory: pytest.TempPathFactory, arguments: dict[str, Any]):
    folder = tmp_path_factory.mktemp("elsewhere")
    program = Program("python", "def main(**given): return given", arguments, 1, "key")
    wrapped = RemoteProgram.of(program)
    (folder / "program.py").write_text(wrapped.text, "utf-8")

    done = subprocess.run([sys.executable, "-S", "program.py"], cwd=folder, capture_output=True, check=True)

    said = RemoteOutput(wrapped.mark)
    said.add(done.stdout, done.stderr)
    assert said.result(0).value == arguments
    assert Path(folder / "artifacts").is_dir()
