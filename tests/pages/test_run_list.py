"""The list of runs in a real browser."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import SECRET
from tests.integration.api.talking import BROKEN, ECHO, Client, eventually
from tests.pages.conftest import Deployment, Reader
from tests.pages.exported_runs import FORM, ROOT
from tests.pages.waiting import expect

WATCH_ROWS = """
    globalThis.rowsSeen = {};
    new MutationObserver(() => {
        const rows = document.querySelectorAll("[data-testid=run-row]");
        for (const {dataset} of rows) rowsSeen[dataset.runId] ??= Date.now();
    }).observe(document, {subtree: true, childList: true, attributeFilter: ["data-run-id"]});
"""
SLOWEST_REPLY = """() => Math.max(...performance.getEntriesByType("resource")
    .filter(({name}) => name.includes("/api/v1/runs")).map(({duration}) => duration))"""


def rows_of(reader: Reader) -> list[str]:
    """Return the ids of the rows in view."""
    return reader.page.eval_on_selector_all("[data-testid=run-row]", "rows => rows.map((row) => row.dataset.runId)")


def wait_for_rows(reader: Reader, *run_ids: str) -> None:
    """Wait until the list has exactly these rows, in this order."""
    eventually(lambda: rows_of(reader), lambda rows: rows == list(run_ids), seconds=30)


def row(reader: Reader, run_id: str, status: str = "") -> Any:
    suffix = f'[data-status="{status}"]' if status else ""
    return reader.page.locator(f'[data-testid=run-row][data-run-id="{run_id}"]{suffix}')


def finished(client: Client, dsl: Any, query: str, title: str = "") -> str:
    run_id = client.start(client.agent(dsl, title or uuid4().hex), query)["run_id"]
    client.wait_for(run_id, "succeeded", "failed", "waiting")
    return run_id


def test_commands_of_the_empty_list_start_runs_whose_rows_appear_within_three_seconds(
    signed_in: Reader, client: Client, deployment: Deployment
):  # T020, T029
    signed_in.page.add_init_script(WATCH_ROWS)
    signed_in.visit("/runs")
    signed_in.page.get_by_text("There is no run yet").wait_for()
    printed = signed_in.page.locator("main code").all_inner_texts()
    commands = [shlex.split(command) for command in printed]
    assert [command[:2] for command in commands] == [["easel", "run"], ["easel", "start"]]

    for command in commands:
        run_command(deployment, client, *command[1:])
    form, triage = client.http.get("/api/v1/runs?limit=10").json()["runs"]

    client.wait_for(form["id"], "waiting")
    row(signed_in, triage["id"], "succeeded").wait_for()
    cells = row(signed_in, triage["id"], "succeeded").get_by_role("cell").all_inner_texts()
    assert triage["agent_title"] in cells[2]
    assert triage["query"] in cells
    assert shown_milliseconds(cells) == pytest.approx(triage["elapsed_ms"], rel=0.1, abs=1)
    assert str(triage["progress"]["activated"]) in cells
    assert f"{triage['usage']['prompt_tokens'] + triage['usage']['completion_tokens']:,}" in cells
    began = datetime.fromisoformat(triage["created_at"]).timestamp() * 1000
    seen = signed_in.page.evaluate("id => rowsSeen[id]", triage["id"])
    slowest = signed_in.page.evaluate(SLOWEST_REPLY)  # a busy machine answers late
    assert seen - began < 3_000 + 2 * slowest
    wait_for_rows(signed_in, form["id"], triage["id"])
    row(signed_in, form["id"], "waiting").wait_for()


def run_command(deployment: Deployment, client: Client, *arguments: str) -> None:
    """Run `easel` on the deployment's servers, for the client's tenant."""
    with deployment.server.database.transaction() as tx:
        tenant = tx.scalar(text("select name from tenants where id = :id"), id=client.tenant_id)
    environment = {
        **os.environ,
        "DATABASE_URL": deployment.server.database_url,
        "REDIS_URL": deployment.server.redis_url,
        "EASEL_HOME": str(deployment.producer.folder),
        "EASEL_SECRET_KEY": SECRET,
    }
    subprocess.run(
        [sys.executable, "-m", "cli", *arguments, "--tenant", tenant],
        cwd=ROOT, env=environment, check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def shown_milliseconds(cells: Sequence[str]) -> float:
    """Return the duration that a row shows."""
    found = next(match for cell in cells if (match := re.fullmatch(r"([\d.,]+) (ms|s)", cell)))
    return float(found[1].replace(",", "")) * (1 if found[2] == "ms" else 1000)


def test_last_hour_is_that_of_the_server_where_the_browser_has_another_clock(signed_in: Reader, client: Client):
    run_id = finished(client, ECHO, "just now")
    signed_in.page.add_init_script("const real = Date.now; Date.now = () => real() + 5 * 3_600_000")
    signed_in.visit("/runs?time=hour")
    row(signed_in, run_id).wait_for()

    with signed_in.page.expect_response(re.compile(r"/viewer/overview")) as figures:
        signed_in.visit("/overview?time=hour")
    assert figures.value.json()["tiles"]["runs"] == 1


def test_filters_give_the_rows_of_the_api_and_stay_in_the_address(signed_in: Reader, client: Client):  # T021
    good, bad = finished(client, ECHO, "one"), finished(client, BROKEN, "two")
    open_form = finished(client, FORM, "three")
    signed_in.visit("/runs")
    row(signed_in, good).wait_for()

    signed_in.page.get_by_role("button", name="failed", exact=True).click()
    wait_for_rows(signed_in, bad)
    signed_in.page.get_by_role("button", name="waiting", exact=True).click()
    listed = client.http.get("/api/v1/runs?limit=50&status=failed,waiting").json()["runs"]
    wait_for_rows(signed_in, *(run["id"] for run in listed))
    signed_in.page.reload()
    wait_for_rows(signed_in, open_form, bad)
    signed_in.page.go_back()
    wait_for_rows(signed_in, bad)
    signed_in.page.get_by_role("button", name="Clear filters").click()
    wait_for_rows(signed_in, open_form, bad, good)


def test_trouble_and_agent_select_their_runs(signed_in: Reader, client: Client):  # T021, T027
    good, bad = finished(client, ECHO, "one", "the good one"), finished(client, BROKEN, "two", "the bad one")
    signed_in.visit("/runs?trouble=1")
    wait_for_rows(signed_in, bad)

    signed_in.page.get_by_role("checkbox", name="Trouble").uncheck()
    signed_in.page.get_by_role("combobox", name="Agent").select_option("the good one")

    wait_for_rows(signed_in, good)


@pytest.mark.parametrize("text", ["unicorn", "find variable"])
def test_search_finds_words_of_query_and_error(signed_in: Reader, client: Client, text: str):  # T022
    finished(client, ECHO, "something else")
    bad = finished(client, BROKEN, "about a unicorn")
    signed_in.visit("/runs")

    signed_in.page.get_by_role("searchbox").fill(text)
    signed_in.page.get_by_role("searchbox").press("Enter")

    signed_in.page.wait_for_url("**/runs?q=*")
    wait_for_rows(signed_in, bad)
    signed_in.page.get_by_role("searchbox").fill("no such word")
    signed_in.page.get_by_role("searchbox").press("Enter")
    signed_in.page.get_by_text("No run matches").wait_for()

    part = {"runs": [], "next": bad, "searched_until": "2020-02-03T12:00:00Z"}
    signed_in.page.route("**/api/v1/runs?*", lambda route: route.fulfill(json=part))
    signed_in.page.reload()
    signed_in.page.get_by_text("Searched back to").wait_for()


def test_run_that_ends_changes_its_row_and_one_that_starts_is_announced(signed_in: Reader, client: Client):  # T023
    waiting = finished(client, FORM, "hello")
    signed_in.visit("/runs")
    row(signed_in, waiting, "waiting").hover()

    client.http.post(f"/api/v1/runs/{waiting}/resume", json={"inputs": {"name": "Ada"}})
    row(signed_in, waiting, "succeeded").wait_for()
    started = finished(client, ECHO, "a new one")

    signed_in.page.get_by_text("1 new", exact=True).wait_for()
    assert rows_of(signed_in) == [waiting]
    signed_in.page.get_by_role("button", name="Show them").click()
    wait_for_rows(signed_in, started, waiting)


def test_more_runs_than_a_page_are_each_shown_once(signed_in: Reader, client: Client):  # T025
    agent = client.agent(ECHO)
    started = {client.start(agent, f"number {number}")["run_id"] for number in range(60)}
    signed_in.visit("/runs?time=hour")
    signed_in.page.get_by_role("table").wait_for()

    signed_in.page.get_by_role("button", name="Show more").click()
    signed_in.page.get_by_text("These are all.").wait_for()

    expect(signed_in.page.get_by_role("table")).to_have_attribute("aria-rowcount", str(len(started) + 1))


def test_back_from_a_run_leads_to_the_same_place(signed_in: Reader, client: Client):  # T024
    agent = client.agent(ECHO)
    first = client.start(agent, "the first")["run_id"]
    for number in range(40):
        client.start(agent, f"number {number}")
    signed_in.visit("/runs")
    region = signed_in.page.get_by_role("region", name="Runs, the newest first")
    region.evaluate("element => element.scrollTo(0, 10_000)")
    row(signed_in, first).click()
    signed_in.page.get_by_test_id("run-header").wait_for()

    signed_in.page.go_back()

    row(signed_in, first).wait_for()
    signed_in.page.wait_for_function("id => document.activeElement?.id === id", arg=f"run-{first}")
    assert region.evaluate("element => element.scrollTop") > 0


def test_cancelling_several_asks_once_and_says_what_was_over(signed_in: Reader, client: Client):  # T026
    over = finished(client, ECHO, "over")
    waiting = [finished(client, FORM, "hello") for _ in range(2)]
    signed_in.visit("/runs")
    for run_id in (over, *waiting):
        row(signed_in, run_id).get_by_role("checkbox").check()

    signed_in.page.get_by_role("button", name="Cancel runs").click()
    dialog = signed_in.page.get_by_role("dialog", name="Cancel 3 runs?")
    dialog.get_by_role("button", name="Cancel runs").click()

    signed_in.page.get_by_text("2 runs were cancelled, 1 was over already.").first.wait_for()
    for run_id in waiting:
        row(signed_in, run_id, "cancelled").wait_for()
    assert client.run(over)["status"] == "succeeded"


def test_example_is_started_from_the_empty_list(signed_in: Reader, client: Client):
    signed_in.visit("/runs")

    signed_in.page.get_by_role("button", name="Start an example").click()

    signed_in.page.locator("[data-testid=run-header][data-status=succeeded]").wait_for()
    assert [run["agent_title"] for run in client.http.get("/api/v1/runs?limit=10").json()["runs"]] == [
        "Customer support"
    ]


def test_version_conversation_origin_and_range_select_their_runs(signed_in: Reader, client: Client):  # T021
    agent = client.agent(ECHO, "an agent")
    first = client.start(agent, "one")
    client.wait_for(first["run_id"], "succeeded")
    client.http.put(f"/api/v1/agents/{agent}", json={"title": "an agent", "dsl": FORM})
    second = client.start(agent, "two")["run_id"]
    client.wait_for(second, "waiting")
    version = client.run(first["run_id"])["version_id"]
    signed_in.visit(f"/runs?conversation={first['session_id']}")
    wait_for_rows(signed_in, first["run_id"])

    signed_in.page.get_by_role("button", name="Remove the filter Conversation").click()
    wait_for_rows(signed_in, second, first["run_id"])
    signed_in.page.get_by_role("combobox", name="Agent").select_option("an agent")
    signed_in.page.get_by_role("combobox", name="Version").select_option(version)
    wait_for_rows(signed_in, first["run_id"])
    signed_in.page.reload()
    wait_for_rows(signed_in, first["run_id"])
    signed_in.page.get_by_role("combobox", name="Version").select_option("")
    signed_in.page.get_by_role("combobox", name="Origin").select_option("fork")
    signed_in.page.get_by_text("No run matches").wait_for()
    signed_in.page.get_by_role("combobox", name="Origin").select_option("none")
    wait_for_rows(signed_in, second, first["run_id"])
    signed_in.page.get_by_role("combobox", name="Started").select_option("custom")
    signed_in.page.get_by_label("From").fill("2020-01-01T10:00")
    signed_in.page.get_by_label("to", exact=True).fill("2020-01-02T10:00")
    signed_in.page.get_by_role("button", name="Show", exact=True).click()
    signed_in.page.get_by_text("No run matches").wait_for()


def test_keys_and_shift_select_ranges_and_their_ids_are_exported(signed_in: Reader, client: Client):
    agent = client.agent(ECHO)
    runs = [client.start(agent, f"number {number}")["run_id"] for number in range(6)][::-1]
    signed_in.visit("/runs")
    wait_for_rows(signed_in, *runs)

    row(signed_in, runs[1]).get_by_role("checkbox").click()
    row(signed_in, runs[3]).get_by_role("checkbox").click(modifiers=["Shift"])
    signed_in.page.get_by_text("3 selected").first.wait_for()
    signed_in.page.keyboard.press("j")
    signed_in.page.wait_for_function("id => document.activeElement?.id === id", arg=f"run-{runs[4]}")
    signed_in.page.keyboard.press("x")
    signed_in.page.get_by_text("4 selected").first.wait_for()
    with signed_in.page.expect_download() as download:
        signed_in.page.get_by_role("button", name="Export ids").click()
    assert sorted(download.value.path().read_text().split()) == sorted(runs[1:5])

    row(signed_in, runs[4]).get_by_role("link").focus()
    signed_in.page.keyboard.press("Escape")
    signed_in.page.get_by_text("4 selected").first.wait_for(state="detached")


def test_views_and_columns_are_kept_and_rows_stand_still_when_not_live(signed_in: Reader, client: Client):
    bad = finished(client, BROKEN, "one")
    good = finished(client, ECHO, "two")
    signed_in.visit("/runs?status=failed")
    wait_for_rows(signed_in, bad)

    signed_in.page.get_by_role("button", name="Views").click()
    signed_in.page.get_by_role("menuitem", name="Save or remove views").click()
    signed_in.page.get_by_label("Name of the present filters").fill("What failed")
    signed_in.page.get_by_role("button", name="Save the view").click()
    signed_in.page.get_by_role("button", name="Columns").click()
    signed_in.page.get_by_role("checkbox", name="Tokens").uncheck()
    signed_in.page.keyboard.press("Escape")
    signed_in.visit("/runs")
    wait_for_rows(signed_in, good, bad)
    assert signed_in.page.get_by_role("columnheader", name="Tokens").count() == 0
    assert signed_in.page.get_by_role("columnheader", name="Waits for").count() == 1
    signed_in.page.get_by_role("button", name="Views").click()
    signed_in.page.get_by_role("menuitem", name="What failed").click()
    wait_for_rows(signed_in, bad)

    signed_in.page.get_by_role("switch", name="Live").uncheck()
    signed_in.page.locator("[data-testid=page][data-live=off]").wait_for()
    requests = len(signed_in.requested)
    newer = finished(client, BROKEN, "three")
    assert [url for url in signed_in.requested[requests:] if "/runs" in url] == []
    assert rows_of(signed_in) == [bad]
    signed_in.page.get_by_role("switch", name="Live").check()
    row(signed_in, newer).wait_for()


def test_id_in_the_search_field_opens_the_run(signed_in: Reader, client: Client):  # T022
    run_id = finished(client, ECHO, "one")
    signed_in.visit("/runs")

    signed_in.page.get_by_role("searchbox").fill(run_id)
    signed_in.page.get_by_role("searchbox").press("Enter")

    signed_in.page.locator(f'[data-testid=run-header][data-run-id="{run_id}"]').wait_for()
