"""Which browser the tests of pages use, and what is reported of those that are not there."""  # T137

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chromium import SETTING, chosen_browser, why_missing
from tests.pages.other_browsers import run_tests_in


def test_browser_is_chromium_unless_the_environment_names_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(SETTING, raising=False)
    assert chosen_browser() == "chromium"

    monkeypatch.setenv(SETTING, "firefox")
    assert chosen_browser() == "firefox"

    monkeypatch.setenv(SETTING, "lynx")
    with pytest.raises(ValueError, match="lynx is not a browser"):
        chosen_browser()


def test_browser_that_is_not_installed_is_reported_with_its_path_and_the_remedy(tmp_path: Path):
    playwright = SimpleNamespace(firefox=SimpleNamespace(executable_path=str(tmp_path / "firefox")))

    missing = why_missing(playwright, "firefox")
    (tmp_path / "firefox").touch()

    assert missing == f"firefox was not found at {tmp_path}/firefox. Install it: playwright install firefox"
    assert why_missing(playwright, "firefox") is None


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, "....\n4 passed in 2.00s\n", (True, "4 passed in 2.00s")),
        (1, "F...\n== 1 failed, 3 passed in 2.00s ==\n", (False, "1 failed, 3 passed in 2.00s")),
        (4, "", (False, "pytest ended with 4 and no summary")),
    ],
)
def test_result_of_a_browser_is_the_last_line_of_pytest(code: int, output: str, expected: tuple[bool, str]):
    environments: list[Any] = []

    def run(command: list[str], *, env: Any, **_: Any) -> "subprocess.CompletedProcess[str]":
        environments.append(env)
        return subprocess.CompletedProcess(command, code, output)

    assert run_tests_in("webkit", run) == expected
    assert environments[0][SETTING] == "webkit"
