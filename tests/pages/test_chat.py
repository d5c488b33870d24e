"""The chat of a share link: in a browser of its own, and in a frame of another site."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from canvas.ids import TenantId
from store.tenants import tenants
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import BROKEN, ECHO, Client, canvas, eventually, message
from tests.integration.worker.scripted_vendor import calls
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM, HOSTILE, HOSTILE_MARKDOWN, SLOW, CitedAnswer, PacedAnswer, agent_canvas
from tests.pages.speech import add_speech, wave_file
from tests.pages.waiting import expect

RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
TASK = canvas(
    (
        "begin",
        "Begin",
        {
            "mode": "task",
            "prologue": "I greet people.",
            "inputs": {
                "name": {"type": "line", "name": "Name"},
                "word": {"type": "password", "name": "Secret word"},
            },
        },
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {begin@name}, psst"), []),
)
INPUTS = canvas(
    ("begin", "Begin", {"inputs": {"city": {"type": "line", "name": "City"}}}, ["Message:0"]),
    ("Message:0", "Message", message("{begin@city}: {sys.query}"), []),
)
FILES = canvas(
    ("begin", "Begin", {}, ["Message:0"]),
    ("Message:0", "Message", {"content": ["Read {sys.files}"], "output_format": "markdown"}, []),
)


@dataclass(frozen=True)
class Chat:
    """The chat of a share link."""

    client: Client
    agent: str
    token: str

    @property
    def address(self) -> str:
        return f"/chat/{self.agent}#{self.token}"


ChatOf = Callable[..., Chat]


@pytest.fixture
def chat_of(deployment: Deployment, client: Client) -> ChatOf:
    """What publishes an agent and makes a share link of it."""

    def publish(dsl: Any, title: str = "helper") -> Chat:
        agent = client.agent(dsl, title)
        assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
        guest = deployment.server.guest(client, agent)
        guest.http.close()
        return Chat(client, agent, guest.token)

    return publish


def field(page: Any) -> Any:
    return page.get_by_role("textbox", name="Message")


def say(page: Any, text: str) -> None:
    field(page).fill(text)
    field(page).press("Enter")


def turn(page: Any, status: str) -> Any:
    """Wait until the last turn has a status; return it."""
    last = page.get_by_test_id("chat-turn").last
    page.locator(f'[data-testid=chat-turn][data-status="{status}"]').last.wait_for()
    eventually(lambda: last.get_attribute("data-status"), lambda found: found == status)
    return last


def revoke_links(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, TenantId(client.tenant_id)):
            if token.kind == "beta":
                tenants.revoke_token(tx, TenantId(client.tenant_id), token.id)


def test_message_is_answered_and_the_conversation_survives_a_reload(reader: Reader, chat_of: ChatOf):
    chat = chat_of(ECHO)
    headers: list[dict[str, str]] = []
    reader.page.on("request", lambda request: headers.append(request.headers) if "/api/" in request.url else None)
    reader.visit(chat.address)
    page = reader.page
    page.get_by_text("Hello, I repeat.").wait_for()

    field(page).fill("first line")
    field(page).press("Shift+Enter")
    page.keyboard.type("second line")
    field(page).press("Enter")
    answer = turn(page, "done").get_by_test_id("chat-answer")
    assert answer.inner_text().split() == ["You", "said:", "first", "line", "second", "line"]
    assert "first line\nsecond line" in page.get_by_role("region", name="You").inner_text()
    say(page, "again")
    turn(page, "done").get_by_text("You said: again").wait_for()

    page.reload()
    page.get_by_text("You said: again").wait_for()
    assert page.get_by_test_id("chat-turn").count() == 2
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert chat.token not in stored
    assert all("cookie" not in each and "x-easel-viewer" not in each for each in headers)
    assert {each["authorization"] for each in headers} == {f"Bearer {chat.token}"}
    page.get_by_role("button", name="New conversation").click()
    assert page.get_by_test_id("chat-turn").count() == 0
    say(page, "fresh")
    turn(page, "done").get_by_text("You said: fresh").wait_for()
    runs = chat.client.http.get("/api/v1/runs").json()["runs"]
    assert len({run["session_id"] for run in runs}) == 2


def test_answer_that_was_read_aloud_is_played(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    chat = chat_of(ECHO)
    reader.visit(chat.address)
    say(reader.page, "hello")
    turn(reader.page, "done").get_by_text("You said: hello").wait_for()
    (run,) = chat.client.http.get("/api/v1/runs").json()["runs"]
    with httpx2.Client(base_url=reader.url, headers={"Authorization": f"Bearer {chat.token}"}, timeout=20) as guest:
        sent = guest.post(f"/api/v1/agents/{chat.agent}/upload", files={"file": ("noise.wav", wave_file())})
    add_speech(deployment.server.database, run["id"], sent.json()["data"]["id"])

    reader.page.reload()
    reader.page.get_by_role("button", name="Play the answer read aloud").click()

    audio = reader.page.locator("audio[aria-label='the answer read aloud']")
    expect(audio).to_have_js_property("duration", 0.1)


def test_text_streams_and_a_reload_in_the_middle_continues_it(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    paced = PacedAnswer("One ", "two \U0001f9e1 ", "three ", "four.")
    deployment.producer.vendor.script[:] = [paced]
    reader.visit(chat_of(SLOW).address)
    say(reader.page, "Write.")
    paced.release(2)
    answer = reader.page.get_by_test_id("chat-answer")
    answer.filter(has_text="One two \U0001f9e1").wait_for()

    reader.page.reload()
    answer.filter(has_text="One two \U0001f9e1").wait_for()
    paced.release(10)

    turn(reader.page, "done")
    assert answer.inner_text().strip() == "One two \U0001f9e1 three four."


def test_stream_that_breaks_is_continued_at_its_character(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    paced = PacedAnswer("One ", "two ", "three.")
    deployment.producer.vendor.script[:] = [paced]
    chat = chat_of(SLOW)
    tried: list[str] = []

    def break_off(route: Any) -> None:
        """Pass the request on, and give the page the beginning of its reply only."""
        paced.release(2)
        body = beginning_of_reply(reader.url, chat, route.request.post_data_json, "two")
        head, content = body
        route.fulfill(status=200, content_type="text/event-stream", headers=head, body=content)

    def note(route: Any) -> None:
        tried.append(route.request.url)
        if len(tried) == 1:
            route.abort()
        else:
            route.continue_()

    reader.page.route("**/completions", break_off)
    reader.page.route("**/events*", note)
    reader.visit(chat.address)
    say(reader.page, "Write.")
    reader.page.get_by_test_id("chat-answer").filter(has_text="One two").wait_for()
    paced.release(10)

    answer = turn(reader.page, "done").get_by_test_id("chat-answer")
    assert answer.inner_text().strip() == "One two three."
    assert len(tried) == 2
    assert "after=0" not in tried[1]
    reader.allow_refusals()


def beginning_of_reply(url: str, chat: Chat, body: Any, word: str) -> tuple[dict[str, str], str]:
    """Send a turn; return the ids and the events of its reply up to the one with a word."""
    lines: list[str] = []
    with httpx2.Client(base_url=url, timeout=20) as http:
        path = f"/api/v1/agentbots/{chat.agent}/completions"
        with http.stream("POST", path, json=body, headers={"Authorization": f"Bearer {chat.token}"}) as reply:
            head = {name: reply.headers[name] for name in ("x-run-id", "x-session-id")}
            for line in reply.iter_lines():
                lines.append(line)
                if not line and word in "".join(lines[-3:]):
                    break
    return head, "\n".join(lines) + "\n"


def begin_answer(reader: Reader, chat_of: ChatOf, deployment: Deployment) -> tuple[PacedAnswer, Chat]:
    """Ask in a chat; return the answer, of which one word is shown, and the chat."""
    paced = PacedAnswer("One ", "two.")
    deployment.producer.vendor.script[:] = [paced]
    chat = chat_of(SLOW)
    reader.visit(chat.address)
    say(reader.page, "Write.")
    paced.release()
    reader.page.get_by_test_id("chat-answer").filter(has_text="One").wait_for()
    return paced, chat


def test_stop_cancels_the_run(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    paced, chat = begin_answer(reader, chat_of, deployment)

    reader.page.get_by_role("button", name="Stop").click()

    stopped = turn(reader.page, "stopped")
    assert "One" in stopped.inner_text()
    assert "Stopped." in stopped.inner_text()
    (run,) = chat.client.http.get("/api/v1/runs").json()["runs"]
    chat.client.wait_for(run["id"], "cancelled")
    assert reader.page.get_by_role("button", name="Send").count() == 1
    paced.release(10)


def test_open_form_is_answered_in_the_chat_also_after_a_reload(reader: Reader, chat_of: ChatOf):
    reader.visit(chat_of(FORM).address)
    page = reader.page
    say(page, "hello")
    form = page.get_by_role("region", name="The assistant asks")
    form.get_by_text("Who are you?").wait_for()
    page.reload()
    form.get_by_role("button", name="Send", exact=True).click()
    name = form.get_by_role("textbox", name="Name")
    assert name.get_attribute("aria-invalid") == "true"
    assert page.get_by_placeholder("Fill in the form above first").count() == 1

    name.fill("Ada")
    form.get_by_role("button", name="Send", exact=True).click()

    answered = turn(page, "done")
    answered.get_by_text("Hello Ada").wait_for()
    assert "Name: Ada" in answered.get_by_role("region", name="You").inner_text()
    assert form.count() == 0


def test_inputs_of_begin_are_asked_first_and_sent_with_each_message(reader: Reader, chat_of: ChatOf):
    reader.visit(chat_of(INPUTS).address)
    page = reader.page
    form = page.get_by_role("region", name="Before you begin")
    form.get_by_role("textbox", name="City").fill("Oslo")
    form.get_by_role("button", name="Continue").click()

    for text in ("one", "two"):
        say(page, text)
        turn(page, "done").get_by_text(f"Oslo: {text}").wait_for()
    page.reload()
    page.get_by_text("Oslo: two").wait_for()
    say(page, "three")
    turn(page, "done").get_by_text("Oslo: three").wait_for()


def test_task_starts_with_its_form_and_keeps_no_password(reader: Reader, chat_of: ChatOf):
    reader.visit(chat_of(TASK).address)
    page = reader.page
    form = page.get_by_role("region", name="Before you begin")
    form.get_by_role("textbox", name="Name").fill("Ada")
    form.get_by_label("Secret word").fill("xyzzy")

    form.get_by_role("button", name="Start").click()

    turn(page, "done").get_by_text("Hello Ada, psst").wait_for()
    assert field(page).count() == 0
    assert "xyzzy" not in page.content() + page.evaluate("JSON.stringify({...sessionStorage})")


def test_files_are_sent_and_made_files_are_downloaded(reader: Reader, chat_of: ChatOf, tmp_path: Path):
    reader.visit(chat_of(FILES).address)
    page = reader.page
    paper = tmp_path / f"paper {HOSTILE.replace('/', ' ')[-12:]}.txt"
    paper.write_text("what the paper says")
    with page.expect_response("**/upload"):
        page.locator("input[type=file]").set_input_files(paper)
    page.get_by_role("list", name="Files of the message").get_by_text("19 B").wait_for()
    say(page, "Read it.")

    answered = turn(page, "done")
    answered.get_by_text("what the paper says").wait_for()
    with page.expect_download() as download:
        answered.get_by_role("button", name="Download").click()

    assert "what the paper says" in Path(download.value.path()).read_text()
    assert download.value.suggested_filename.endswith(".markdown")
    page.reload()
    page.get_by_role("button", name="Download").wait_for()


def test_citations_are_footnotes_that_open_their_source(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    vendor = deployment.producer.vendor
    vendor.script[:] = [calls("prices"), CitedAnswer(vendor)]
    reader.visit(chat_of(agent_canvas()).address)
    page = reader.page

    say(page, "What do widgets cost?")
    answered = turn(page, "done")
    mark = answered.get_by_role("button", name="Source 1: Prices")
    mark.click()

    source = page.get_by_role("dialog", name="Source 1: Prices")
    source.get_by_text("Up 4% in May.").wait_for()
    assert source.get_by_role("link").get_attribute("href") == "https://example.com/a"
    page.keyboard.press("Escape")
    assert "[ID:" not in answered.inner_text().replace("[ID:999]", "")
    page.reload()
    page.get_by_role("list").get_by_role("button", name="Prices").click()
    page.get_by_role("dialog").get_by_text("Up 4% in May.").wait_for()


def test_hostile_texts_stay_texts(reader: Reader, chat_of: ChatOf):
    # T100, T101
    dsl = canvas(
        ("begin", "Begin", {"prologue": HOSTILE_MARKDOWN}, ["UserFillUp:0"]),
        (
            "UserFillUp:0",
            "UserFillUp",
            {"enable_tips": True, "tips": HOSTILE_MARKDOWN, "inputs": {"n": {"type": "line", "name": HOSTILE}}},
            ["Message:0"],
        ),
        ("Message:0", "Message", message("{sys.query}"), []),
    )
    reader.visit(chat_of(dsl, f"title {HOSTILE}").address)
    page = reader.page
    say(page, HOSTILE_MARKDOWN)
    form = page.get_by_role("region", name="The assistant asks")
    form.get_by_role("textbox").fill(HOSTILE)
    form.get_by_role("button", name="Send", exact=True).click()
    turn(page, "done")

    assert page.locator("main img, main script, main b").count() == 0
    assert "\u202e" not in page.content()
    addresses = set(page.locator("main a").evaluate_all("all => all.map(each => each.href)"))
    assert addresses == {"https://example.com/page", "http://127.0.0.1:9/leak.png"}
    relations = set(page.locator("main a").evaluate_all("all => all.map(each => each.rel)"))
    assert relations == {"noopener noreferrer nofollow"}


def test_what_is_wrong_is_said_with_a_remedy(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    chat, broken = chat_of(ECHO, "first"), chat_of(BROKEN, "second")
    page = reader.page

    def alert(text: str) -> None:
        page.get_by_role("alert").filter(has_text=text).wait_for()

    reader.visit(f"/chat/{chat.agent}")
    alert("This address is not complete")
    page.goto("about:blank")
    reader.visit(f"/chat/{'0' * 32}#{chat.token}")
    alert("This assistant is gone")
    page.goto("about:blank")
    reader.visit(broken.address)
    say(page, "x")
    turn(page, "failed").get_by_text("The answer could not be finished.").wait_for()
    page.goto("about:blank")
    reader.visit(chat.address)
    limited = json.dumps({"code": 101, "message": "slow down", "data": None})
    page.route(
        "**/completions",
        lambda route: route.fulfill(
            status=429, content_type="application/json", headers={"Retry-After": "7"}, body=limited
        ),
    )
    say(page, "kept")
    alert("Try again in 7 s.")
    assert field(page).input_value() == "kept"
    assert page.get_by_test_id("chat-turn").count() == 0
    page.unroute("**/completions")
    page.route("**/completions", lambda route: route.abort())
    field(page).press("Enter")
    page.get_by_text("The server does not answer. Trying again").wait_for()
    page.unroute("**/completions")
    turn(page, "done").get_by_text("You said: kept").wait_for()
    revoke_links(deployment.server, chat.client)
    say(page, "x")
    alert("This link no longer works")
    assert field(page).count() == 0
    reader.allow_refusals()


def test_revoked_link_ends_an_answer_that_is_being_written(reader: Reader, chat_of: ChatOf, deployment: Deployment):
    paced, chat = begin_answer(reader, chat_of, deployment)

    revoke_links(deployment.server, chat.client)

    reader.page.get_by_role("alert").filter(has_text="This link no longer works").wait_for()
    paced.release(10)
    reader.allow_refusals()


# -- in frames of other sites -----------------------------------------------------------------------------------------
@pytest.fixture
def other_site() -> Iterator[Callable[[str], str]]:
    """What serves a page with a frame, on another origin; it returns the address of that page."""
    shown = {"frame": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            frame = f'<iframe src="{shown["frame"]}" width="320" height="560" title="chat"></iframe>'
            body = f"<!doctype html><title>shop</title><h1>Shop</h1>{frame}".encode()
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(frame: str) -> str:
        shown["frame"] = frame
        return f"http://localhost:{server.server_port}"

    yield serve
    server.shutdown()
    server.server_close()


def test_chat_works_in_a_frame_of_a_site_that_is_allowed(
    browser: Any, deployment: Deployment, chat_of: ChatOf, other_site: Callable[[str], str]
):
    chat = chat_of(ECHO)
    site = other_site("")
    with start_server(with_settings(deployment.server.config, embed_origins=site)) as server:
        other_site(f"{server.url}/chat/{chat.agent}?theme=dark#{chat.token}")
        context = browser.new_context(viewport={"width": 400, "height": 800}, color_scheme="light")
        page = context.new_page()
        problems: list[str] = []
        page.on(
            "console",
            lambda said: problems.append(said.text) if said.type == "error" and "favicon" not in said.text else None,
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(site)
        frame = page.frame_locator("iframe")
        say(frame, "from the frame")
        frame.get_by_test_id("chat-answer").get_by_text("You said: from the frame").wait_for()
        inner = next(each for each in page.frames if each.url.startswith(server.url))
        inner.evaluate("location.reload()")
        frame.get_by_role("button", name="Send").and_(frame.locator(":disabled")).wait_for()
        frame.get_by_test_id("chat-answer").get_by_text("You said: from the frame").wait_for()

        assert inner.evaluate("document.documentElement.dataset.theme") == "dark"
        assert inner.evaluate("document.documentElement.scrollWidth") == 320
        assert context.cookies() == []
        assert [each for each in problems if "404" not in each] == []
        context.close()


def test_chat_stays_empty_in_a_frame_of_a_site_that_is_not_allowed(
    browser: Any, deployment: Deployment, chat_of: ChatOf, other_site: Callable[[str], str]
):
    chat = chat_of(ECHO)
    context = browser.new_context()
    page = context.new_page()
    refusals: list[str] = []
    page.on("console", lambda said: refusals.append(said.text))

    page.goto(other_site(f"{deployment.server.url}{chat.address}"))

    eventually(lambda: " ".join(refusals), lambda found: "frame-ancestors" in found)
    assert page.frame_locator("iframe").get_by_test_id("page").count() == 0
    context.close()


def test_chat_below_a_path_asks_below_it(reader_of: ReaderOf, server_below_path: Server, chat_of: ChatOf):
    reader = reader_of(server_below_path, path="/easel")
    reader.visit(chat_of(ECHO).address)

    say(reader.page, "hi")

    turn(reader.page, "done").get_by_text("You said: hi").wait_for()
    assert all(urlsplit(url).path.startswith("/easel/") for url in reader.requested)


def test_axe_finds_nothing_in_the_chat(reader_of: ReaderOf, deployment: Deployment, chat_of: ChatOf):
    reader = reader_of(deployment.server, width=320)
    page = reader.page

    def check() -> None:
        assert axe_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 320

    reader.visit(chat_of(FORM, "with a form").address)
    say(page, "hello")
    turn(page, "waiting")
    check()
    reader.visit(chat_of(INPUTS, "with inputs").address)
    check()
    reader.visit("/chat/0")
    check()
