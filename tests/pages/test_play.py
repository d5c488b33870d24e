"""The playground: an agent tried in a chat, in a real browser, with the run of a turn beside it."""

import base64
import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canvas.ids import TenantId
from store.tenants import tenants
from tests.integration.api.talking import ECHO, Client, canvas, eventually, message
from tests.integration.worker.scripted_vendor import calls
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import MODEL, CitedAnswer, PacedAnswer, agent_canvas
from tests.pages.speech import add_speech, wave_file
from tests.pages.waiting import expect

ASKS_FOR_FORM = {
    "conditions": [
        {
            "logical_operator": "and",
            "items": [{"cpn_id": "sys.query", "operator": "contains", "value": "form"}],
            "to": ["UserFillUp:Who"],
        }
    ],
    "end_cpn_ids": ["LLM:Writer"],
}
TALKER = canvas(
    ("begin", "Begin", {"prologue": "Hello, **I** listen."}, ["Switch:Way"]),
    ("Switch:Way", "Switch", ASKS_FOR_FORM, ["UserFillUp:Who", "LLM:Writer"]),
    (
        "UserFillUp:Who",
        "UserFillUp",
        {"enable_tips": True, "tips": "Who are you?", "inputs": {"name": {"type": "line", "name": "Name"}}},
        ["Message:Named"],
    ),
    ("Message:Named", "Message", message("Hello {UserFillUp:Who@name}"), []),
    ("LLM:Writer", "LLM", {"llm_id": MODEL, "prompts": [{"role": "user", "content": "{sys.query}"}]}, ["Message:0"]),
    ("Message:0", "Message", message("{LLM:Writer@content}"), []),
)
WITH_FORM = canvas(
    (
        "begin",
        "Begin",
        {
            "mode": "task",
            "inputs": {
                "topic": {"type": "line", "name": "Topic"},
                "note": {"type": "paragraph", "name": "Note", "optional": True},
            },
        },
        ["Message:0"],
    ),
    ("Message:0", "Message", message("About {begin@topic}."), []),
)


PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def say(deployment: Deployment) -> Callable[..., PacedAnswer]:
    """What makes the model's next answer: its parts, each sent when the test releases it."""

    def next_answer(*parts: str) -> PacedAnswer:
        paced = PacedAnswer(*parts)
        deployment.producer.vendor.script.append(paced)
        return paced

    deployment.producer.vendor.script.clear()
    return next_answer


def send(reader: Reader, text: str) -> None:
    """Write a message and send it with Enter."""
    box = reader.page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def turn(reader: Reader, text: str) -> Any:
    """Return the turn in which something was said."""
    return reader.page.get_by_test_id("turn").filter(has=reader.page.get_by_text(text, exact=True))


def wait_for_turn(reader: Reader, text: str, status: str) -> Any:
    """Wait until the run of a turn has a status; return the turn."""
    found = turn(reader, text)
    found.locator(f"xpath=self::*[@data-status='{status}']").wait_for()
    return found


def wait_for_run(reader: Reader, run_id: str, status: str) -> None:
    """Wait until a run is shown beside the chat, with a status."""
    reader.page.locator(f'[data-testid=run-header][data-run-id="{run_id}"][data-status="{status}"]').wait_for()


def runs_of(client: Client, agent: str) -> list[dict[str, Any]]:
    """Return the runs of an agent, the oldest first."""
    return client.http.get("/api/v1/runs", params={"agent_id": agent, "limit": 100}).json()["runs"][::-1]


def draft_of(client: Client, agent: str, dsl: dict[str, Any]) -> None:
    """Make a document the draft of an agent."""
    reply = client.http.put(f"/api/v1/viewer/agents/{agent}/draft", json=dsl, headers={"If-Match": "*"})
    assert reply.status_code == 200, reply.text


