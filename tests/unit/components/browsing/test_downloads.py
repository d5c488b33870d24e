import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

playwright = pytest.importorskip("playwright.async_api")

from components.browsing import downloads  # noqa: E402 (it needs the library)
from components.browsing.downloads import MAX_DOWNLOADS, Downloads  # noqa: E402


class Unfinished:
    """A download that never ends."""

    suggested_filename = "endless.bin"

    async def path(self) -> Path:
        await asyncio.Event().wait()
        raise AssertionError


def test_downloads_beyond_the_limit_are_ignored(tmp_path: Path):
    kept = Downloads(tmp_path)

    for _ in range(MAX_DOWNLOADS + 5):
        kept.add(cast(Any, Unfinished()))

    assert len(kept.names) == len(set(kept.names)) == MAX_DOWNLOADS


def test_downloads_are_waited_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(downloads, "FINISH_SECONDS", 0.02)

    async def told() -> list[str]:
        kept = Downloads(tmp_path)
        for _ in range(MAX_DOWNLOADS - 1):
            kept.add(cast(Any, Unfinished()))
        await kept.save_response("https://example.com/a.txt", {}, b"text")
        async with asyncio.timeout(1):  # one after another they would take twice as long
            return [file.problem for file in await kept.wait_for_all()]

    problems = asyncio.run(told())

    assert problems == ["the download did not finish within 0.02 seconds"] * (MAX_DOWNLOADS - 1) + [""]
