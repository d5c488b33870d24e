"""Sharing a run: the dialog of its owner, and what a visitor without an account sees of it."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.integration.api.talking import ECHO, Client, canvas, message
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM, HOSTILE, HOSTILE_MARKDOWN, SLOW, PacedAnswer

RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
FILE_FORM = canvas(
    ("begin", "Begin", {}, ["UserFillUp:0"]),
    (
        "UserFillUp:0",
        "UserFillUp",
        {
            "enable_tips": True,
            "tips": "Please send **the invoice**.",
            "inputs": {
                "paper": {"type": "file", "name": "Invoice"},
                "note": {"type": "paragraph", "name": "Remark", "optional": True},
                "paid": {"type": "boolean", "name": "Paid already"},
            },
        },
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Thank you for {UserFillUp:0@paper}"), []),
)


@pytest.fixture
def owner(deployment: Deployment) -> Iterator[Client]:
    """A client who may share runs."""
    client = deployment.server.client(kind="admin")
    yield client
    client.http.close()


def share(owner: Client, run_id: str, **fields: Any) -> dict[str, Any]:
    reply = owner.http.post(f"/api/v1/runs/{run_id}/shares", json=fields)
    assert reply.status_code == 201, reply.text
    return reply.json()


def finished_run(owner: Client, query: str = "hello", title: str = "shared agent") -> str:
    run_id = owner.start(owner.agent(ECHO, title), query)["run_id"]
    owner.wait_for(run_id, "succeeded")
    return run_id


def waiting_run(owner: Client, dsl: Any = FORM, title: str = "asking agent") -> str:
    run_id = owner.start(owner.agent(dsl, title), "hello")["run_id"]
    owner.wait_for(run_id, "waiting")
    return run_id


def heading(reader: Reader, text: str) -> None:
    reader.page.get_by_role("heading", name=text, level=1).wait_for()


def test_owner_makes_a_link_that_is_shown_once_and_revokes_it(
    reader_of: ReaderOf, deployment: Deployment, owner: Client
):
    # T104, T106
    run_id = finished_run(owner)
    reader = reader_of(deployment.server)
    reader.sign_in(owner)
    reader.visit(f"/runs/{run_id}")
    page = reader.page

    page.get_by_role("button", name="Share…").click()
    dialog = page.get_by_role("dialog", name="Share this run")
    dialog.get_by_text("There is none yet.").wait_for()
    dialog.get_by_label("The link ends after").select_option(label="1 day")
    dialog.get_by_role("checkbox", name="Costs").check()
    dialog.get_by_role("textbox", name="Note").fill(f"for Ada {HOSTILE}")
    dialog.get_by_role("button", name="Create the link").click()
    link = dialog.get_by_role("textbox", name="Link").input_value()
    row = dialog.get_by_role("listitem").filter(has_text="for Ada")
    row.wait_for()

    assert link.startswith(f"{reader.url}/s#")
    assert "hides costs" in row.inner_text()
    assert "never opened" in row.inner_text()
    assert "\u202e" not in row.inner_text()
    visitor = reader_of(deployment.server)
    visitor.visit(link.removeprefix(reader.url))
    visitor.page.get_by_test_id("run-header").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Share…").click()
    row.filter(has_text="opened 1 time").wait_for()
    assert dialog.get_by_role("textbox", name="Link").count() == 0
    row.get_by_role("button", name="Revoke the link").click()
    row.get_by_role("button", name="Revoke now").click()
    row.filter(has_text="revoked").wait_for()

    heading(visitor, "This share was revoked")
    assert "shared agent" not in visitor.page.content()
    visitor.allow_refusals()


def test_token_without_the_right_cannot_share_and_says_why(signed_in: Reader, client: Client):
    signed_in.visit(f"/runs/{finished_run(client)}")

    button = signed_in.page.get_by_role("button", name="Share…")

    assert button.is_disabled()
    assert "--may-share" in (button.get_attribute("title") or "")


def test_visitor_follows_the_run_live_and_has_no_way_to_anything_else(
    reader: Reader, deployment: Deployment, owner: Client
):
    # T104
    paced = PacedAnswer("One ", "two.")
    deployment.producer.vendor.script[:] = [paced]
    run_id = owner.start(owner.agent(SLOW, "slow agent"), "Write.")["run_id"]
    secret = share(owner, run_id)["secret"]

    reader.visit(f"/s?view=talk#{secret}")
    paced.release()
    reader.page.get_by_test_id("stream").filter(has_text="One").wait_for()

    assert reader.page.locator('[data-testid=page][data-page="share"][data-live="stream"]').count() == 1
    assert secret not in reader.page.url
    assert reader.page.get_by_role("navigation").count() == 0
    assert reader.page.get_by_role("button", name="Cancel").count() == 0
    assert reader.page.get_by_role("button", name="Share…").count() == 0
    paced.release(10)
    reader.page.locator('[data-testid=run-header][data-status="succeeded"]').wait_for()
    reader.page.reload()
    reader.page.get_by_test_id("stream").filter(has_text="One two.").wait_for()
    reader.page.goto(f"{reader.url}/runs")
    reader.page.wait_for_url("**/s")
    reader.page.get_by_test_id("run-header").wait_for()


def test_hidden_parts_say_that_they_are_hidden(reader: Reader, owner: Client):
    # T104
    run_id = finished_run(owner, "MARKER-INPUT")
    step = next(row["id"] for row in owner.run(run_id)["activations"] if row["node_id"] == "Message:0")
    secret = share(owner, run_id, hide=["inputs", "outputs"])["secret"]
    bodies: list[str] = []
    reader.page.on("response", lambda reply: bodies.append(reply.url) if "MARKER" in _text_of(reply) else None)

    reader.visit(f"/s?view=talk#{secret}")

    note = "The owner of this run hides this part."
    assert reader.page.get_by_text("Hidden by the owner: inputs, outputs.").count() == 1
    assert reader.page.get_by_text(note).count() == 2
    for tab in ("input", "output"):
        reader.page.goto(f"{reader.url}/s?step={step}&tab={tab}")
        reader.page.locator("aside").get_by_text(note).wait_for()
    assert "MARKER" not in reader.page.content()
    assert bodies == []


def _text_of(reply: Any) -> str:
    if "/api/" not in reply.url or "/live" in reply.url or reply.status == 204:
        return ""
    return reply.text()


def test_form_is_first_on_a_phone_and_the_answer_continues_the_run(
    reader_of: ReaderOf, deployment: Deployment, owner: Client, tmp_path: Path
):
    # T072, T105, T129
    run_id = waiting_run(owner, FILE_FORM)
    secret = share(owner, run_id, may_answer=True)["secret"]
    visitor = reader_of(deployment.server, width=360)
    visitor.page.set_viewport_size({"width": 360, "height": 640})
    visitor.visit(f"/s#{secret}")
    page = visitor.page
    form = page.get_by_role("region", name="Open form")
    submit = form.get_by_role("button", name="Send the answer")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    box = submit.bounding_box()
    assert box["y"] + box["height"] <= 640
    assert page.get_by_test_id("run-header").count() == 0

    submit.click()
    assert form.get_by_label("Invoice").get_attribute("aria-invalid") == "true"
    paper = tmp_path / "invoice.txt"
    paper.write_text("a paper of 12 pages")
    with page.expect_response("**/upload"):
        form.get_by_label("Invoice").set_input_files(paper)
    form.get_by_text("invoice.txt").filter(has_text="19 B").wait_for()
    submit.click()

    page.locator('[data-testid=run-header][data-status="succeeded"]').wait_for()
    page.get_by_test_id("stream").filter(has_text="a paper of 12 pages").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_share_without_the_right_to_answer_shows_the_fields_only(reader: Reader, owner: Client):
    # T105
    reader.visit(f"/s?view=talk#{share(owner, waiting_run(owner))['secret']}")

    form = reader.page.get_by_role("region", name="Open form")
    form.wait_for()

    assert "Name" in form.inner_text()
    assert form.get_by_role("button").count() == 0


def test_ended_and_unknown_shares_have_their_own_sentences(reader_of: ReaderOf, deployment: Deployment, owner: Client):
    # T106
    run_id = waiting_run(owner)
    revoked, expiring = share(owner, run_id), share(owner, run_id)
    reader = reader_of(deployment.server)
    owner.http.delete(f"/api/v1/runs/{run_id}/shares/{revoked['id']}")

    reader.visit(f"/s#{revoked['secret']}")
    heading(reader, "This share was revoked")
    reader.page.goto("about:blank")
    reader.visit("/s#nonsense")
    heading(reader, "This link opens nothing")
    reader.page.goto("about:blank")
    reader.visit("/s")
    heading(reader, "This address has no share")

    expire_soon(deployment, expiring["id"])
    reader.visit(f"/s#{expiring['secret']}")
    reader.page.get_by_test_id("run-header").wait_for()
    heading(reader, "This share has expired")
    reader.allow_refusals()


def expire_soon(deployment: Deployment, share_id: str) -> None:
    with deployment.server.database.transaction() as tx:
        tx.execute(text("update run_shares set expires_at = now() + interval '6 seconds' where id = :id"), id=share_id)


def test_secret_is_in_no_address_log_or_referer(reader: Reader, owner: Client, caplog: pytest.LogCaptureFixture):
    # T107
    secret = share(owner, finished_run(owner))["secret"]
    sent: list[str] = []
    reader.page.on("request", lambda request: sent.append(f"{request.url} {request.headers}"))

    with caplog.at_level(logging.DEBUG):
        reader.visit(f"/s#{secret}")
        reader.page.get_by_test_id("run-header").wait_for()

    assert reader.page.url == f"{reader.url}/s"
    assert [each for each in sent if secret in each.replace(f"{reader.url}/s#{secret}", "")] == []
    assert secret not in caplog.text
    stored = reader.page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, history.state])"
    )
    assert secret not in stored


def test_signed_in_reader_is_asked_before_a_share_takes_the_place_of_the_sign_in(
    reader_of: ReaderOf, deployment: Deployment, owner: Client
):
    run_id = finished_run(owner)
    secret = share(owner, run_id)["secret"]
    reader = reader_of(deployment.server)
    reader.sign_in(owner)

    reader.visit(f"/s#{secret}")
    heading(reader, "Open the shared run?")
    reader.page.get_by_role("link", name="Stay signed in").click()
    reader.page.wait_for_url("**/runs")
    reader.page.get_by_test_id("run-row").first.wait_for()

    reader.page.goto("about:blank")
    reader.visit(f"/s#{secret}")
    reader.page.get_by_role("button", name="Sign out and open it").click()
    reader.page.get_by_test_id("run-header").wait_for()


def test_hostile_texts_of_a_shared_run_stay_texts(reader: Reader, owner: Client):
    # T100, T101
    run_id = finished_run(owner, HOSTILE_MARKDOWN, f"title {HOSTILE}")

    reader.visit(f"/s?view=talk#{share(owner, run_id)['secret']}")
    stream = reader.page.get_by_test_id("stream")
    stream.get_by_role("heading", name="You said: # Title").or_(stream.get_by_text("Title")).first.wait_for()

    assert reader.page.locator("main img, main script, main b").count() == 0
    assert "\u202e" not in reader.page.content()
    links = reader.page.locator("main article a").evaluate_all("all => all.map(each => each.href)")
    assert links == ["https://example.com/page", "http://127.0.0.1:9/leak.png"]


def test_axe_finds_nothing_on_the_pages_of_shares(reader_of: ReaderOf, deployment: Deployment, owner: Client):
    run_id = waiting_run(owner)
    secret = share(owner, run_id, may_answer=True, hide=["inputs"])["secret"]
    visitor = reader_of(deployment.server)
    reader = reader_of(deployment.server)
    reader.sign_in(owner)

    for address in ("/s", f"/s#{secret}", "/s?view=talk"):
        visitor.visit(address)
        assert axe_findings(visitor.page) == [], address
    reader.visit(f"/runs/{run_id}")
    reader.page.get_by_role("button", name="Share…").click()
    reader.page.get_by_role("listitem").filter(has_text="hides inputs").wait_for()
    assert axe_findings(reader.page) == []
