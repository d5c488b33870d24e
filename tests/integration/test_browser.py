"""The component Browser with a real Chromium, on pages of a server on this machine."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from canvas.errors import NodeFailure
from canvas.outcome import Failed, Finished
from components.browsing.browser import browser
from components.browsing.session import BrowserOptions, open_browser
from components.tools.framework.tool_node import tool_component
from components.tools.web_search.crawler import CRAWLER
from providers.http.address_policy import Guard
from providers.interfaces import BrowserSettings, Services
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, Usage
from tests.fakes import FakeContext, FakeHttp, no_network, run

playwright = pytest.importorskip("playwright.async_api", reason="the extra `browser` is not installed")
chromium = pytest.importorskip("components.browsing.chromium")

pytestmark = pytest.mark.skipif(chromium.find_executable(None) is None, reason="there is no Chromium on this machine")

PATIENCE = 20.0  # seconds

FORM = """<!doctype html><title>Order</title>
<form action="/sent" method="post" enctype="multipart/form-data">
  <label>Name <input name="name" value="nobody"></label>
  <select name="size" aria-label="Size"><option value="s">Small</option><option value="l">Large</option></select>
  <label>Secret <input type="password" name="secret" value="hunter2"></label>
  <input type="file" name="paper" aria-label="Paper" style="display:none">
  <button>Send</button>
</form>
<p style="display:none">nobody reads this</p>
<p>Fill in <b>everything</b>.</p>
<a href="/report.csv" download>Report</a> <a href="/away">Elsewhere</a> <a href="/tab" target="_blank">New tab</a>
<script>
  const connection = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:PORT"}]});
  connection.createDataChannel("x");
  connection.createOffer().then((offer) => connection.setLocalDescription(offer));
  new WebTransport("https://127.0.0.1:PORT/").ready.catch(() => {});
