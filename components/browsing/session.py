"""A browser ready to be driven: its profile, its guarded way out, its process, and the page in it.

All of it is gone when the `async with` ends, but for a profile that was lent. Playwright, an optional library, is
imported by the modules that are imported here when the first browser is wanted.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from canvas.errors import NodeFailure
from components.browsing import profiles
from components.browsing.files import UploadedFile
from providers.http.browser_proxy import Egress
from providers.interfaces import BrowserSettings

if TYPE_CHECKING:
    from components.browsing.downloads import Downloads
    from components.browsing.page import LivePage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a node wants of its browser. `profile` names what it remembers from run to run; None: nothing."""

    scratch: Path
    profile: str | None = None
    headless: bool = True
    sandbox: bool = False
    files: Sequence[UploadedFile] = ()
    most_text: int = 8000


@asynccontextmanager
async def opened(settings: BrowserSettings, wanted: Wanted, log: Any) -> "AsyncGenerator[tuple[LivePage, Downloads]]":
    """A page, and what is downloaded from it. Raises NodeFailure where no browser can be started."""
    await asyncio.to_thread(_need_playwright)
    from components.browsing import chromium
    from components.browsing.downloads import Downloads
    from components.browsing.page import LivePage

    is_root = os.geteuid() == 0
    if is_root:
        log.warning("browser_without_sandbox", reason="Chromium cannot use its sandbox as root; run workers as a user")
    async with AsyncExitStack() as stack:
        profile = await _profile(settings.profiles, wanted, log, stack)
        egress = await stack.enter_async_context(Egress(settings.guard))
        launch = chromium.Launch(
            profile=profile,
            scratch=wanted.scratch,
            proxy=egress.url,
            executable=settings.executable,
            headless=wanted.headless,
            sandbox=wanted.sandbox and not is_root,
        )
        context = await stack.enter_async_context(chromium.running(launch))
        downloads = Downloads(wanted.scratch)
        page = LivePage(context, downloads, refused=egress.refused, files=wanted.files, most_text=wanted.most_text)
        yield page, downloads


def _need_playwright() -> ModuleType:
    """Import it, which takes most of a second the first time. Raises NodeFailure where it is not installed."""
    try:
        import playwright.async_api
    except ModuleNotFoundError as error:
        raise NodeFailure('Browser needs the extra "browser" on every worker: pip install easel[browser]') from error
    return playwright.async_api


async def _profile(home: Path | None, wanted: Wanted, log: Any, stack: AsyncExitStack) -> Path:
    """The profile that was asked for, or an empty one for this time only."""
    if wanted.profile is not None and home is not None:
        lent = await stack.enter_async_context(profiles.lent(home, wanted.profile))
        if lent is not None:
            return lent
        log.warning("browser_profile_in_use", reason="another run has it; this one starts with an empty profile")
    return profiles.prepared(wanted.scratch / "profile")
