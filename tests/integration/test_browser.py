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
from components.browsing.session import BrowserOptions, open_browser
from components.nodes.agent.browser import browser
from components.tools.framework.tool_node import tool_component
from components.tools.web_search.crawler import CRAWLER
from providers.address_policy import Guard
from providers.interfaces import BrowserSettings, Services
from providers.models.types.chat import ChatRequest, Completion, ModelSpec, Usage
from tests.fakes import FakeContext, FakeHttp, no_network, run

playwright = pytest.importorskip("playwright.async_api", reason="the extra `browser` is not installed")
chromium = pytest.importorskip("components.browsing.chromium")

pytestmark = pytest.mark.skipif(chromium.find_executable(None) is None, reason="there is no Chromium on this machine")

DEADLINE_S = 20.0  # seconds

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


NextActions = Callable[[str], list[dict[str, Any]]]  # the question -> actions


class ScriptedModel:
    """A model with scripted actions for each step, which records its prompts."""

    def __init__(self, *steps: NextActions) -> None:
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
    """Return the number of an element, by its name."""
    found = re.search(rf'^\[(\d+)\] \w+ "{name}"', question, re.MULTILINE)
    assert found, question
    return int(found[1])


def settings(**changes: Any) -> BrowserSettings:
    return BrowserSettings(**{"guard": Guard(allowed=("127.0.0.1",)), **changes})


