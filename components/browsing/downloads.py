"""What a browser downloads: noticed as it begins, waited for, and handed over with names that differ."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.async_api import Download, Error

from components.browsing.files import DownloadedFile, fit_name, free_name, name_from

BEGIN_SECONDS = 5.0  # for a download to begin
FINISH_SECONDS = 120.0  # for all of them to be complete
MOST_FILES = 100  # of one browser; what comes later is left
MOST_BYTES = 100 * 1024 * 1024  # of one file


class Downloads:
    """The downloads of one browser, in order. `folder` takes files that the browser showed instead of keeping."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: list[Download | Path] = []
        self._begun = asyncio.Event()
        self.names: list[str] = []

    def add(self, download: Download) -> None:
        """A download that has begun."""
        self._add(download.suggested_filename, download)

    async def keep(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """A file that came as an answer."""
        path = self._folder / f"kept-{len(self.names)}"
        await asyncio.to_thread(path.write_bytes, content)
        self._add(name_from(url, headers), path)

    async def more_than(self, number: int) -> bool:
        """Whether more downloads than these have begun; waits for one for a while."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                while len(self.names) <= number:
                    self._begun.clear()
                    await self._begun.wait()
        except TimeoutError:
            return False
        return True

    async def finished(self) -> Sequence[DownloadedFile]:
        """All of them, each complete or with what is wrong with it."""
        pairs = zip(self.names, self._sources, strict=True)
        return await asyncio.gather(*(_finished(name, source) for name, source in pairs))

    def _add(self, name: str, source: Download | Path) -> None:
        if len(self.names) == MOST_FILES:
            return  # some pages offer files without end
        self.names.append(free_name(fit_name(name, "download"), self.names))
        self._sources.append(source)
        self._begun.set()


async def _finished(name: str, source: Download | Path) -> DownloadedFile:
    try:
        async with asyncio.timeout(FINISH_SECONDS):
            path = source if isinstance(source, Path) else await source.path()
        size = path.stat().st_size
    except TimeoutError:
        return DownloadedFile(name, None, f"it was not complete after {FINISH_SECONDS:g} seconds")
    except (Error, OSError) as error:
        return DownloadedFile(name, None, " ".join(str(error).split())[:200])
    if not size:
        return DownloadedFile(name, None, "it is empty")
    if size > MOST_BYTES:
        return DownloadedFile(name, None, f"it is larger than {MOST_BYTES:,} bytes")
    return DownloadedFile(name, path)
