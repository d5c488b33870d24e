"""`easel resume`: options of the command line become inputs of the run."""

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
def resume_options(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Return the options that runs are resume_options with; no servers are started."""
    received: list[Mapping[str, Any]] = []

    @contextmanager
    def fake_servers(settings: object) -> Generator[None]:
        yield None

    def resume(fake_servers: object, tenant: str, run_id: str, options: Mapping[str, Any], *, as_json: bool) -> Exit:
        assert (tenant, run_id) == ("local", RUN.hex)
        received.append(options)
        return Exit.WAITING

    monkeypatch.setattr(servers, "open_servers", fake_servers)
    monkeypatch.setattr(turn, "resume", resume)
    monkeypatch.setattr(run, "load", lambda: None)
    return received


def test_resume_sends_outcomes_by_node(resume_options: list[Mapping[str, Any]]):
    with pytest.raises(SystemExit) as ended:
        main(["resume", RUN.hex, "--happened", "Browser:0", "--again", "Invoke:1[2]", "--input", "name=Ada"])

    assert ended.value.code == Exit.WAITING
    assert resume_options[0]["inputs"] == {
        "name": "Ada",
        "Browser:0.outcome": "happened",
        "Invoke:1[2].outcome": "again",
    }


def test_resume_without_options_sends_no_inputs(resume_options: list[Mapping[str, Any]]):
    with pytest.raises(SystemExit):
        main(["resume", RUN.hex])

    assert resume_options[0]["inputs"] is None
