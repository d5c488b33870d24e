"""Which commands there are, and their exit codes."""

import subprocess
import sys

import pytest

from canvas.errors import Conflict, InvalidCanvas, ModelError, NotFound, StateError
from cli.__main__ import COMMANDS, main
from cli.shell.exit_codes import Exit, exit_code_of


def test_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])

    shown = capsys.readouterr().out
    assert not ended.value.code
    assert [name for name in COMMANDS if f" {name} " not in shown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_text(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert not ended.value.code
    assert f"{name} " in capsys.readouterr().out


def test_mistyped_command_is_bad_input_and_a_similar_one_is_suggested(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["validat"])

    assert ended.value.code == 2
    assert "'validate'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidCanvas("no begin"), Exit.BAD_INPUT),
        (NotFound("no agent"), Exit.BAD_INPUT),
        (Conflict("not waiting"), Exit.BAD_INPUT),
        (ModelError("no account"), Exit.FAILED),
        (StateError("a bug"), Exit.FAILED),
    ],
)
def test_exit_code_is_bad_input_for_errors_of_the_caller_and_failed_for_others(error: Exception, code: Exit):
    assert exit_code_of(error) is code  # type: ignore[arg-type] (each is an ExecutorError)


@pytest.mark.parametrize("command", ["cancel", "runs", "show", "explain", "events", "calls"])
def test_command_about_a_run_loads_no_component(command: str):
    module = COMMANDS[command].partition(":")[0]
    code = f"import sys, cli.__main__, {module}; print([name for name in sys.modules if name.startswith('components')])"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "[]\n"