@dataclass
class BrowserRun:
    """The result of one run of the component."""

    outcome: Finished
    ctx: FakeContext
    model: ScriptedModel
    form_values: dict[str, Any]
    past_the_proxy: bytes  # traffic that did not use the proxy


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def browser_run(server: HTTPServer) -> BrowserRun:
    """Run one browser through all steps, because its start takes seconds: form, file, download, refusal, new tab."""
    form_values: dict[str, Any] = {}
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)
    form = FORM.replace("PORT", str(datagrams.getsockname()[1]))

    def accept_form(request: Request) -> Response:
        form_values.update(
            request.form.to_dict(), paper=request.files["paper"].read(), cookie=request.cookies.get("seen")
        )
        return Response("<title>Thanks</title><p>Order 4711 taken", mimetype="text/html")

    server.expect_request("/").respond_with_data(form, content_type="text/html", headers={"Set-Cookie": "seen=yes"})
    server.expect_request("/sent").respond_with_handler(accept_form)
    server.expect_request("/report.csv").respond_with_data("a,b\n1,2\n", content_type="text/csv")
    server.expect_request("/shown.txt").respond_with_data("plain", content_type="text/plain")
    server.expect_request("/away").respond_with_data(status=302, headers={"Location": "http://localhost:8080/secret"})
    server.expect_request("/tab").respond_with_data(TALL, content_type="text/html")
    home_url = server.url_for("/")
    model = ScriptedModel(
        lambda _: [{"action": "goto", "url": home_url}],
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
        lambda _: [{"action": "goto", "url": home_url}],
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
            past_the_proxy = datagrams.recv(1000)
        except BlockingIOError:
            past_the_proxy = b""
    return BrowserRun(outcome, ctx, model, form_values, past_the_proxy)


def test_a_model_fills_in_a_form_and_sends_it(browser_run: BrowserRun):
    assert browser_run.form_values == {
        "name": "Ann", "size": "l", "secret": "hunter2", "paper": b"%PDF-paper", "cookie": "yes",
    }  # fmt: skip
    assert browser_run.outcome.outputs["content"] == '{"order": 4711}'
    assert browser_run.ctx.usage.calls == 12


def test_page_is_shown_as_a_list_of_elements_and_visible_text(browser_run: BrowserRun):
    prompt = browser_run.model.questions[1]

    assert "Title: Order" in prompt
    assert 'textbox "Name" value="nobody"' in prompt
    assert 'list "Size" value="Small" options: Small | Large' in prompt
    assert 'file "Paper"' in prompt
    assert "Fill in everything." in prompt
    assert "nobody reads this" not in prompt
    assert "hunter2" not in prompt


def test_the_files_of_the_task_and_notes_are_shown_in_every_step(browser_run: BrowserRun):
    assert all("file id: f1, name: paper.pdf" in question for question in browser_run.model.questions)
    assert "order 4711" in browser_run.model.questions[3]
    assert "order 4711" in browser_run.model.questions[-1]


def test_downloaded_file_is_stored_under_its_name(browser_run: BrowserRun):
    files = browser_run.outcome.outputs["downloaded_files"]

    assert [(file["name"], file["size"], file["parent_id"]) for file in files] == [
        ("report.csv", 8, ""),
        ("shown.txt", 5, ""),
    ]
    assert [browser_run.ctx.saved[file["file_id"]][1] for file in files] == [b"a,b\n1,2\n", b"plain"]


def test_a_redirect_to_a_forbidden_host_is_refused_and_the_model_reads_why(browser_run: BrowserRun):
    after = browser_run.model.questions[4]

    assert "FAILED: localhost cannot be reached: URL leads to 'localhost', which is not allowed." in after


def test_addresses_of_files_and_private_networks_are_refused(browser_run: BrowserRun):
    assert "only http and https are allowed" in browser_run.model.questions[5]
    assert "resolves to a non-public address (10.0.0.1)" in browser_run.model.questions[6]


def test_browser_sends_no_traffic_past_the_proxy(browser_run: BrowserRun):
    assert browser_run.past_the_proxy == b""


def test_new_tab_is_shown_in_the_next_step(browser_run: BrowserRun):
    after = browser_run.model.questions[8]

    assert "Title: Tab" in after
    assert "Open tabs: 2" in after
    assert "Title: Order" in browser_run.model.questions[10]


def test_scrolling_shows_the_text_below_and_hides_the_text_above(browser_run: BrowserRun):
    before, after = browser_run.model.questions[8:10]

    assert "Screens above: 0.0" in before
    assert "line 1 of many" in before
    assert "Screens above: 0.8" in after
    assert "line 1 of many" not in after
    assert "line 40 of many" in after


def test_missing_element_fails_the_step_and_not_the_node(browser_run: BrowserRun):
    assert "FAILED: there is no element 99" in browser_run.model.questions[11]


# -- start and end of a browser ---------------------------------------------------------------------------------------


def processes_of(folder: Path) -> list[int]:
    """Return the processes that name a folder in their command line."""
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
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder with a short name, as it will contain sockets."""
    folder = Path(tempfile.mkdtemp(prefix="easel-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_missing_configured_browser_is_an_error_without_a_fallback():
    with pytest.raises(NodeFailure, match="was not found"):
        chromium.find_executable("/nowhere/chromium")


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the test reads /proc")


@needs_proc
def test_browser_exits_when_the_attempt_is_cancelled_even_if_playwright_hangs(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chromium, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(chromium, "STOP_SECONDS", 0.2)
    processes: list[list[int]] = []

    async def cancel_attempt() -> None:
        is_open = asyncio.Event()

        async def work() -> None:
            async with open_browser(settings(), BrowserOptions(scratch=scratch), Log()):
                is_open.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        async with asyncio.timeout(DEADLINE_S):
            await is_open.wait()
        processes.append(processes_of(scratch))
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

    asyncio.run(cancel_attempt())

    assert processes[0]


@needs_proc
def test_starting_browser_exits_when_the_attempt_is_cancelled(scratch: Path):
    async def cancel_attempt() -> None:
        async def work() -> None:
            async with open_browser(settings(), BrowserOptions(scratch=scratch), Log()):
                raise AssertionError("the browser has started")

        task = asyncio.create_task(work())
        await until(lambda: processes_of(scratch))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not processes_of(scratch))

    asyncio.run(cancel_attempt())


# -- the same browser under the Crawler ------------------------------------------------------------------------------
def crawl(server: HTTPServer, path: str, **params: Any) -> Finished | Failed:
    ctx = FakeContext(services=Services(FakeHttp(no_network), browser=settings()), log=Log())
    stored = {"query": path if "://" in path else server.url_for(path), "engine": "browser", **params}
    outcome = run(tool_component(CRAWLER), stored, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


def test_crawler_reads_the_text_written_by_scripts_of_a_page(server: HTTPServer):
    page = "<h1>Old</h1><script>document.body.innerHTML = '<h2>New</h2><a href=/x>x</a>'</script>"
    server.expect_request("/script").respond_with_data(page, content_type="text/html")

    outcome = crawl(server, "/script")

    assert outcome == Finished(outputs={"formalized_content": f"## New\n\n[x]({server.url_for('/x')})"})


def test_crawler_refuses_private_addresses_directly_and_after_a_redirect(server: HTTPServer):
    server.expect_request("/inside").respond_with_data(status=302, headers={"Location": "http://10.0.0.1/secret"})

    direct, redirected = crawl(server, "http://10.0.0.1/"), crawl(server, "/inside")

    assert isinstance(direct, Failed)
    assert isinstance(redirected, Failed)
    assert direct.error.startswith("URL not valid: URL resolves to a non-public address (10.0.0.1)")
    assert "non-public address (10.0.0.1)" in redirected.error


def test_missing_page_is_an_error_for_the_crawler(server: HTTPServer):
    server.expect_request("/gone").respond_with_data("<p>gone", status=404, content_type="text/html")

    outcome = crawl(server, "/gone")

    assert isinstance(outcome, Failed)
    assert outcome.error == "An unexpected error occurred: HTTP 404"
