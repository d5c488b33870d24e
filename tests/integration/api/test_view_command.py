"""`easel view`, and what `easel up` prints about pages: an address that signs in once."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import settings
from canvas.ids import RunId
from cli.__main__ import app
from cli.server import up as up_command
from cli.shell import home
from cli.shell.home import Up
from cli.shell.page_server import find_page_server, find_run_address
from store.primitives.ids import new_id
from tests.integration.api.browsers import cookie_of, try_to_sign_in
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, Client

View = Callable[..., Any]


@pytest.fixture
def admin(workerless_server: Server) -> Client:
    return workerless_server.client(kind="admin")


@pytest.fixture
def view(workerless_server: Server, admin: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> View:
    """Return a function that runs `easel view` beside an `easel up` with this server."""
    monkeypatch.setenv("EASEL_HOME", str(tmp_path))
    settings.load.cache_clear()
    running = Up(workerless_server.url, 1, admin.token, "", "")
    monkeypatch.setattr(home, "find_running_up", lambda folder: running)
    yield lambda *arguments: CliRunner().invoke(app, ["view", *arguments])
    settings.load.cache_clear()


def code_in(address: str) -> str:
    found = re.fullmatch(r"(\S+)#c=(\S+)\n?", address)
    assert found, address
    return found[2]


def test_printed_address_signs_in_once(workerless_server: Server, view: View) -> None:
    printed = view("--print")

    code = code_in(printed.stdout)
    assert printed.exit_code == 0
    assert printed.stdout == f"{workerless_server.url}/#c={code}\n"
    assert cookie_of(workerless_server.url, code=code)
    assert try_to_sign_in(workerless_server.url, code=code).status_code == 401


def test_address_of_a_run_names_it_by_its_id(workerless_server: Server, admin: Client, view: View) -> None:
    run_id = admin.start(admin.agent(ECHO))["run_id"]

    printed = view(run_id.upper(), "--print")

    assert printed.stdout.startswith(f"{workerless_server.url}/runs/{run_id}#c=")


def test_unknown_run_is_an_error(view: View) -> None:
    failed = view("no such run", "--print")

    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "There is no run no such run" in str(failed.exception)


def test_browser_is_opened_and_nothing_printed(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)

    printed = view()

    assert (printed.exit_code, printed.stdout, len(opened)) == (0, "", 1)
    assert code_in(opened[0])


def test_address_is_printed_where_there_is_no_browser(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)

    assert code_in(view().stdout)


def test_command_without_a_running_easel_up_is_refused(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "find_running_up", lambda folder: None)

    failed = view()

    assert "No `easel up` runs" in str(failed.exception)


def test_address_has_the_base_path(workerless_server: Server, admin: Client) -> None:
    with start_server(with_settings(workerless_server.config, base_path="/easel")) as server:
        found = find_page_server(server.url, admin.token)
        assert found is not None
        address = found.address()

    assert address.startswith(f"{server.url}/easel/#c=")


def test_viewer_that_is_off_has_no_address(workerless_server: Server, admin: Client) -> None:
    with start_server(with_settings(workerless_server.config, viewer=False)) as server:
        assert find_page_server(server.url, admin.token) is None


@pytest.mark.parametrize("is_built", [True, False])
def test_easel_up_prints_the_address_on_stderr_only_where_pages_are_served(
    workerless_server: Server, admin: Client, is_built: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # T013
    monkeypatch.setattr("api.pages.page_files.find_build", lambda: "0123456789ab" if is_built else None)

    up_command.print_viewer_address(workerless_server.url, admin.token)

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"viewer: {workerless_server.url}/#c=") == is_built
    if is_built:
        assert cookie_of(workerless_server.url, code=code_in(printed.err.removeprefix("viewer: ")))


def test_easel_up_without_an_answer_prints_why(capsys: pytest.CaptureFixture[str]) -> None:
    up_command.print_viewer_address("http://127.0.0.1:1", "token")

    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("is_built", [True, False])
def test_started_run_has_an_address_only_where_pages_are_served(
    workerless_server: Server, admin: Client, is_built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.pages.page_files.find_build", lambda: "0123456789ab" if is_built else None)
    up, run_id = Up(workerless_server.url, 1, admin.token, "", ""), RunId(new_id())

    address = find_run_address(up, run_id)

    assert address == (f"{workerless_server.url}/runs/{run_id.hex}" if is_built else None)


def test_started_run_has_no_address_without_an_answer_or_a_running_easel_up() -> None:
    assert find_run_address(None, RunId(new_id())) is None
    assert find_run_address(Up("http://127.0.0.1:1", 1, "token", "", ""), RunId(new_id())) is None
