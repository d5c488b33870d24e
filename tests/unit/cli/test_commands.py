"""Which commands there are, and how they end."""

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
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert not ended.value.code
    assert f"{name} " in capsys.readouterr().out


def test_a_command_that_is_mistyped_is_bad_input_and_a_similar_one_is_named(capsys: pytest.CaptureFixture[str]):
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
def test_what_the_caller_can_mend_is_bad_input_and_the_rest_a_failure(error: Exception, code: Exit):
    assert exit_code_of(error) is code  # type: ignore[arg-type] (each is an ExecutorError)


@pytest.mark.parametrize("command", ["cancel", "runs", "show", "explain", "events"])
def test_command_about_a_run_loads_no_component(command: str):
    module = COMMANDS[command].partition(":")[0]
    code = f"import sys, cli.__main__, {module}; print([name for name in sys.modules if name.startswith('components')])"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "[]\n"
