"""Downloads of a browser: noted when they begin, awaited, and returned under distinct names."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.async_api import Download, Error

from components.browsing.files import DownloadedFile, fit_name, free_name, name_from_response

BEGIN_SECONDS = 5.0  # how long to wait for a download to begin
FINISH_SECONDS = 120.0  # how long to wait for all downloads to finish
MAX_DOWNLOADS = 100  # per browser; later downloads are ignored
MAX_FILE_BYTES = 100 * 1024 * 1024  # per file


class Downloads:
    """The downloads of one browser, in order. Files that the browser displays instead of saving go to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sources: list[Download | Path] = []
        self._has_new = asyncio.Event()
        self.names: list[str] = []

    def add(self, download: Download) -> None:
        """Note a download that has begun."""
        self._add(download.suggested_filename, download)

    async def save_response(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """Save the body of a response as a download."""
        path = self._folder / f"kept-{len(self.names)}"
        await asyncio.to_thread(path.write_bytes, content)
        self._add(name_from_response(url, headers), path)

    async def wait_for_more_than(self, number: int) -> bool:
        """Return whether more than `number` downloads have begun; wait up to BEGIN_SECONDS for the next one."""
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                while len(self.names) <= number:
                    self._has_new.clear()
                    await self._has_new.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_all(self) -> Sequence[DownloadedFile]:
        """Wait for all downloads and return them; one that failed names its problem."""
        pairs = zip(self.names, self._sources, strict=True)
        return await asyncio.gather(*(_wait_for(name, source) for name, source in pairs))

    def _add(self, name: str, source: Download | Path) -> None:
        if len(self.names) == MAX_DOWNLOADS:
            return  # some pages start downloads without end
        self.names.append(free_name(fit_name(name, "download"), self.names))
        self._sources.append(source)
        self._has_new.set()


async def _wait_for(name: str, source: Download | Path) -> DownloadedFile:
    try:
        async with asyncio.timeout(FINISH_SECONDS):
            path = source if isinstance(source, Path) else await source.path()
        size = path.stat().st_size
    except TimeoutError:
        return DownloadedFile(name, None, f"the download did not finish within {FINISH_SECONDS:g} seconds")
    except (Error, OSError) as error:
        return DownloadedFile(name, None, " ".join(str(error).split())[:200])
    if not size:
        return DownloadedFile(name, None, "the file is empty")
    if size > MAX_FILE_BYTES:
        return DownloadedFile(name, None, f"the file is larger than {MAX_FILE_BYTES:,} bytes")
    return DownloadedFile(name, path)
