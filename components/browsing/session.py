"""A browser session: the profile folder, the proxy, the Chromium process and the page that a model drives.

Everything is removed when the `async with` block ends, except a named profile: cookies and logins stay in it from run
to run. A named profile is one folder per node, and one browser at a time uses it. A lock on a file beside the folder
enforces this, between processes and, where the shared file system supports such locks, between machines. The lock ends
with its process, even if the process is killed.

Playwright is an optional library. It is imported when the first browser is opened.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from canvas.errors import NodeFailure
from components.browsing.files import UploadedFile
from providers.http.browser_proxy import BrowserProxy
from providers.interfaces import BrowserSettings

if TYPE_CHECKING:
    from components.browsing.downloads import Downloads
    from components.browsing.page import LivePage

PROFILE_LOCK_WAIT = 3.0  # seconds to wait for a profile that another browser uses
PROFILE_LOCK_RETRY = 0.1  # seconds between two attempts to lock a profile

_SINGLETON_FILES = ("SingletonLock", "SingletonCookie", "SingletonSocket")  # Chromium's own marks of a profile in use
_PREFERENCES = {"plugins": {"always_open_pdf_externally": True}}  # download a PDF instead of showing it


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """How to open a browser. `profile` names a profile to keep from run to run; None means an empty one."""

    scratch: Path
    profile: str | None = None
    headless: bool = True
    sandbox: bool = False
    files: Sequence[UploadedFile] = ()
    max_text: int = 8000


@asynccontextmanager
async def open_browser(
    settings: BrowserSettings, options: BrowserOptions, log: Any
) -> "AsyncGenerator[tuple[LivePage, Downloads]]":
    """Open a browser; give its page and its downloads. Raises NodeFailure if no browser can be started."""
    await asyncio.to_thread(_need_playwright)
    from components.browsing import chromium
    from components.browsing.downloads import Downloads
    from components.browsing.page import LivePage

    is_root = os.geteuid() == 0
    if is_root:
        log.warning("browser_without_sandbox", reason="Chromium cannot use its sandbox as root; run workers as a user")
    async with AsyncExitStack() as stack:
        profile = await _enter_profile(settings.profiles, options, log, stack)
        proxy = await stack.enter_async_context(BrowserProxy(settings.guard))
        launch = chromium.LaunchOptions(
            profile=profile,
            scratch=options.scratch,
            proxy=proxy.url,
            executable=settings.executable,
            headless=options.headless,
            sandbox=options.sandbox and not is_root,
        )
        context = await stack.enter_async_context(chromium.run_chromium(launch))
        downloads = Downloads(options.scratch)
        page = LivePage(
            context, downloads, refused=proxy.connect_errors, files=options.files, max_text=options.max_text
        )
        yield page, downloads


def _need_playwright() -> ModuleType:
    """Import Playwright; the first import takes almost a second. Raises NodeFailure if it is not installed."""
    try:
        import playwright.async_api
    except ModuleNotFoundError as error:
        raise NodeFailure('Browser needs the extra "browser" on every worker: pip install easel[browser]') from error
    return playwright.async_api


# -- profiles ---------------------------------------------------------------------------------------------------------


async def _enter_profile(home: Path | None, options: BrowserOptions, log: Any, stack: AsyncExitStack) -> Path:
    """Return the named profile, locked until the stack closes; an empty one without a name, or if it is in use."""
    if options.profile is not None and home is not None:
        profile = await stack.enter_async_context(lock_profile(home, options.profile))
        if profile is not None:
            return profile
        log.warning("browser_profile_in_use", reason="another run uses it; this run starts with an empty profile")
    return prepare_profile(options.scratch / "profile")


@asynccontextmanager
async def lock_profile(home: Path, name: str, wait: float = PROFILE_LOCK_WAIT) -> AsyncGenerator[Path | None]:
    """Lock the profile of this name and give its folder; give None if it is in use for longer than `wait` seconds."""
    lock = await asyncio.to_thread(_open_lock_file, home, name)
    try:
        if await _acquire(lock, wait):
            yield await asyncio.to_thread(prepare_profile, home / name)
        else:
            yield None
    finally:
        os.close(lock)


def prepare_profile(folder: Path) -> Path:
    """Make the folder ready for Chromium: create it with our preferences, and remove the marks of a killed browser."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _SINGLETON_FILES:
        (folder / name).unlink(missing_ok=True)
    preferences = folder / "Default" / "Preferences"
    if not preferences.exists():
        preferences.parent.mkdir(mode=0o700, exist_ok=True)
        preferences.write_text(json.dumps(_PREFERENCES))
    return folder


def _open_lock_file(home: Path, name: str) -> int:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _acquire(lock: int, wait: float) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() >= until:
                return False
            await asyncio.sleep(PROFILE_LOCK_RETRY)
        else:
            return True