def test_three_turns_stream_ask_and_stop_and_the_graph_follows_them(
    signed_in: Reader, client: Client, say: Callable[..., PacedAnswer], tmp_path: Path
):  # T115
    agent = client.agent(TALKER, "a talker")
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/play")
    assert page.get_by_role("region", name="The agent begins").locator("strong").inner_text() == "I"

    answer = say("One ", "two.")
    send(signed_in, "first")
    answer.release()
    turn(signed_in, "first").get_by_text("One").wait_for()
    assert turn(signed_in, "first").get_by_text("two.").count() == 0
    answer.release()
    first = wait_for_turn(signed_in, "first", "succeeded")
    first.get_by_text("One two.").wait_for()
    first.get_by_text("tokens").wait_for()
    first_id = first.get_attribute("data-run-id")
    wait_for_run(signed_in, first_id, "succeeded")
    assert "conversation=" in page.url

    send(signed_in, "the form")
    second = wait_for_turn(signed_in, "the form", "waiting")
    form = second.get_by_role("region", name="Open form")
    wait_for_run(signed_in, second.get_attribute("data-run-id"), "waiting")
    page.get_by_text("The run waits for an answer to its form.").wait_for()
    form.get_by_role("textbox", name="Name").fill("Ada")
    form.get_by_role("button", name="Send the answer").click()
    wait_for_turn(signed_in, "the form", "succeeded").get_by_text("Hello Ada").wait_for()

    file = tmp_path / "notes.txt"
    file.write_text("some notes")
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text("10 B").wait_for()
    say("Never ", "ending.").release()
    send(signed_in, "third")
    third = wait_for_turn(signed_in, "third", "running")
    third.get_by_text("Never").wait_for()
    third_id = third.get_attribute("data-run-id")
    assert [each["name"] for each in client.run(third_id)["request"]["files"]] == ["notes.txt"]
    page.get_by_role("button", name="Stop").click()
    wait_for_turn(signed_in, "third", "cancelled")
    wait_for_run(signed_in, third_id, "cancelled")

    first.get_by_role("button", name="Show run").click()
    wait_for_run(signed_in, first_id, "succeeded")
    assert f"run={first_id}" in page.url
    page.reload()
    wait_for_run(signed_in, first_id, "succeeded")
    wait_for_turn(signed_in, "third", "cancelled")
    assert [run["status"] for run in runs_of(client, agent)] == ["succeeded", "succeeded", "cancelled"]


def test_message_while_a_turn_runs_is_queued_or_interrupts_it(
    signed_in: Reader, client: Client, say: Callable[..., PacedAnswer]
):  # T116
    agent = client.agent(TALKER)
    signed_in.visit(f"/agents/{agent}/play")
    running = say("Slow ", "words.")
    send(signed_in, "one")
    running.release()
    turn(signed_in, "one").get_by_text("Slow").wait_for()

    queued = say("Queued answer.")
    queued.release()
    send(signed_in, "two")
    wait_for_turn(signed_in, "two", "queued").get_by_text("Queued: it runs when").wait_for()
    assert turn(signed_in, "one").get_attribute("data-status") == "running"
    running.release()
    wait_for_turn(signed_in, "one", "succeeded")
    wait_for_turn(signed_in, "two", "succeeded").get_by_text("Queued answer.").wait_for()

    stopped = say("Stopped ", "words.")
    stopped.release()
    send(signed_in, "three")
    turn(signed_in, "three").get_by_text("Stopped").wait_for()
    last = say("Interrupting.")
    last.release()
    signed_in.page.get_by_role("textbox", name="Message").fill("four")
    signed_in.page.get_by_role("button", name="How to send").click()
    signed_in.page.get_by_role("menuitem", name="Send now").click()
    wait_for_turn(signed_in, "three", "cancelled")
    four = wait_for_turn(signed_in, "four", "succeeded")
    four.get_by_text("Interrupting.").wait_for()
    wait_for_run(signed_in, four.get_attribute("data-run-id"), "succeeded")
    stopped.release()


def test_queued_turn_can_be_removed_before_it_runs(signed_in: Reader, client: Client, say: Callable[..., PacedAnswer]):
    agent = client.agent(TALKER)
    signed_in.visit(f"/agents/{agent}/play")
    running = say("Slow ", "words.")
    send(signed_in, "one")
    running.release()
    turn(signed_in, "one").get_by_text("Slow").wait_for()
    send(signed_in, "two")

    wait_for_turn(signed_in, "two", "queued").get_by_role("button", name="Remove from the queue").click()

    wait_for_turn(signed_in, "two", "cancelled")
    running.release()
    wait_for_turn(signed_in, "one", "succeeded")


def test_draft_and_version_answer_differently_and_a_broken_draft_shows_why(signed_in: Reader, client: Client):  # T117
    agent = client.agent(ECHO)
    client.wait_for(client.start(agent, "the first version")["run_id"], "succeeded")
    changed = copy.deepcopy(ECHO)
    changed["components"]["Message:0"]["obj"]["params"] = message("The draft says: {sys.query}")
    draft_of(client, agent, changed)
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/play")

    send(signed_in, "hello")
    wait_for_turn(signed_in, "hello", "succeeded").get_by_text("The draft says: hello").wait_for()
    picker = page.get_by_role("combobox", name="Version")
    oldest = picker.locator("option").last
    assert "Version 1" in oldest.inner_text()
    picker.select_option(oldest.get_attribute("value"))
    send(signed_in, "and now")
    wait_for_turn(signed_in, "and now", "succeeded").get_by_text("You said: and now").wait_for()

    runs = len(runs_of(client, agent))
    draft_of(client, agent, {"components": {}, "graph": {"nodes": [], "edges": []}, "globals": {}, "path": []})
    signed_in.visit(f"/agents/{agent}/play")
    finding = page.get_by_test_id("finding").first
    finding.wait_for()
    assert page.get_by_text("This draft cannot run").first.is_visible()
    send(signed_in, "not sent")
    assert page.get_by_role("button", name="Send", exact=True).is_disabled()
    assert len(runs_of(client, agent)) == runs


