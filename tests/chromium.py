"""The browsers of tests of pages: the Chromium of Debian, in its build without a window, which takes a third of the
time, or else the whole browser; with EASEL_TEST_BROWSER the Firefox or WebKit that Playwright has installed."""

import os
import shutil
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")


SETTING = "EASEL_TEST_BROWSER"
OTHERS = ("firefox", "webkit")


def chosen_browser() -> str:
    """Return the browser that the environment names, or Chromium. Raises ValueError for one that is not known."""
    name = os.environ.get(SETTING) or "chromium"
    if name not in ("chromium", *OTHERS):
        raise ValueError(f"{SETTING}={name} is not a browser. Use chromium, {' or '.join(OTHERS)}.")
    return name


def why_missing(playwright: Any, name: str) -> str | None:
    """Return why a browser of Playwright cannot be used; None if it can."""
    path = getattr(playwright, name).executable_path
    if Path(path).exists():
        return None
    return f"{name} was not found at {path or 'any path'}. Install it: playwright install {name}"


def find_chromium() -> str | None:
    """Return the path of the browser; None if there is none on this machine."""
    return next((path for path in map(shutil.which, NAMES) if path), None)