</script>"""

TALL = "<title>Tab</title>" + "".join(f'<p style="height: 50px">line {at} of many</p>' for at in range(1, 60))


@dataclass
class Log:
    warnings: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append((event, fields))


Says = Callable[[str], list[dict[str, Any]]]  # the question -> actions


class Driver:
    """A model that knows what to do in each step, and keeps what it was shown."""

    def __init__(self, *steps: Says) -> None:
        self._steps = list(steps)
        self.questions: list[str] = []

    @property
    def spec(self) -> ModelSpec:
        return ModelSpec("m", "m", "Fake", None, context_tokens=32_000)

    async def complete(self, request: ChatRequest) -> Completion:
        question = request.messages[-1]["content"]
        self.questions.append(question)
        actions = self._steps[len(self.questions) - 1](question)
        return Completion(json.dumps({"thought": "on", "actions": actions}), usage=Usage(1, 1, 2, 1))


def number(question: str, name: str) -> int:
    """The number of an element, by its name."""
    found = re.search(rf'^\[(\d+)\] \w+ "{name}"', question, re.MULTILINE)
    assert found, question
    return int(found[1])


def settings(**changes: Any) -> BrowserSettings:
    return BrowserSettings(**{"guard": Guard(allowed=("127.0.0.1",)), **changes})


@dataclass
class Story:
    """What came of one run of the component."""

    outcome: Finished
    ctx: FakeContext
    model: Driver
    sent: dict[str, Any]
    around_the_proxy: bytes  # what came without it


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def story(server: HTTPServer) -> Story:
    """One browser does it all, for starting one takes seconds: form, file, download, refusal, new tab."""
    sent: dict[str, Any] = {}
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)
    form = FORM.replace("PORT", str(datagrams.getsockname()[1]))

    def take(request: Request) -> Response:
        sent.update(request.form.to_dict(), paper=request.files["paper"].read(), cookie=request.cookies.get("seen"))
        return Response("<title>Thanks</title><p>Order 4711 taken", mimetype="text/html")

    server.expect_request("/").respond_with_data(form, content_type="text/html", headers={"Set-Cookie": "seen=yes"})
    server.expect_request("/sent").respond_with_handler(take)
    server.expect_request("/report.csv").respond_with_data("a,b\n1,2\n", content_type="text/csv")
    server.expect_request("/shown.txt").respond_with_data("plain", content_type="text/plain")
    server.expect_request("/away").respond_with_data(status=302, headers={"Location": "http://localhost:8080/secret"})
    server.expect_request("/tab").respond_with_data(TALL, content_type="text/html")
    place = server.url_for("/")
    model = Driver(
        lambda _: [{"action": "goto", "url": place}],
        lambda seen: [
            {"action": "type", "index": number(seen, "Name"), "text": "Ann"},
            {"action": "select", "index": number(seen, "Size"), "option": "Large"},
            {"action": "upload", "index": number(seen, "Paper"), "file": "f1"},
            {"action": "download", "index": number(seen, "Report")},
            {"action": "click", "index": number(seen, "Send")},
        ],
        lambda _: [{"action": "extract", "text": "order 4711"}, {"action": "back"}],
        lambda seen: [{"action": "click", "index": number(seen, "Elsewhere")}],
        lambda _: [{"action": "goto", "url": "file:///etc/passwd"}],
        lambda _: [{"action": "goto", "url": "https://10.0.0.1/"}],
        lambda _: [{"action": "goto", "url": place}],
        lambda seen: [{"action": "click", "index": number(seen, "New tab")}],
        lambda _: [{"action": "scroll"}],
        lambda _: [{"action": "download", "url": server.url_for("/shown.txt")}, {"action": "back"}],
        lambda _: [{"action": "click", "index": 99}],
        lambda _: [{"action": "done", "result": {"order": 4711}}],
    )
    ctx = FakeContext(
        globals={"sys.query": "Order a large one"},
        models={"m": model},
        stored={"f1": b"%PDF-paper"},
        services=Services(FakeHttp(no_network), browser=settings()),
        log=Log(),
    )

    outcome = run(browser, {"llm_id": "m", "upload_sources": [{"id": "f1", "name": "paper.pdf"}]}, ctx)

    assert isinstance(outcome, Finished)
    with datagrams:
        try:
            around = datagrams.recv(1000)
        except BlockingIOError:
            around = b""
    return Story(outcome, ctx, model, sent, around)


def test_a_model_fills_in_a_form_and_sends_it(story: Story):
    assert story.sent == {
        "name": "Ann", "size": "l", "secret": "hunter2", "paper": b"%PDF-paper", "cookie": "yes",
    }  # fmt: skip
    assert story.outcome.outputs["content"] == '{"order": 4711}'
    assert story.ctx.usage.calls == 12


def test_a_page_is_shown_as_a_list_of_elements_and_the_text_that_can_be_seen(story: Story):
    shown = story.model.questions[1]

    assert "Title: Order" in shown
    assert 'textbox "Name" value="nobody"' in shown
    assert 'list "Size" value="Small" options: Small | Large' in shown
    assert 'file "Paper"' in shown
    assert "Fill in everything." in shown
    assert "nobody reads this" not in shown
    assert "hunter2" not in shown


def test_the_files_of_the_task_and_notes_are_shown_in_every_step(story: Story):
    assert all("file id: f1, name: paper.pdf" in question for question in story.model.questions)
    assert "order 4711" in story.model.questions[3]
    assert "order 4711" in story.model.questions[-1]


def test_what_was_downloaded_is_stored_under_its_name(story: Story):
    files = story.outcome.outputs["downloaded_files"]

    assert [(file["name"], file["size"], file["parent_id"]) for file in files] == [
        ("report.csv", 8, ""),
        ("shown.txt", 5, ""),
    ]
    assert [story.ctx.saved[file["file_id"]][1] for file in files] == [b"a,b\n1,2\n", b"plain"]


def test_a_redirect_to_a_forbidden_host_is_refused_and_the_model_reads_why(story: Story):
    after = story.model.questions[4]

    assert "FAILED: localhost cannot be reached: URL leads to 'localhost', which is not allowed." in after


def test_addresses_of_files_and_private_networks_are_refused(story: Story):
    assert "only http and https are allowed" in story.model.questions[5]
    assert "resolves to a non-public address (10.0.0.1)" in story.model.questions[6]


def test_nothing_leaves_the_browser_around_the_proxy(story: Story):
    assert story.around_the_proxy == b""


def test_a_new_tab_is_what_the_model_sees_next(story: Story):
    after = story.model.questions[8]

    assert "Title: Tab" in after
    assert "Open tabs: 2" in after
    assert "Title: Order" in story.model.questions[10]


def test_scrolling_shows_what_is_further_down_and_no_longer_what_is_above(story: Story):
    before, after = story.model.questions[8:10]

    assert "Screens above: 0.0" in before
    assert "line 1 of many" in before
    assert "Screens above: 0.8" in after
    assert "line 1 of many" not in after
    assert "line 40 of many" in after


def test_an_element_that_is_not_there_fails_the_step_and_not_the_node(story: Story):
    assert "FAILED: there is no element 99" in story.model.questions[11]


# -- how a browser begins and ends ------------------------------------------------------------------------------------


def processes_of(folder: Path) -> list[int]:
    """Processes that name a folder in their command line."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a short name: there will be sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="easel-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_browser_that_is_named_and_not_there_is_no_reason_to_take_another():
    with pytest.raises(NodeFailure, match="was not found"):
        chromium.find_executable("/nowhere/chromium")


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked up in /proc")


