"""The figures of runs and the state of the deployment in a real browser."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from sqlalchemy import text

from embedded import EmbeddedServers
from scheduler.messaging.celery_app import NODES
from store.monitoring import queue_probes
from tests import services as test_services
from tests.integration.api.conftest import start_server, with_settings
from tests.integration.api.talking import BROKEN, ECHO, MODEL, Client, eventually
from tests.pages.axe_findings import axe_findings, width_of
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM

NOW = text("select now()")
MAKE_OLD = text("update canaries set sent_at = now() - interval '20 seconds' where queue = 'nodes'")


def finished(client: Client, dsl: Any, title: str = "") -> str:
    run_id = client.start(client.agent(dsl, title or uuid4().hex), "hello")["run_id"]
    client.wait_for(run_id, "succeeded", "failed", "waiting")
    return run_id


def tile(reader: Reader, name: str) -> str:
    """Return the value of a tile."""
    return reader.page.get_by_role("link", name=f"{name}: ").inner_text()


def rows_of(reader: Reader) -> set[str]:
    rows = "rows => rows.map((row) => row.dataset.runId)"
    return set(reader.page.eval_on_selector_all("[data-testid=run-row]", rows))


def listed_by_api(client: Client, address: str) -> set[str]:
    """Return the runs that the API lists for the filters in the address of the list."""
    names = {"agent": "agent_id", "version": "version_id"}
    query = {names.get(name, name): value for name, value in parse_qsl(urlsplit(address).query)}
    return {run["id"] for run in client.http.get("/api/v1/runs", params={**query, "limit": 100}).json()["runs"]}


# T118
def test_tiles_equal_the_api_and_a_bar_leads_to_exactly_its_runs(signed_in: Reader, client: Client):
    for dsl in (ECHO, MODEL, FORM):
        finished(client, dsl)
    failed = {finished(client, BROKEN) for _ in range(2)}

    signed_in.visit("/overview?time=hour")

    tiles = client.http.get("/api/v1/viewer/overview").json()["tiles"]
    assert (tile(signed_in, "Runs"), tile(signed_in, "Failure rate")) == (str(tiles["runs"]), "50 %")
    assert tile(signed_in, "Tokens") == str(tiles["tokens"])
    assert tile(signed_in, "Waiting now") == "1"
    bars = signed_in.page.locator("[data-bar=failed]").count()
    signed_in.page.locator("[data-bar=failed]").last.click()
    signed_in.page.wait_for_url("**/runs?status=failed&from=*")
    expected = listed_by_api(client, signed_in.page.url)
    eventually(lambda: rows_of(signed_in), lambda rows: rows == expected, seconds=30)
    assert expected == failed or (bars == 2 and expected < failed)  # the runs may lie in two parts of the range

    signed_in.page.go_back()
    signed_in.page.get_by_role("link", name="Waiting now: 1").click()
    signed_in.page.wait_for_url("**/runs?status=waiting")


def test_chart_has_a_table_whose_links_work_by_keyboard(signed_in: Reader, client: Client):
    run_id = finished(client, ECHO)
    signed_in.visit("/overview")

    signed_in.page.locator("summary", has_text="Table").first.press("Enter")
    table = signed_in.page.get_by_role("region", name="Runs by end state, as a table")
    table.get_by_role("link", name="1 succeeded").press("Enter")

    signed_in.page.locator(f'[data-testid=run-row][data-run-id="{run_id}"]').wait_for()
    assert listed_by_api(client, signed_in.page.url) == {run_id}


def test_agent_and_range_of_time_are_in_the_address(signed_in: Reader, client: Client):
    finished(client, ECHO, "the good one")
    finished(client, BROKEN, "the bad one")
    signed_in.visit("/overview")
    signed_in.page.get_by_role("link", name="Runs: 2").wait_for()

    signed_in.page.get_by_role("combobox", name="Agent").select_option("the bad one")
    signed_in.page.get_by_role("link", name="Runs: 1").wait_for()
    signed_in.page.reload()
    signed_in.page.get_by_role("link", name="Failure rate: 100 %").wait_for()
    assert signed_in.page.get_by_role("table", name="Nodes that fail most").get_by_role("row").count() == 2
    signed_in.page.get_by_role("combobox", name="Started").select_option("custom")
    signed_in.page.get_by_label("From").fill("2020-01-01T10:00")
    signed_in.page.get_by_label("to", exact=True).fill("2020-01-01T09:00")
    signed_in.page.get_by_role("button", name="Show").click()
    signed_in.page.get_by_role("alert").wait_for()
    signed_in.page.get_by_label("to", exact=True).fill("2020-01-01T11:00")
    signed_in.page.get_by_role("button", name="Show").click()

    signed_in.page.get_by_text("No run was started in this range.").wait_for()
    assert "from=2020-01-01T" in signed_in.page.url
    assert "agent=" in signed_in.page.url


def test_waiting_run_leads_to_its_form(signed_in: Reader, client: Client):
    run_id = finished(client, FORM, "asks for a name")
    signed_in.visit("/overview")

    signed_in.page.get_by_role("table", name="Waiting runs").get_by_role("link", name="asks for a name").click()

    signed_in.page.wait_for_url(f"**/runs/{run_id}?view=talk")
    signed_in.page.get_by_role("region", name="Open form").wait_for()


# T119
def test_system_page_of_an_api_token_is_a_sentence(signed_in: Reader, client: Client):
    signed_in.visit("/system")

    assert "token of the kind admin" in signed_in.page.inner_text("main")
    assert client.http.get("/api/v1/viewer/system").status_code == 403


# T119
def test_queue_is_red_while_no_worker_answers_and_green_again_by_itself(
    reader_of: ReaderOf, deployment: Deployment, services: EmbeddedServers, template: str
):
    with (
        test_services.fresh_database(services.database_url, template) as database_url,
        start_server(with_settings(deployment.server.config, database_url=database_url)) as server,
    ):
        reader = reader_of(server)
        reader.sign_in(server.client(kind="admin"))
        reader.visit("/system")
        queue = reader.page.locator("[data-testid=queue][data-queue=nodes]")
        reader.page.locator("[data-testid=queue][data-queue=nodes][data-moving=false]").wait_for()
        assert "no worker has answered" in queue.inner_text()
        assert reader.page.locator("[data-testid=check][data-ok='1']").count() == 4
        assert "EASEL_RETENTION" in reader.page.inner_text("main")

        with server.database.transaction() as tx:
            queue_probes.record_return(tx, NODES, tx.scalar(NOW))
        reader.page.locator("[data-testid=queue][data-queue=nodes][data-moving=true]").wait_for()
        with server.database.transaction() as tx:
            tx.execute(MAKE_OLD)
        reader.page.locator("[data-testid=queue][data-queue=nodes][data-moving=false]").wait_for()

        assert reader.page.get_by_test_id("system-health").get_attribute("data-problems") != "0"
        assert axe_findings(reader.page) == []
        reader.page.goto("about:blank")  # before its server is gone


def test_system_page_keeps_what_it_shows_while_the_api_is_away(reader: Reader, deployment: Deployment):
    reader.sign_in(deployment.server.client(kind="admin"))
    reader.visit("/system")
    reader.page.get_by_role("table", name="Queues and workers").wait_for()

    reader.page.context.set_offline(True)
    reader.page.get_by_text("The API does not answer").wait_for()
    assert reader.page.get_by_role("table", name="Queues and workers").is_visible()
    reader.page.context.set_offline(False)

    reader.page.get_by_text("The API does not answer").wait_for(state="detached")
    reader.allow_refusals()


def test_axe_finds_nothing_on_figures(reader_of: ReaderOf, deployment: Deployment, client: Client):
    for dsl in (MODEL, BROKEN, FORM):
        finished(client, dsl)
    reader = reader_of(deployment.server)
    reader.sign_in(client)
    reader.visit("/overview?time=hour")
    for summary in reader.page.locator("summary").all():
        summary.click()
    assert axe_findings(reader.page) == []

    reader.page.set_viewport_size({"width": 360, "height": 800})
    eventually(lambda: width_of(reader.page), lambda width: width <= 360)
