"""Signing in and out on the pages: tokens, one-time codes, and what happens when a sign-in ends."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from canvas.ids import TenantId
from scheduler.sweeper.maintenance import Retention, run_maintenance
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.tenants import tenants
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, Client, eventually
from tests.integration.store.rows import add_run
from tests.pages.axe_findings import axe_findings
from tests.pages.conftest import Deployment, Reader, ReaderOf
from tests.pages.exported_runs import FORM
from tests.pages.waiting import expect, wait_for_page

REFUSED = "This token is not known"


def submit(reader: Reader, token: str) -> None:
    reader.page.get_by_label("Token", exact=True).fill(token)
    reader.page.get_by_role("button", name="Sign in").click()


def stored_texts(reader: Reader) -> str:
    """Return everything that scripts of the page could read: storages, cookies, the address."""
    script = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    return reader.page.evaluate(script)


def revoke(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, TenantId(client.tenant_id)):
            tenants.revoke_token(tx, TenantId(client.tenant_id), token.id)


def test_page_without_a_sign_in_is_shown_after_signing_in(reader: Reader, client: Client):  # T010
    run_id = client.start(client.agent(ECHO), "hello")["run_id"]
    reader.visit(f"/runs/{run_id}?view=log")
    wait_for_page(reader, "login")
    assert "to=" in reader.page.url

    submit(reader, client.token)

    reader.page.wait_for_url(f"**/runs/{run_id}?view=log")
    reader.page.get_by_test_id("event-row").first.wait_for()


def test_root_leads_to_the_sign_in_and_then_to_the_runs(reader: Reader, client: Client):  # T010, T012
    reader.visit("/")
    expect(reader.page).to_have_url(f"{reader.url}/login")

    submit(reader, client.token)

    reader.page.wait_for_url("**/runs")
    assert client.token not in stored_texts(reader)
    assert reader.page.evaluate("document.cookie") == ""
    (cookie,) = reader.page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("easel", True, "Strict")


@pytest.mark.parametrize("to", ["//example.com/runs", "https://example.com/", "/\\example.com", "javascript:alert(1)"])
def test_sign_in_leads_to_no_other_host(reader: Reader, client: Client, to: str):  # T135
    reader.page.goto(f"{reader.url}/login?to={to}")

    submit(reader, client.token)

    reader.page.wait_for_url(f"{reader.url}/runs")


def test_unknown_revoked_and_link_tokens_get_the_same_sentence(reader: Reader, deployment: Deployment, client: Client):
    # T011
    guest = deployment.server.guest(client, client.agent(ECHO))
    revoked = deployment.server.client()
    revoke(deployment.server, revoked)
    reader.visit("/login")

    for token in ("easel_wrong", revoked.token, guest.token):
        submit(reader, token)
        alert = reader.page.get_by_role("alert")
        alert.wait_for()
        expect(alert).to_contain_text(REFUSED)
    reader.allow_refusals()


def test_eleventh_try_within_a_minute_names_the_seconds(reader: Reader):  # T011
    reader.visit("/login")
    for _ in range(11):
        with reader.page.expect_response("**/viewer/session"):
            submit(reader, "easel_wrong")

    reader.page.get_by_text("too many tries").wait_for()
    expect(reader.page.get_by_role("alert")).to_contain_text(" s.")
    reader.allow_refusals()


def test_one_time_code_signs_in_once_and_leaves_the_address(
    reader: Reader, reader_of: ReaderOf, client: Client, deployment: Deployment
):  # T012, T013
    code = client.http.post("/api/v1/viewer/codes").json()["code"]

    reader.visit(f"/runs#c={code}")

    wait_for_page(reader, "runs")
    expect(reader.page).to_have_url(f"{reader.url}/runs")
    assert code not in stored_texts(reader)
    second = reader_of(deployment.server)
    second.visit(f"/#c={code}")
    wait_for_page(second, "login")
    expect(second.page.get_by_role("alert")).to_contain_text("used already")
    assert code not in second.page.url
    second.allow_refusals()


def test_revoked_token_leads_an_open_page_to_the_sign_in(signed_in: Reader, client: Client, deployment: Deployment):
    # T014
    signed_in.visit("/runs")

    revoke(deployment.server, client)

    signed_in.page.get_by_text("You are signed out").wait_for()
    wait_for_page(signed_in, "login")
    signed_in.allow_refusals()


def test_revoked_token_ends_the_stream_of_an_open_run(signed_in: Reader, client: Client, deployment: Deployment):
    # T014
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    signed_in.visit(f"/runs/{run_id}")

    revoke(deployment.server, client)

    signed_in.page.get_by_text("You are signed out").wait_for()
    signed_in.allow_refusals()


def test_signing_out_removes_the_cookie_and_back_shows_no_data(signed_in: Reader, client: Client):  # T015
    client.start(client.agent(ECHO, "a title of this tenant"), "hello")
    signed_in.visit("/runs")
    signed_in.page.get_by_role("link", name="a title of this tenant").click()
    signed_in.page.get_by_test_id("run-header").wait_for()

    signed_in.page.get_by_role("button", name="Sign out").click()
    signed_in.page.wait_for_url("**/login")

    assert signed_in.page.context.cookies() == []
    signed_in.page.go_back()
    signed_in.page.wait_for_url("**/login*")
    wait_for_page(signed_in, "login")
    assert "a title of this tenant" not in signed_in.page.content()
    signed_in.allow_refusals()


def test_reader_of_kind_viewer_sees_everything_and_can_change_nothing(reader: Reader, deployment: Deployment):  # T018
    author = deployment.server.client()
    run_id = author.start(author.agent(FORM), "hello")["run_id"]
    author.wait_for(run_id, "waiting")
    with deployment.server.database.transaction() as tx:
        _, token = tenants.create_token(tx, TenantId(author.tenant_id), "reader", "viewer")
    reader.sign_in(deployment.server.client_of(author.tenant_id, token))

    reader.visit("/runs")
    reader.page.get_by_test_id("run-row").wait_for()
    expect(reader.page.get_by_role("checkbox", name="Select the run")).to_have_count(0)
    reader.visit(f"/runs/{run_id}?view=talk")

    expect(reader.page.get_by_role("button", name="Cancel")).to_be_disabled()
    expect(reader.page.get_by_role("button", name="Answer")).to_have_count(0)
    expect(reader.page.get_by_role("region", name="Open form")).to_contain_text("cannot answer")


def test_run_and_agent_of_another_tenant_do_not_exist(signed_in: Reader, deployment: Deployment):  # T019, T132
    other = deployment.server.client()
    agent = other.agent(ECHO, "secret title of another tenant")
    run_id = other.start(agent, "a secret query")["run_id"]
    other.wait_for(run_id, "succeeded")

    for unknown in (run_id, "0" * 32, "nonsense"):
        signed_in.visit(f"/runs/{unknown}")
        expect(signed_in.page.locator("main")).to_contain_text(f"There is no run {unknown}")
        assert signed_in.page.get_by_role("link", name="Back to the runs").get_attribute("href") == "/runs"
        assert "secret" not in signed_in.page.content()
    for address in (f"/agents/{agent}", f"/agents/{agent}/edit", f"/agents/{agent}/versions"):
        signed_in.visit(address)
        expect(signed_in.page.locator("main")).to_contain_text(f"There is no agent {agent}")
        assert "secret" not in signed_in.page.content()
    signed_in.allow_refusals()


def test_missing_runs_have_a_sentence_each(reader_of: ReaderOf, deployment: Deployment, client: Client):  # T132
    created_at = datetime.now(UTC) - timedelta(days=60)
    with deployment.server.database.transaction() as tx:
        partitions.ensure(tx, created_at, weeks=0)
        old = add_run(tx, client.tenant_id, run_id=UUID(int=first_id_at(created_at).int | 7 << 76 | 2 << 62)).hex
    config = with_settings(deployment.server.config, retention=timedelta(days=30))
    with start_server(config) as server:
        reader = reader_of(server)
        reader.sign_in(client)
        main = reader.page.locator("main")
        listed = client.http.get("/api/v1/runs?limit=10").json()["runs"]
        assert [run["id"] for run in listed] == [old]

        run_maintenance(deployment.server.database, datetime.now(UTC), Retention(timedelta(days=30)))
        for unknown, sentence in (
            (old, "It may have been deleted: its id is older than 30 days, which is how long runs are kept."),
            ("nonsense", "an id of a run has 32 digits from 0 to f, and no run has this one as its external id."),
            (new_id().hex, "for this sign-in."),
        ):
            eventually(lambda unknown=unknown: read_status(server, client, unknown), lambda status: status == 404)
            reader.visit(f"/runs/{unknown}")
            expect(main).to_contain_text(f"There is no run {unknown} for this sign-in")
            expect(main).to_contain_text(sentence)
            assert reader.page.get_by_role("link", name="Back to the runs").get_attribute("href") == "/runs"
        reader.allow_refusals()
        reader.check()
        reader.page.close()


def read_status(server: Server, client: Client, run_id: str) -> int:
    """Return the status with which a server answers for a run: 503 while a retention is under way."""
    with closing(server.client_of(client.tenant_id, client.token).http) as http:
        return http.get(f"/api/v1/runs/{run_id}").status_code


def test_axe_finds_nothing_on_the_live_pages(reader_of: ReaderOf, deployment: Deployment, client: Client):
    run_id = client.start(client.agent(FORM), "hello")["run_id"]
    client.wait_for(run_id, "waiting")
    reader = reader_of(deployment.server)
    reader.sign_in(client)

    for address in ("/login", "/runs", "/runs?status=failed", f"/runs/{run_id}?view=talk", f"/runs/{run_id}"):
        reader.visit(address)
        assert axe_findings(reader.page) == [], address
