"""What the pages do while the server, the database or the sign-in is away, and without scripts."""

import json
from typing import Any

import pytest

from tests.integration.api.talking import ECHO, Client
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM
from tests.pages.test_live_run import wait_for_mode, wait_for_status, wait_for_text

NO_DATABASE = "The database does not answer. Send the request again in a few seconds."


def waiting_run(client: Client) -> str:
    """Start a run that asks its form; return its id."""
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    return run_id


def answer_form(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Send the answer").click()


def test_page_keeps_what_it_shows_while_the_database_is_away_and_loses_no_click(
    signed_in: Reader, client: Client
):  # T133
    run_id = waiting_run(client)
    refused = json.dumps({"code": "not_acceptable", "message": "no streams here", "details": None})
    away = json.dumps({"code": "unavailable", "message": NO_DATABASE, "details": {}})
    page, keys, is_away = signed_in.page, list[str](), [False]

    def serve(route: Any) -> None:
        if route.request.method == "POST":
            keys.append(route.request.headers["idempotency-key"])
        if is_away[0]:
            route.fulfill(status=503, content_type="application/json", body=away, headers={"Retry-After": "1"})
        elif "/live" in route.request.url:
            route.fulfill(status=406, content_type="application/json", body=refused)
        else:
            route.continue_()

    page.route(f"**/api/v1/runs/{run_id}**", serve)
    page.route(f"**/api/v1/runs/{run_id}/*", serve)
    signed_in.visit(f"/runs/{run_id}?view=talk")
    wait_for_mode(signed_in, "polling")
    page.get_by_role("textbox", name="Name").fill("Ada")

    is_away[0] = True
    page.get_by_role("alert").filter(has_text=NO_DATABASE).first.wait_for()
    wait_for_mode(signed_in, "away")
    answer_form(signed_in)
    page.get_by_role("region", name="Open form").get_by_role("alert").filter(has_text=NO_DATABASE).wait_for()
    assert page.get_by_role("textbox", name="Name").input_value() == "Ada"
    assert page.get_by_test_id("run-header").is_visible()

    is_away[0] = False
    wait_for_mode(signed_in, "polling")
    answer_form(signed_in)
    wait_for_text(signed_in, "Hello Ada")
    wait_for_status(signed_in, "succeeded")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    signed_in.allow_refusals()


def test_form_is_still_filled_in_after_signing_in_again_and_is_sent_once(signed_in: Reader, client: Client):  # T134
    run_id = waiting_run(client)
    page = signed_in.page
    signed_in.visit(f"/runs/{run_id}?view=talk")
    page.get_by_role("textbox", name="Name").fill("Ada")
    answers: list[int] = []
    page.on("response", lambda reply: answers.append(reply.status) if reply.url.endswith("/resume") else None)

    page.context.clear_cookies()
    answer_form(signed_in)
    page.get_by_text("You are signed out").wait_for()
    page.get_by_label("Token", exact=True).fill(client.token)
    page.get_by_role("button", name="Sign in").click()

    page.wait_for_url(f"**/runs/{run_id}?view=talk")
    field = page.get_by_role("textbox", name="Name")
    field.wait_for()
    assert field.input_value() == "Ada"
    answer_form(signed_in)
    wait_for_text(signed_in, "Hello Ada")
    assert answers == [401, 202]
    signed_in.allow_refusals()


def test_file_of_an_earlier_release_that_is_gone_leaves_the_page_and_offers_a_reload(
    signed_in: Reader, client: Client
):  # T114
    run_id = client.start(client.agent(ECHO), "hello")["run_id"]
    client.wait_for(run_id, "succeeded")
    page = signed_in.page
    page.route("**/ui/assets/talk-pane-*.js", lambda route: route.fulfill(status=404, body="gone"))
    signed_in.visit(f"/runs/{run_id}")

    signed_in.view("Talk")

    page.get_by_role("alert").filter(has_text="Easel was updated").wait_for()
    assert page.get_by_test_id("run-header").is_visible()
    page.unroute("**/ui/assets/talk-pane-*.js")
    page.get_by_role("button", name="Reload").click()
    wait_for_text(signed_in, "You said: hello")
    signed_in.problems.clear()  # the browser reports the file that was not there


@pytest.mark.parametrize("visits", [2, pytest.param(50, marks=pytest.mark.long)])
def test_document_of_an_earlier_release_is_loaded_again(signed_in: Reader, client: Client, visits: int):  # T114
    run_id = client.start(client.agent(ECHO), "hello")["run_id"]
    client.wait_for(run_id, "succeeded")
    page, loads = signed_in.page, list[str]()

    def other_release(route: Any) -> None:
        loads.append(route.request.url)
        if len(loads) % 2:
            reply = route.fetch()
            route.fulfill(response=reply, body=reply.text().replace("assets/index-", "assets/index-of-another-"))
        else:
            route.continue_()

    page.route(f"**/runs/{run_id}", lambda route: other_release(route) if _is_document(route) else route.continue_())
    for visit in range(1, visits + 1):
        page.goto(f"{signed_in.url}/runs/{run_id}")
        page.locator('[data-testid=page][data-ready="1"]').wait_for()
        assert len(loads) == 2 * visit
    signed_in.problems.clear()  # the browser reports the files that were not there


def _is_document(route: Any) -> bool:
    return route.request.resource_type == "document"


def test_without_scripts_the_page_says_what_can_be_used_instead(reader_of: ReaderOf, deployment: Deployment):  # T136
    reader = reader_of(deployment.server, java_script_enabled=False)

    reader.page.goto(f"{reader.url}/runs")

    text = reader.page.locator("noscript").inner_text()
    assert "need JavaScript" in text
    links = reader.page.locator("noscript a")
    assert [link.get_attribute("href") for link in links.all()] == ["../openapi.json"]
    reader.page.close()  # nothing can be evaluated on it