def test_edited_message_begins_a_new_conversation_with_what_was_said_before(signed_in: Reader, client: Client):
    agent = client.agent(ECHO)
    started = client.start(agent, "before")
    client.wait_for(started["run_id"], "succeeded")
    again = client.start(agent, "wrong", session_id=started["session_id"])
    client.wait_for(again["run_id"], "succeeded")
    signed_in.visit(f"/agents/{agent}/play?conversation={started['session_id']}")
    wait_for_turn(signed_in, "wrong", "succeeded")

    turn(signed_in, "wrong").get_by_role("button", name="Edit and send again").click()
    signed_in.page.get_by_role("textbox", name="Edited message").fill("right")
    signed_in.page.get_by_role("button", name="Send in a new conversation").click()

    wait_for_turn(signed_in, "right", "succeeded").get_by_text("You said: right").wait_for()
    assert started["session_id"] not in signed_in.page.url
    assert turn(signed_in, "before").get_by_text("from the conversation before").is_visible()
    assert turn(signed_in, "wrong").count() == 0
    copied = runs_of(client, agent)[-1]
    assert (copied["origin"]["kind"], copied["origin"]["run_id"]) == ("rerun", again["run_id"])


def test_turn_shows_sources_files_pictures_and_audio_and_is_forked(
    signed_in: Reader, client: Client, deployment: Deployment, tmp_path: Path
):
    vendor = deployment.producer.vendor
    vendor.script[:] = [calls("prices"), CitedAnswer(vendor)]
    dsl = agent_canvas()
    agent = client.agent(dsl)
    sent, noise = upload(client, agent, "photo.png", PICTURE), upload(client, agent, "noise.wav", wave_file())
    picture = f"![chart](/api/v1/documents/artifact/{sent['id']}.png)"
    dsl["components"]["Message:Answer"]["obj"]["params"] |= {
        "content": [f"{{Agent:Analyst@content}}\n\n{picture}\n\nwww.example.com"],
        "output_format": "markdown",
    }
    draft_of(client, agent, dsl)
    started = client.start(agent, "What do widgets cost?", files=[sent])
    client.wait_for(started["run_id"], "succeeded")
    add_speech(deployment.server.database, started["run_id"], noise["id"])
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/play?conversation={started['session_id']}")
    asked = wait_for_turn(signed_in, "What do widgets cost?", "succeeded")

    expect(asked.get_by_role("img", name="photo.png")).to_have_js_property("naturalWidth", 1)
    for place in (asked, None):
        if place is None:
            signed_in.visit(f"/runs/{started['run_id']}?view=talk")
            expect(page.get_by_role("img", name="photo.png")).to_have_js_property("naturalWidth", 1)
            place = page.get_by_test_id("stream")
        place.get_by_role("button", name="Source 1: Prices").first.click()
        page.get_by_role("dialog", name="Source 1: Prices").get_by_text("Up 4% in May.").wait_for()
        page.keyboard.press("Escape")
        expect(place.get_by_role("img", name="chart")).to_have_js_property("naturalWidth", 1)
        expect(place.get_by_role("link", name="www.example.com")).to_have_count(0)
        place.get_by_role("button", name="Play the answer read aloud").click()
        expect(place.locator("audio[aria-label='the answer read aloud']")).to_have_js_property("duration", 0.1)
        with page.expect_download() as download:
            place.get_by_role("button", name=re.compile("Download .*markdown")).click()
        assert "They rose by 4%" in Path(download.value.path()).read_text()

    signed_in.visit(f"/agents/{agent}/play?conversation={started['session_id']}")
    turn(signed_in, "What do widgets cost?").get_by_role("button", name="Fork…").click()
    page.locator('[data-testid=fork-again][data-node-id="Message:Answer"]').wait_for()
    page.get_by_role("button", name="Start the fork").click()
    page.locator(f'[data-testid=origin][data-run-id="{started["run_id"]}"]').wait_for()


def upload(client: Client, agent: str, name: str, data: bytes) -> dict[str, Any]:
    """Upload a file for an agent; return its descriptor."""
    reply = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": (name, data)}).json()
    return reply["data"]


def test_form_of_begin_is_checked_sent_and_kept_for_the_next_turn(signed_in: Reader, client: Client):
    agent = client.agent(WITH_FORM)
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/play")

    page.get_by_role("button", name="Run", exact=True).click()
    topic = page.get_by_role("textbox", name="Topic")
    assert topic.get_attribute("aria-invalid") == "true"
    topic.fill("cats")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("About cats.").wait_for()
    page.locator('[data-testid=turn][data-status="succeeded"]').wait_for()
    page.get_by_role("textbox", name="Topic").fill("dogs")
    page.get_by_role("button", name="Run", exact=True).click()

    page.get_by_text("About dogs.").wait_for()
    assert page.get_by_role("textbox", name="Topic").input_value() == "dogs"


