"""The tabs of a browser: which tab is current, and whether it is still loading.

The newest tab is the current one. Dialogs are accepted at once, because a page is blocked until then. The next page
view lists them.
"""

import asyncio

from playwright.async_api import BrowserContext, Dialog, Download, Error, Page, Request

from canvas.errors import NodeFailure
from components.browsing.downloads import Downloads

QUIET_SECONDS = 0.15  # a page without changes for so long counts as complete
MAX_UNQUIET_SECONDS = 2.0  # seconds; some pages change without end
LOADING_SECONDS = 10.0  # how long to wait for a page that has begun to load
CLOSE_SECONDS = 3.0
MAX_REASON_CHARS = 300  # characters of what Playwright says
MAX_REMARKS = 10  # remarks per view; some pages open dialogs without end

_QUIET = """([quiet, longest]) => new Promise((done) => {
  let timer = setTimeout(finish, quiet);
  const observer = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(finish, quiet); });
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  setTimeout(finish, longest);
  function finish() { observer.disconnect(); done(); }
})"""


class Tabs:
    """The open tabs, oldest first. `failed_url` is the address of the last page that could not be loaded."""

    def __init__(self, context: BrowserContext, downloads: Downloads) -> None:
        self._context = context
        self._downloads = downloads
        self._open: list[Page] = []
        self._remarks: list[str] = []
        self._loading: set[Request] = set()
        self._loaded = asyncio.Event()
        self.failed_url = ""
        for page in context.pages:
            self._watch(page)
        context.on("page", self._watch)

    @property
    def count(self) -> int:
        return len(self._open)

    async def current(self) -> Page:
        """Return the newest tab, or a new one if all were closed. Raises NodeFailure when the browser has ended."""
        if not self._open:
            try:
                await self.open_tab()
            except Error as error:
                raise NodeFailure(f"The browser has ended: {reason_of(error)}") from error
        return self._open[-1]

    async def open_tab(self) -> Page:
        """Open a new tab, which becomes the current one."""
        return await self._context.new_page()

    async def close_unresponsive(self, page: Page) -> None:
        """Close an unresponsive tab. If it cannot be closed, it is at least no longer the current one."""
        self._on_close(page)
        await self.current()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await page.close()
        except (Error, TimeoutError):
            return

    async def wait_until_loaded(self) -> None:
        """Wait until all pages have loaded and the newest one is quiet, at most LOADING_SECONDS."""
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                await self._wait_until_quiet()
                if self._loading:
                    await self._loaded.wait()
                    await self._wait_until_quiet()
        except (Error, TimeoutError):
            return  # the next view shows the page as it is

    def drain_remarks(self) -> list[str]:
        """Return the remarks about the tabs since the last call, and clear them."""
        remarks, self._remarks = self._remarks, []
        return remarks

    async def _wait_until_quiet(self) -> None:
        page = await self.current()
        try:
            await page.wait_for_load_state("domcontentloaded")
            await page.evaluate(_QUIET, [QUIET_SECONDS * 1000, MAX_UNQUIET_SECONDS * 1000])
        except Error:  # the page navigated meanwhile
            page = await self.current()
            await page.wait_for_load_state("domcontentloaded")

    # -- events of tabs -------------------------------------------------------------------------------------------
    def _watch(self, page: Page) -> None:
        self._open.append(page)
        page.on("close", self._on_close)
        page.on("crash", self._on_close)
        page.on("dialog", self._on_dialog)
        page.on("download", self._on_download)
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_request_end)
        page.on("requestfailed", self._on_request_end)

    def _on_close(self, page: Page) -> None:
        if page in self._open:
            self._open.remove(page)
        self._loading = {request for request in self._loading if request.frame.page != page}
        if not self._loading:
            self._loaded.set()

    async def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type != "beforeunload" and len(self._remarks) < MAX_REMARKS:
            self._remarks.append(f'The page asked "{dialog.message}", which was accepted.')
        try:
            await dialog.accept()
        except Error:
            return  # the page was closed, and the dialog with it

    def _on_download(self, download: Download) -> None:
        self._downloads.add(download)

    def _on_request(self, request: Request) -> None:
        if _is_page_navigation(request):
            self._loading.add(request)
            self._loaded.clear()

    def _on_request_end(self, request: Request) -> None:
        if request.failure and _is_page_navigation(request):
            self.failed_url = request.url
        self._loading.discard(request)
        if not self._loading:
            self._loaded.set()


def reason_of(error: Error) -> str:
    """Return Playwright's message without the call's name and the call log."""
    text = error.message.partition("Call log:")[0].partition(": ")
    return " ".join((text[2] or text[0]).split())[:MAX_REASON_CHARS]


def _is_page_navigation(request: Request) -> bool:
    try:
        return request.is_navigation_request() and request.frame.parent_frame is None
    except Error:  # the request belongs to a service worker, or to a frame that does not exist yet
        return False