@needs_proc
def test_a_browser_is_gone_when_the_attempt_is_called_off_even_if_playwright_hangs(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chromium, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(chromium, "STOP_SECONDS", 0.2)
    seen: list[list[int]] = []

    async def called_off() -> None:
        is_open = asyncio.Event()

        async def work() -> None:
            async with open_browser(settings(), BrowserOptions(scratch=scratch), Log()):
                is_open.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        async with asyncio.timeout(PATIENCE):
            await is_open.wait()
        seen.append(processes_of(scratch))
        leader = int(os.readlink(scratch / "profile" / "SingletonLock").rpartition("-")[2])
        driver = parent_of(leader)
        os.kill(driver, signal.SIGSTOP)
        try:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not processes_of(scratch))
        finally:
            os.kill(driver, signal.SIGCONT)
        await until(lambda: not chromium.stopping_drivers)

    asyncio.run(called_off())

    assert seen[0]


@needs_proc
def test_a_browser_that_is_still_starting_is_gone_as_well(scratch: Path):
    async def called_off() -> None:
        async def work() -> None:
            async with open_browser(settings(), BrowserOptions(scratch=scratch), Log()):
                raise AssertionError("it should not have come to this")

        task = asyncio.create_task(work())
        await until(lambda: processes_of(scratch))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not processes_of(scratch))

    asyncio.run(called_off())


# -- the same browser under the Crawler ------------------------------------------------------------------------------
def crawled(server: HTTPServer, path: str, **params: Any) -> Finished | Failed:
    ctx = FakeContext(services=Services(FakeHttp(no_network), browser=settings()), log=Log())
    stored = {"query": path if "://" in path else server.url_for(path), "engine": "browser", **params}
    outcome = run(tool_component(CRAWLER), stored, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


def test_the_crawler_reads_what_a_pages_scripts_have_written(server: HTTPServer):
    page = "<h1>Old</h1><script>document.body.innerHTML = '<h2>New</h2><a href=/x>x</a>'</script>"
    server.expect_request("/script").respond_with_data(page, content_type="text/html")

    outcome = crawled(server, "/script")

    assert outcome == Finished(outputs={"formalized_content": f"## New\n\n[x]({server.url_for('/x')})"})


def test_the_crawlers_browser_is_kept_from_private_places_on_every_hop(server: HTTPServer):
    server.expect_request("/inside").respond_with_data(status=302, headers={"Location": "http://10.0.0.1/secret"})

    direct, redirected = crawled(server, "http://10.0.0.1/"), crawled(server, "/inside")

    assert isinstance(direct, Failed)
    assert isinstance(redirected, Failed)
    assert direct.error.startswith("URL not valid: URL resolves to a non-public address (10.0.0.1)")
    assert "non-public address (10.0.0.1)" in redirected.error


def test_a_page_that_is_not_there_is_an_error_for_the_crawlers_browser_too(server: HTTPServer):
    server.expect_request("/gone").respond_with_data("<p>gone", status=404, content_type="text/html")

    outcome = crawled(server, "/gone")

    assert isinstance(outcome, Failed)
    assert outcome.error == "An unexpected error occurred: HTTP 404"
