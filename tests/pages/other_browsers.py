"""Tests of pages in Firefox and WebKit, where Playwright has installed them: `make browsers`.

The result is a report: continuous integration does not require it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.chromium import OTHERS, SETTING, why_missing

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed|skipped|error).*?)(?: =+)?$")


def main() -> int:
    """Test each browser that is found; return 1 if a test failed."""
    from playwright.sync_api import sync_playwright  # the extra `browser` may not be installed

    with sync_playwright() as playwright:
        missing = {name: why_missing(playwright, name) for name in OTHERS}
    has_failed = False
    for name, reason in missing.items():
        if reason is None:
            passed, line = run_tests_in(name)
            has_failed |= not passed
            print(f"{name}: {line}", flush=True)  # noqa: T201
        else:
            print(f"not tested: {reason}", flush=True)  # noqa: T201
    return int(has_failed)


def run_tests_in(
    name: str, run: Callable[..., "subprocess.CompletedProcess[str]"] = subprocess.run
) -> tuple[bool, str]:
    """Run the tests of pages in a browser; return whether they passed, and pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=line", "tests/pages"]
    done = run(command, cwd=ROOT, env={**os.environ, SETTING: name}, stdout=subprocess.PIPE, text=True, check=False)
    lines = [found[1] for line in done.stdout.splitlines() if (found := SUMMARY.match(line))]
    return done.returncode == 0, lines[-1] if lines else f"pytest ended with {done.returncode} and no summary"


if __name__ == "__main__":
    sys.exit(main())
