"""`easel resume`: what a person says reaches the run under the names of its fields."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from cli.__main__ import main
from cli.runs import run, turn
from cli.shell import servers
from cli.shell.exit_codes import Exit

RUN = UUID(int=7)


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The options with which runs are resumed, in place of the servers that would do it."""
    given: list[Mapping[str, Any]] = []

    @contextmanager
    def found(settings: object) -> Generator[None]:
        yield None

    def resume(found: object, tenant: str, written: str, options: Mapping[str, Any], *, as_json: bool) -> Exit:
        assert (tenant, written) == ("local", RUN.hex)
        given.append(options)
        return Exit.WAITING

    monkeypatch.setattr(servers, "open_servers", found)
    monkeypatch.setattr(turn, "resume", resume)
    monkeypatch.setattr(run, "load", lambda: None)
    return given


def test_resume_sends_outcomes_by_node(resumed: list[Mapping[str, Any]]):
    with pytest.raises(SystemExit) as ended:
        main(["resume", RUN.hex, "--happened", "Browser:0", "--again", "Invoke:1[2]", "--input", "name=Ada"])

    assert ended.value.code == Exit.WAITING
    assert resumed[0]["inputs"] == {"name": "Ada", "Browser:0.outcome": "happened", "Invoke:1[2].outcome": "again"}


def test_resume_without_options_answers_nothing(resumed: list[Mapping[str, Any]]):
    with pytest.raises(SystemExit):
        main(["resume", RUN.hex])

    assert resumed[0]["inputs"] is None
