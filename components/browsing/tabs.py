"""The tabs of a browser: which one is looked at, and whether anything is still on its way to it.

The newest tab is the one. Dialogs are accepted at once, for a page stands still until they are; the model is told.
"""

import asyncio

from playwright.async_api import BrowserContext, Dialog, Download, Error, Page, Request

from canvas.errors import NodeFailure
from components.browsing.downloads import Downloads

QUIET_SECONDS = 0.15  # without a change of the page: nothing more is coming
LONGEST_UNQUIET = 2.0  # some pages never rest
LOADING_SECONDS = 10.0  # for a page that has begun to load
CLOSE_SECONDS = 3.0
LONGEST_REASON = 300  # characters of what Playwright says
MOST_REMARKS = 10  # told at one look: some pages ask without end

_QUIET = """([quiet, longest]) => new Promise((done) => {
  let timer = setTimeout(finish, quiet);
  const observer = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(finish, quiet); });
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  setTimeout(finish, longest);
  function finish() { observer.disconnect(); done(); }
})"""


class Tabs:
    """The open tabs, oldest first. `failed` is the address of the last page that could not be loaded."""

    def __init__(self, context: BrowserContext, downloads: Downloads) -> None:
        self._context = context
        self._downloads = downloads
        self._open: list[Page] = []
        self._remarks: list[str] = []
        self._loading: set[Request] = set()
        self._loaded = asyncio.Event()
        self.failed = ""
        for page in context.pages:
            self._watch(page)
        context.on("page", self._watch)

    @property
    def count(self) -> int:
        return len(self._open)

    async def current(self) -> Page:
        """The newest tab; an empty one if the last was closed. Raises NodeFailure when the browser has ended."""
        if not self._open:
            try:
                await self.another()
            except Error as error:
                raise NodeFailure(f"The browser has ended: {reason_of(error)}") from error
        return self._open[-1]

    async def another(self) -> Page:
        """A new tab, which is the newest now."""
        return await self._context.new_page()

    async def give_up(self, page: Page) -> None:
        """Close a tab that does nothing any more; if it cannot be closed, it is out of sight at least."""
        self._forget(page)
        await self.current()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await page.close()
        except (Error, TimeoutError):
            return

    async def settled(self) -> None:
        """Wait until pages that are loading have come, and the newest one rests; not for ever."""
        try:
            async with asyncio.timeout(LOADING_SECONDS):
                await self._rest()
                if self._loading:
                    await self._loaded.wait()
                    await self._rest()
        except (Error, TimeoutError):
            return  # the next look shows what there is

    def remarked(self) -> list[str]:
        """What has happened in the tabs and has not been told yet."""
        remarks, self._remarks = self._remarks, []
        return remarks

    async def _rest(self) -> None:
        page = await self.current()
        try:
            await page.wait_for_load_state("domcontentloaded")
            await page.evaluate(_QUIET, [QUIET_SECONDS * 1000, LONGEST_UNQUIET * 1000])
        except Error:  # it went elsewhere meanwhile
            page = await self.current()
            await page.wait_for_load_state("domcontentloaded")

    # -- what tabs tell -------------------------------------------------------------------------------------------
    def _watch(self, page: Page) -> None:
        self._open.append(page)
        page.on("close", self._forget)
        page.on("crash", self._forget)
        page.on("dialog", self._accept)
        page.on("download", self._note)
        page.on("request", self._begun)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)

    def _forget(self, page: Page) -> None:
        if page in self._open:
            self._open.remove(page)
        self._loading = {request for request in self._loading if request.frame.page != page}
        if not self._loading:
            self._loaded.set()

    async def _accept(self, dialog: Dialog) -> None:
        if dialog.type != "beforeunload" and len(self._remarks) < MOST_REMARKS:
            self._remarks.append(f'The page asked "{dialog.message}", which was accepted.')
        try:
            await dialog.accept()
        except Error:
            return  # it went with its page

    def _note(self, download: Download) -> None:
        self._downloads.add(download)

    def _begun(self, request: Request) -> None:
        if _is_a_page(request):
            self._loading.add(request)
            self._loaded.clear()

    def _ended(self, request: Request) -> None:
        if request.failure and _is_a_page(request):
            self.failed = request.url
        self._loading.discard(request)
        if not self._loading:
            self._loaded.set()


def reason_of(error: Error) -> str:
    """What Playwright says, without its name for the call and its log."""
    text = error.message.partition("Call log:")[0].partition(": ")
    return " ".join((text[2] or text[0]).split())[:LONGEST_REASON]


def _is_a_page(request: Request) -> bool:
    try:
        return request.is_navigation_request() and request.frame.parent_frame is None
    except Error:  # of a service worker, or of a frame that is not there yet
        return False