def test_message_whose_answer_was_lost_is_kept_and_has_its_effect_once(signed_in: Reader, client: Client):  # T133
    agent = client.agent(ECHO)
    page = signed_in.page
    signed_in.visit(f"/agents/{agent}/play")
    keys: list[str] = []

    def lose_the_answer(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.fetch()  # it is accepted, and nobody learns of it
            route.abort()
        else:
            route.continue_()

    page.route(f"**/agents/{agent}/runs", lose_the_answer)
    send(signed_in, "only once")
    page.get_by_role("alert").filter(has_text="Send again").wait_for()
    assert page.get_by_role("textbox", name="Message").input_value() == "only once"
    page.get_by_role("button", name="Send", exact=True).click()

    wait_for_turn(signed_in, "only once", "succeeded")
    assert page.get_by_role("textbox", name="Message").input_value() == ""
    assert len(set(keys)) == 1
    assert len(keys) == 2
    assert len(runs_of(client, agent)) == 1
    signed_in.allow_refusals()


def test_reader_of_kind_viewer_reads_the_chat_and_can_send_nothing(reader: Reader, deployment: Deployment):  # T018
    author = deployment.server.client()
    agent = author.agent(ECHO)
    started = author.start(agent, "hello")
    author.wait_for(started["run_id"], "succeeded")
    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, TenantId(author.tenant_id), "reader", "viewer")
    reader.sign_in(deployment.server.client_of(author.tenant_id, token))

    reader.visit(f"/agents/{agent}/play?conversation={started['session_id']}")

    wait_for_turn(reader, "hello", "succeeded")
    reader.page.get_by_text("This sign-in only reads").wait_for()
    reader.page.get_by_role("textbox", name="Message").fill("not sent")
    assert reader.page.get_by_role("button", name="Send", exact=True).is_disabled()
    assert reader.page.get_by_role("button", name="Edit and send again").count() == 0


def test_agent_or_conversation_that_does_not_exist_is_said_so(
    signed_in: Reader, client: Client, deployment: Deployment
):  # T019, T132
    other = deployment.server.client()
    foreign = other.agent(ECHO, "title of another tenant")
    signed_in.visit(f"/agents/{foreign}/play")
    assert "There is no such agent" in signed_in.page.inner_text("main")
    assert "another tenant" not in signed_in.page.content()

    mine, second = client.agent(ECHO, "one"), client.agent(ECHO, "two")
    started = client.start(second, "hello")
    client.wait_for(started["run_id"], "succeeded")
    for conversation in ("0" * 32, started["session_id"]):
        signed_in.visit(f"/agents/{mine}/play?conversation={conversation}")
        signed_in.page.get_by_text("There is no such conversation of this agent.").wait_for()
    signed_in.page.get_by_role("alert").get_by_role("button", name="New conversation").click()
    send(signed_in, "hi")
    wait_for_turn(signed_in, "hi", "succeeded")
    signed_in.allow_refusals()


def test_narrow_screen_shows_the_chat_first_and_the_run_in_a_sheet(
    reader_of: ReaderOf, deployment: Deployment, client: Client
):
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    client.wait_for(started["run_id"], "succeeded")
    reader = reader_of(deployment.server, width=400)
    reader.sign_in(client)
    reader.visit(f"/agents/{agent}/play?conversation={started['session_id']}")
    wait_for_turn(reader, "hello", "succeeded")
    assert reader.page.get_by_test_id("run-header").count() == 0

    reader.page.get_by_role("button", name="Show the run").click()
    wait_for_run(reader, started["run_id"], "succeeded")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 400
    reader.page.keyboard.press("Escape")

    reader.page.get_by_test_id("run-header").wait_for(state="detached")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 400
    eventually(lambda: reader.page.url, lambda url: "run=" not in url)


def test_axe_finds_nothing_in_the_playground(
    reader_of: ReaderOf, deployment: Deployment, client: Client, say: Callable[..., PacedAnswer]
):
    agent, filled = client.agent(TALKER), client.agent(WITH_FORM, "with a form")
    started = client.start(agent, "the form")
    client.wait_for(started["run_id"], "waiting")
    reader = reader_of(deployment.server)
    reader.sign_in(client)

    for address in (f"/agents/{agent}/play?conversation={started['session_id']}", f"/agents/{filled}/play"):
        reader.visit(address)
        reader.page.get_by_role("textbox").last.wait_for()
        if "conversation" in address:
            reader.page.get_by_role("region", name="Open form").first.wait_for()
        assert axe_findings(reader.page) == [], address
