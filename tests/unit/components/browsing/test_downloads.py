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
    collected = Downloads(tmp_path)

    for _ in range(MAX_DOWNLOADS + 5):
        collected.add(cast(Any, Unfinished()))

    assert len(collected.names) == len(set(collected.names)) == MAX_DOWNLOADS


def test_waiting_for_several_downloads_ends_after_one_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(downloads, "FINISH_SECONDS", 0.02)

    async def find_problems() -> list[str]:
        collected = Downloads(tmp_path)
        for _ in range(MAX_DOWNLOADS - 1):
            collected.add(cast(Any, Unfinished()))
        await collected.save_response("https://example.com/a.txt", {}, b"text")
        async with asyncio.timeout(1):  # one after another they would take twice as long
            return [file.problem for file in await collected.wait_for_all()]

    problems = asyncio.run(find_problems())

    assert problems == ["the download did not finish within 0.02 seconds"] * (MAX_DOWNLOADS - 1) + [""]
