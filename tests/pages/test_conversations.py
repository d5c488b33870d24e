"""Conversations in a real browser."""

from uuid import uuid4

from tests.integration.api.talking import ECHO, Client, eventually
from tests.pages.axe_findings import axe_findings, width_of
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import HOSTILE_MARKDOWN

TURNS = 27  # 54 messages and the prologue: more than a page of 50


def talk(client: Client, agent: str, *queries: str, session_id: str = "") -> tuple[str, list[str]]:
    """Say something several times; return the ids of the conversation and of its runs."""
    runs: list[str] = []
    for query in queries:
        started = client.start(agent, query, on_busy="enqueue", **({"session_id": session_id} if session_id else {}))
        session_id = started["session_id"]
        runs.append(started["run_id"])
    client.wait_for(runs[-1], "succeeded")
    return session_id, runs


def numbers_of(reader: Reader) -> list[int]:
    """Return the numbers of the messages that are shown."""
    numbers = "messages => messages.map((message) => Number(message.dataset.number))"
    return reader.page.eval_on_selector_all("[data-testid=message]", numbers)


def names_of(reader: Reader) -> list[str]:
    return reader.page.locator("[data-testid=conversation-row] th").all_inner_texts()


def test_list_is_filtered_by_agent_and_name_and_the_address_keeps_it(signed_in: Reader, client: Client):
    first, second = client.agent(ECHO, "the first"), client.agent(ECHO, "the second")
    talk(client, first, "about apples")
    talk(client, second, "about pears")
    talk(client, second, "about apples too")
    signed_in.visit("/conversations")
    assert names_of(signed_in) == ["about apples too", "about pears", "about apples"]

    signed_in.page.get_by_role("searchbox").fill("apples")
    signed_in.page.get_by_role("searchbox").press("Enter")
    eventually(lambda: names_of(signed_in), lambda names: names == ["about apples too", "about apples"])
    signed_in.page.get_by_role("combobox", name="Agent").select_option("the first")
    eventually(lambda: names_of(signed_in), lambda names: names == ["about apples"])
    signed_in.page.reload()
    eventually(lambda: names_of(signed_in), lambda names: names == ["about apples"])

    signed_in.page.get_by_role("link", name="about apples").click()
    signed_in.page.locator("[data-testid=page][data-page=conversation]").wait_for()
    signed_in.page.go_back()
    signed_in.page.get_by_role("button", name="Clear filters").click()
    eventually(lambda: len(names_of(signed_in)), lambda count: count == 3)


def test_messages_are_read_in_both_directions_each_once(signed_in: Reader, client: Client):
    session, _ = talk(client, client.agent(ECHO), *(f"turn {number}" for number in range(TURNS)))
    last = client.http.get(f"/api/v1/viewer/conversations/{session}?limit=1").json()["messages"][0]["number"]

    signed_in.visit(f"/conversations/{session}")
    assert numbers_of(signed_in) == list(range(last - 49, last + 1))
    signed_in.page.get_by_role("button", name="Show earlier messages").click()
    eventually(lambda: numbers_of(signed_in), lambda numbers: len(numbers) == last and numbers == sorted(numbers))
    signed_in.page.get_by_text("The conversation begins here.").wait_for()

    signed_in.visit(f"/conversations/{session}?before=5")
    assert numbers_of(signed_in)[-1] == 4
    signed_in.page.get_by_role("button", name="Show later messages").click()
    eventually(lambda: numbers_of(signed_in)[-1], lambda number: number == last or number == 54)
    assert numbers_of(signed_in) == sorted(set(numbers_of(signed_in)))


def test_message_is_markdown_without_html_and_leads_to_its_run(signed_in: Reader, client: Client):
    session, runs = talk(client, client.agent(ECHO), HOSTILE_MARKDOWN)
    signed_in.visit(f"/conversations/{session}")
    answer = signed_in.page.get_by_test_id("message").last

    assert answer.get_by_role("table").count() == 1
    assert "<b onclick=" in answer.inner_text()
    assert answer.locator("img, b, script").count() == 0
    answer.get_by_role("link", name="Open the run").click()

    signed_in.page.locator(f'[data-testid=run-header][data-run-id="{runs[0]}"]').wait_for()
    assert "step=" in signed_in.page.url


def test_new_message_appears_by_itself(signed_in: Reader, client: Client):
    agent = client.agent(ECHO)
    session, _ = talk(client, agent, "the first")
    signed_in.visit(f"/conversations/{session}")
    before = len(numbers_of(signed_in))

    talk(client, agent, "the second", session_id=session)

    signed_in.page.get_by_text("You said: the second").wait_for()
    assert len(numbers_of(signed_in)) == before + 2
    signed_in.page.get_by_role("link", name="Runs of this conversation").click()
    eventually(lambda: signed_in.page.get_by_test_id("run-row").count(), lambda count: count == 2)


def test_unknown_conversation_has_a_sentence_and_the_empty_list_too(signed_in: Reader, deployment: Deployment):
    # T019, T132
    other = deployment.server.client()
    session, _ = talk(other, other.agent(ECHO), "a secret")

    for unknown in (uuid4().hex, session, "nonsense"):
        signed_in.visit(f"/conversations/{unknown}")
        assert "There is no conversation" in signed_in.page.inner_text("main")
        assert "secret" not in signed_in.page.content()
    signed_in.page.get_by_role("link", name="All conversations").click()

    signed_in.page.get_by_text("There is no conversation yet.").wait_for()
    signed_in.allow_refusals()


def test_axe_finds_nothing_on_conversations(reader_of: ReaderOf, deployment: Deployment, client: Client):
    session, _ = talk(client, client.agent(ECHO, "an agent"), "# hello", "again")
    reader = reader_of(deployment.server)
    reader.sign_in(client)
    for address in ("/conversations", "/conversations?q=nothing", f"/conversations/{session}"):
        reader.visit(address)
        assert axe_findings(reader.page) == [], address
        reader.page.set_viewport_size({"width": 360, "height": 800})
        eventually(lambda: width_of(reader.page), lambda width: width <= 360)
        reader.page.set_viewport_size({"width": 1440, "height": 900})
