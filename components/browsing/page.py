"""The loop's view of the browser, on top of Playwright: one current page to read and to act on.

Element numbers are those of the last view; an action on an element that has disappeared since then fails. `back` closes
a tab that has no earlier page.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ElementHandle, Error, Frame, Page, Response

from components.browsing import actions
from components.browsing.downloads import Downloads
from components.browsing.files import UploadedFile
from components.browsing.loop import ActionFailed
from components.browsing.page_view import MAX_ELEMENTS, PageElement, PageView
from components.browsing.tabs import Tabs, reason_of

VIEW_SECONDS = 10.0
ACTION_SECONDS = 60.0  # for an action, navigation included
CLICK_SECONDS = 5.0
GOTO_SECONDS = 30.0
MAX_FRAMES = 8

_READ_FRAME = (Path(__file__).with_name("page.js")).read_text()
_SCROLL = """(direction) => {
  const page = document.scrollingElement || document.documentElement;
  const room = (element) => element.scrollHeight - element.clientHeight;
  const boxes = [...document.querySelectorAll("*")].filter((each) =>
    room(each) > 8 && each.clientHeight > 100 && ["auto", "scroll"].includes(getComputedStyle(each).overflowY));
  const target = room(page) > 8 ? page : boxes.sort((a, b) => b.clientHeight - a.clientHeight)[0] || page;
  const step = 0.8 * target.clientHeight;
  const to = { down: target.scrollTop + step, up: target.scrollTop - step, top: 0, bottom: target.scrollHeight };
  target.scrollTo({ top: to[direction], behavior: "instant" });
}"""
_READ_HTML = "(most) => document.documentElement.outerHTML.slice(0, most)"
_IS_FILE_FIELD = "(element) => element.tagName === 'INPUT' && element.type === 'file'"
_SCHEMES = frozenset({"http", "https", "about", "blob", "data", "chrome-error", ""})


@dataclass(frozen=True, slots=True)
class LoadedPage:
    """A loaded page: its URL after redirects, the HTTP status, and the HTML as the browser has it now."""

    url: str
    status: int
    kind: str  # the Content-Type header
    html: str


class LivePage:
    """The pages of one browser. `refused` maps hosts to the reason they were refused; `files` may be uploaded."""

    def __init__(
        self,
        context: BrowserContext,
        downloads: Downloads,
        *,
        refused: Mapping[str, str],
        files: Sequence[UploadedFile] = (),
        max_text: int = 8000,
    ) -> None:
        self._tabs = Tabs(context, downloads)
        self._downloads = downloads
        self._refused = refused
        self._files = files
        self._max_text = max_text
        self._elements: list[ElementHandle] = []

    # -- reading --------------------------------------------------------------------------------------------------
    async def view(self) -> PageView:
        """Return the current page; one that does not respond is closed. Raises NodeFailure if the browser has ended."""
        for is_last in (False, True):
            page = await self._tabs.current()
            self._elements = []
            try:
                async with asyncio.timeout(VIEW_SECONDS):
                    return await self._view(page)
            except TimeoutError:
                break
            except Error:  # the page may be navigating
                if is_last:
                    break
        self._elements = []
        await self._tabs.close_unresponsive(page)
        return PageView(
            "about:blank", remarks=[*self._collect_remarks(), f"{page.url} did not respond and was closed."]
        )

    async def _view(self, page: Page) -> PageView:
        seen: list[PageElement] = []
        texts: list[str] = []
        above = below = 0.0
        text_left = self._max_text
        for frame in page.frames[:MAX_FRAMES]:
            found = await self._read(frame, MAX_ELEMENTS - len(seen), text_left)
            if found is None:
                continue
            seen += [PageElement.from_description(described) for described in found["described"]]
            texts.append(found["text"])
            text_left -= len(found["text"])
            if frame == page.main_frame:
                above, below = found["above"], found["below"]
        text = "\n\n".join(filter(None, texts))
        return PageView(page.url, await page.title(), seen, text, above, below, self._collect_remarks())

    async def _read(self, frame: Frame, most_elements: int, most_text: int) -> dict[str, Any] | None:
        """Run page.js in a frame and return its result; remember the elements for later actions."""
        try:
            found = await frame.evaluate_handle(_READ_FRAME, [max(0, most_elements), max(0, most_text)])
            read = await found.evaluate("(found) => found && { ...found, elements: null }")
            if read is None:
                return None
            handles = await (await found.get_property("elements")).get_properties()
        except Error:
            if frame == frame.page.main_frame:
                raise
            return None  # the frame was removed meanwhile
        self._elements += [element for handle in handles.values() if (element := handle.as_element()) is not None]
        return read

    def _collect_remarks(self) -> list[str]:
        remarks = self._tabs.drain_remarks()
        if self._tabs.count > 1:
            remarks.append(f"Open tabs: {self._tabs.count}. This is the newest; back can close it.")
        if self._downloads.names:
            remarks.append(f"Files downloaded so far: {', '.join(self._downloads.names)}")
        return remarks

    async def read(self, url: str, max_chars: int) -> LoadedPage:
        """Load a URL and return the page once its scripts are quiet. Raises ActionFailed."""
        page = await self._tabs.current()
        self._tabs.failed_url = ""
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                response = await self._goto(parse_web_address(url), page)
                await self._tabs.wait_until_loaded()
                page = await self._tabs.current()
                html = await page.evaluate(_READ_HTML, max_chars)
        except Error as error:
            raise ActionFailed(self._refusal(page.url) or reason_of(error)) from error
        except TimeoutError as error:
            raise ActionFailed(f"it took more than {ACTION_SECONDS:g} seconds") from error
        if refusal := self._refusal(page.url):
            raise ActionFailed(refusal)
        kind = response.headers.get("content-type", "") if response is not None else ""
        return LoadedPage(page.url, response.status if response is not None else 0, kind, html)

    # -- acting ---------------------------------------------------------------------------------------------------
    async def act(self, action: actions.PageAction) -> str:
        """Carry out an action and return its result as text. Raises ActionFailed."""
        page = await self._tabs.current()
        self._tabs.failed_url = ""
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                result = await self._perform(action, page)
                await self._tabs.wait_until_loaded()
        except Error as error:
            raise ActionFailed(self._refusal(page.url) or reason_of(error)) from error
        except TimeoutError as error:
            raise ActionFailed(f"it took more than {ACTION_SECONDS:g} seconds") from error
        page = await self._tabs.current()
        if urlsplit(page.url).scheme not in _SCHEMES:
            await page.goto("about:blank")
            raise ActionFailed("only pages of the web may be shown")
        if refusal := self._refusal(page.url):
            raise ActionFailed(refusal)
        return result

    async def _perform(self, action: actions.PageAction, page: Page) -> str:
        match action:
            case actions.GotoAction():
                return await self._go(action.url, page)
            case actions.ClickAction():
                await self._element(action.index).click(timeout=CLICK_SECONDS * 1000)
            case actions.TypeAction():
                await self._type(action, page)
            case actions.SelectAction():
                await self._element(action.index).select_option(action.option, timeout=CLICK_SECONDS * 1000)
            case actions.ScrollAction():
                await page.evaluate(_SCROLL, action.direction)
            case actions.BackAction():
                return await self._go_back(page)
            case actions.WaitAction():
                await asyncio.sleep(action.seconds)
            case actions.UploadAction():
                return await self._upload(action, page)
            case actions.DownloadAction():
                return await self._download(action, page)
        return ""

    async def _go(self, url: str, page: Page) -> str:
        before = len(self._downloads.names)
        try:
            response = await self._goto(parse_web_address(url), page)
        except Error as error:
            if _is_download(error) and await self._downloads.wait_for_more_than(before):
                return "it is a file, which was downloaded"
            raise
        return f"HTTP {response.status}" if response is not None and response.status >= 400 else ""

    async def _goto(self, address: str, page: Page) -> Response | None:
        try:
            return await page.goto(address, wait_until="domcontentloaded", timeout=GOTO_SECONDS * 1000)
        except Error as error:
            if "interrupted by another navigation" not in error.message:
                raise
        await page.wait_for_load_state("domcontentloaded")  # an earlier navigation ends: an error page, a redirect
        return await page.goto(address, wait_until="domcontentloaded", timeout=GOTO_SECONDS * 1000)

    async def _go_back(self, page: Page) -> str:
        before = page.url
        response = await page.go_back(wait_until="domcontentloaded", timeout=GOTO_SECONDS * 1000)
        if response is not None or page.url != before:
            return ""
        if self._tabs.count < 2:
            raise ActionFailed("the tab has no earlier page")
        await page.close()
        return "the tab was closed"

    async def _type(self, action: actions.TypeAction, page: Page) -> None:
        element = self._element(action.index)
        try:
            await element.fill(action.text, timeout=CLICK_SECONDS * 1000)
        except Error as error:
            if "not an <input>" not in error.message:
                raise
            await element.click(timeout=CLICK_SECONDS * 1000)  # an editable element that is not an <input>
            await page.keyboard.type(action.text)
        if action.submit:
            await element.press("Enter", timeout=CLICK_SECONDS * 1000)

    async def _upload(self, action: actions.UploadAction, page: Page) -> str:
        name = action.file.strip()
        file = next((file for file in self._files if name in (file.id, file.name)), None)
        if file is None:
            names = ", ".join(file.name for file in self._files) or "none"
            raise ActionFailed(f"there is no such file to upload; there are: {names}")
        element = self._element(action.index)
        if await element.evaluate(_IS_FILE_FIELD):
            await element.set_input_files(file.path, timeout=CLICK_SECONDS * 1000)
        else:
            async with page.expect_file_chooser(timeout=CLICK_SECONDS * 1000) as choosing:
                await element.click(timeout=CLICK_SECONDS * 1000)
            await (await choosing.value).set_files(file.path)
        return f"{file.name} was chosen"

    async def _download(self, action: actions.DownloadAction, page: Page) -> str:
        before = len(self._downloads.names)
        if action.index is not None:
            await self._element(action.index).click(timeout=CLICK_SECONDS * 1000)
        else:
            tab = await self._tabs.open_tab()
            try:
                await self._fetch(parse_web_address(action.url), tab, before)
            finally:
                await tab.close()
        if not await self._downloads.wait_for_more_than(before):
            raise ActionFailed("nothing was downloaded")
        return f"{self._downloads.names[-1]} was downloaded"

    async def _fetch(self, url: str, tab: Page, before: int) -> None:
        """Download a URL in its own tab. A file that the browser displays instead is saved from the response."""
        try:
            response = await tab.goto(url, wait_until="load", timeout=GOTO_SECONDS * 1000)
        except Error as error:
            if not _is_download(error) or not await self._downloads.wait_for_more_than(before):
                raise
            await self._downloads.wait_for_all()
            return
        if response is None or not response.ok:
            raise ActionFailed(f"HTTP {response.status if response is not None else 'without an answer'}")
        await self._downloads.save_response(response.url, response.headers, await response.body())

    def _element(self, index: int) -> ElementHandle:
        if not 1 <= index <= len(self._elements):
            raise ActionFailed(f"there is no element {index}; the page has 1 to {len(self._elements)}")
        return self._elements[index - 1]

    def _refusal(self, url: str) -> str:
        """Return why the URL, or the last page that failed to load, may not be reached; "" if it may."""
        for address in filter(None, (self._tabs.failed_url, url)):
            host = (urlsplit(address).hostname or "").lower()
            if host in self._refused:
                return f"{host} cannot be reached: {self._refused[host]}"
        return ""


def parse_web_address(url: str) -> str:
    """Return the URL, with https if it has no scheme. Raises ActionFailed unless it is http or https."""
    url = url.strip()
    address = url if "://" in url else f"https://{url}"
    try:
        split = urlsplit(address)
    except ValueError as error:
        raise ActionFailed(f"{url!r} is not a valid address") from error
    if split.scheme.lower() not in ("http", "https") or not split.hostname:
        raise ActionFailed(f"{url!r} is not a web address; only http and https are allowed")
    return address


def _is_download(error: Error) -> bool:
    """Return whether a navigation failed because its target is a file."""
    return "Download is starting" in error.message or "net::ERR_ABORTED" in error.message
