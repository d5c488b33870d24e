"""The Chromium process: find the program, start it behind the proxy, and make sure that it ends.

Playwright starts Chromium through a driver process and ends it on request. If Playwright fails to end it, because it
hangs or was still starting when the attempt was cancelled, Chromium's process group is killed: the lock file in its
profile names the process.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Error, Playwright, async_playwright

from canvas.errors import NodeFailure

CLOSE_SECONDS = 2.0  # for the browser to write its profile and close
STOP_SECONDS = 3.0  # for the driver to end; afterwards it ends in the background
LAUNCH_SECONDS = 60.0
MAX_REASON_CHARS = 500
MAX_TMPDIR_CHARS = 56  # characters of the path: Chromium puts a socket below it, and a socket's path may have 103

_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATHS = (
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",  # QUIC would bypass the proxy
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # the name in older versions
    "--proxy-bypass-list=<-loopback>",  # loopback goes through the proxy as well
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # names are not resolved here, only by the proxy
    "--no-pings",
)
_PASSED_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
    "XDG_RUNTIME_DIR", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "LD_LIBRARY_PATH",
)  # fmt: skip
_LOCK = "SingletonLock"
_CAUSES = (
    "FATAL:",
    "error while loading",
    "Missing X server",
    "No usable sandbox",
)  # lines of its output that name a cause

# references to background tasks, which asyncio itself holds only weakly
stopping_drivers: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How to start a browser. Files outside the profile go to `scratch`; all traffic goes through `proxy`."""

    profile: Path
    scratch: Path
    proxy: str
    executable: str | None = None
    headless: bool = True
    sandbox: bool = False


@asynccontextmanager
async def run_chromium(launch: LaunchOptions) -> AsyncGenerator[BrowserContext]:
    """Start a browser with one empty tab, and end it afterwards. Raises NodeFailure if it cannot be started."""
    starting = asyncio.ensure_future(async_playwright().start())
    opening = asyncio.ensure_future(_launch(starting, launch))
    try:
        try:
            context = await asyncio.shield(opening)
        except Error as error:
            raise _start_failure(error, launch) from error
        yield context
    finally:
        await _finish_despite_cancel(_close(starting, opening, launch.profile))


def kill_browser(profile: Path) -> None:
    """Kill the browser that uses a profile, with all its child processes."""
    lock = profile / _LOCK
    with suppress(OSError, ValueError):  # there is no lock, or the process has ended
        group = os.getpgid(int(os.readlink(lock).rpartition("-")[2]))
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        lock.unlink()


def find_executable(configured: str | None) -> str | None:
    """Return the Chromium to start: the configured one, else the first in the usual places; None if there is none."""
    if configured:
        found = shutil.which(configured)
        if found is None:
            raise NodeFailure(
                f'The browser "{configured}" was not found. Set BROWSER_USE_EXECUTABLE_PATH to a Chromium.'
            )
        return found
    return next((found for place in (*_COMMANDS, *_PATHS) if (found := shutil.which(place))), None)


async def _launch(starting: "asyncio.Future[Playwright]", launch: LaunchOptions) -> BrowserContext:
    playwright = await asyncio.shield(starting)
    executable = find_executable(launch.executable) or playwright.chromium.executable_path
    if not Path(executable).exists():
        raise NodeFailure("No Chromium was found. Install one, or set BROWSER_USE_EXECUTABLE_PATH to its path.")
    return await playwright.chromium.launch_persistent_context(
        launch.profile,
        executable_path=executable,
        args=[*_FLAGS, f"--proxy-server={launch.proxy}", f"--disk-cache-dir={launch.scratch / 'cache'}"],
        headless=launch.headless,
        chromium_sandbox=launch.sandbox,
        accept_downloads=True,
        downloads_path=launch.scratch / "downloads",
        artifacts_dir=launch.scratch / "artifacts",
        env=_environment(launch.scratch),
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
        timeout=LAUNCH_SECONDS * 1000,
    )


def _environment(scratch: Path) -> dict[str, str | float | bool]:
    """Return the browser's environment: a few variables of ours, because the others may contain secrets."""
    passed_on = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    temporary = {"TMPDIR": str(scratch)} if len(str(scratch)) <= MAX_TMPDIR_CHARS else {}
    return {**passed_on, **temporary, "HOME": str(scratch)}


async def _close(
    starting: "asyncio.Future[Playwright]", opening: "asyncio.Future[BrowserContext]", profile: Path
) -> None:
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await opening.result().close()
    else:
        opening.cancel()
    kill_browser(profile)
    stopping = asyncio.create_task(_stop_driver(starting))
    stopping_drivers.add(stopping)
    stopping.add_done_callback(stopping_drivers.discard)
    await asyncio.wait({stopping}, timeout=STOP_SECONDS)
    kill_browser(profile)


async def _stop_driver(starting: "asyncio.Future[Playwright]") -> None:
    """End the driver once it has started. A browser that it was about to start ends with it."""
    with suppress(Exception):  # a driver that failed to start raises its error here, which was reported before
        await (await starting).stop()


async def _finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine to its end even if the task is cancelled meanwhile; raise the cancellation afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _start_failure(error: Error, launch: LaunchOptions) -> NodeFailure:
    lines = error.message.strip().splitlines() or ["no reason given"]
    reason = next((line for line in lines if any(word in line for word in _CAUSES)), lines[0])
    advice = "" if launch.headless else " Without `headless` it needs a display."
    return NodeFailure(f"The browser could not be started: {reason.strip()[:MAX_REASON_CHARS]}.{advice}")
