"""The Chromium of Debian that tests of pages use: its build without a window, which takes a third of the time, or else
the whole browser."""

import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")


def find_chromium() -> str | None:
    """Return the path of the browser; None if there is none on this machine."""
    return next((path for path in map(shutil.which, NAMES) if path), None)
