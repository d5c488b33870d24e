"""The versions of an agent for pages: a list with numbers, digests and runs, and documents without secrets."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from store.agents import version_list
from store.primitives.ids import first_id_at, new_id
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, MODEL, Client, canvas
from tests.integration.api.test_versions_gone import force_delete_version
from tests.integration.store.rows import add_run


def list_page(client: Client, agent: str, **params: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/viewer/agents/{agent}/versions", params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


def get(client: Client, agent: str, version: str) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/viewer/agents/{agent}/versions/{version}")
    assert reply.status_code == 200, reply.text
    return reply.json()


def save(client: Client, agent: str, dsl: dict[str, Any], **fields: Any) -> None:
    assert client.http.put(f"/api/v1/agents/{agent}", json={"dsl": dsl, **fields}).json()["code"] == 0


def set_recency(server: Server, run: str, days: int) -> None:
    """Move a run into the past, as its id tells."""
    with server.database.transaction() as tx:
        moment = tx.scalar(text("select now() - make_interval(days => :days)"), days=days)
        tx.execute(
            text("update runs set id = :moved where id = :id"),
            moved=UUID(int=first_id_at(moment).int | new_id().int & (1 << 62) - 1),
            id=UUID(run),
        )


def test_versions_are_listed_newest_first_with_numbers_and_the_one_that_the_draft_equals(
    workerless_client: Client,
) -> None:
    agent = workerless_client.agent(ECHO)
    publication = {"title": "First", "description": "greets"}
    workerless_client.http.post(f"/api/v1/agents/{agent}/publish", json=publication)
    save(workerless_client, agent, FORM)
    save(workerless_client, agent, ECHO)

    listed = list_page(workerless_client, agent)

    newest, form, first = listed["versions"]
    assert [each["number"] for each in listed["versions"]] == [3, 2, 1]
    assert [each["published"] for each in listed["versions"]] == [False, False, True]
    assert [each["same_as_draft"] for each in listed["versions"]] == [True, False, True]
    assert (first["title"], first["description"]) == ("First", "greets")
    assert newest["digest"] == first["digest"] != form["digest"]
    assert newest["created_at"] > form["created_at"] > first["created_at"]
    assert listed["next"] is None
    assert listed["now"] > 1_700_000_000_000


def test_runs_of_the_last_30_days_are_counted_for_each_version(
    workerless_client: Client, workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = workerless_client.agent(ECHO)
    runs = [workerless_client.start(agent)["run_id"] for _ in range(3)]
    set_recency(workerless_server, runs[0], days=31)
    save(workerless_client, agent, FORM)
    workerless_client.start(agent)
    stranger = workerless_server.client()
    (version,) = [each["id"] for each in list_page(workerless_client, agent)["versions"] if each["number"] == 1]
    with workerless_server.database.transaction() as tx:
        add_run(tx, stranger.tenant_id, version_id=UUID(version))

    newest, first = list_page(workerless_client, agent)["versions"]

    assert (newest["runs_30d"], first["runs_30d"]) == (1, 2)
    assert not newest["runs_30d_is_capped"]
    monkeypatch.setattr(version_list, "MAX_COUNTED_RUNS", 1)
    monkeypatch.setattr("api.viewer.versions.MAX_COUNTED_RUNS", 1)
    newest, first = list_page(workerless_client, agent)["versions"]
    assert [(each["runs_30d"], each["runs_30d_is_capped"]) for each in (newest, first)] == [(1, False), (1, True)]


def test_pages_contain_each_version_once(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    for number in range(6):
        save(workerless_client, agent, canvas(("begin", "Begin", {"prologue": str(number)}, [])))
    whole = list_page(workerless_client, agent)["versions"]

    paged: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while True:
        page = list_page(workerless_client, agent, limit=3, **before)
        assert len(page["versions"]) <= 3
        paged += page["versions"]
        if page["next"] is None:
            break
        before = {"before": page["next"]}

    assert paged == whole
    assert len(whole) == 7


def test_deleted_version_is_not_listed_or_shown_and_the_numbers_of_others_stay(client: Client) -> None:
    agent = client.agent(ECHO)
    started = client.start(agent)
    client.wait_for(started["run_id"], "succeeded")
    save(client, agent, FORM)
    _, first = list_page(client, agent)["versions"]

    force_delete_version(client, agent, first["id"])

    assert [each["number"] for each in list_page(client, agent)["versions"]] == [2]
    reply = client.http.get(f"/api/v1/viewer/agents/{agent}/versions/{first['id']}")
    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
    assert list_page(client, agent, before=first["id"])["versions"] == []  # a page may begin after it


def test_version_and_draft_are_shown_with_their_documents(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    (version,) = list_page(workerless_client, agent)["versions"]
    save(workerless_client, agent, MODEL)

    shown, draft = get(workerless_client, agent, version["id"]), get(workerless_client, agent, "draft")

    of_ragflow = workerless_client.http.get(f"/api/v1/agents/{agent}/versions/{version['id']}").json()["data"]
    assert shown["document"] == of_ragflow["dsl"]
    assert set(shown["document"]["components"]) == set(ECHO["components"])
    newest, first = list_page(workerless_client, agent)["versions"]
    assert {name: shown[name] for name in first} == first
    assert set(draft["document"]["components"]) == set(MODEL["components"])
    assert (draft["id"], draft["title"], draft["same_as_draft"]) == ("draft", "agent", True)
    assert draft["digest"] == newest["digest"]


def test_documents_show_no_secret_in_clear(workerless_client: Client) -> None:
    params = {
        "prologue": "hi",
        "mode": "Webhook",
        "security": {"auth_type": "token", "token": {"token_value": "s3cr3t"}},
    }
    search = {"api_key": "tvly-s3cr3t", "query": "x"}
    dsl = canvas(("begin", "Begin", params, ["TavilySearch:0"]), ("TavilySearch:0", "TavilySearch", search, []))
    agent = workerless_client.agent(dsl)
    (version,) = list_page(workerless_client, agent)["versions"]

    for shown in (get(workerless_client, agent, version["id"]), get(workerless_client, agent, "draft")):
        written = str(shown["document"])
        assert "s3cr3t" not in written
        assert "easel-sealed" not in written
        assert "••••" in written


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": "9" * 20}, "limit"),
        ({"before": "x"}, "before"),
        ({"before": "0" * 32}, "before"),
        ({"page": "1"}, "page"),
    ],
)
def test_invalid_parameter_is_refused_and_named(workerless_client: Client, params: dict[str, str], field: str) -> None:
    agent = workerless_client.agent(ECHO)

    reply = workerless_client.http.get(f"/api/v1/viewer/agents/{agent}/versions", params=params)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)


def test_page_after_a_version_of_another_agent_is_refused(workerless_client: Client) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    (version,) = list_page(workerless_client, other)["versions"]

    path = f"/api/v1/viewer/agents/{agent}/versions"
    assert workerless_client.http.get(path, params={"before": version["id"]}).status_code == 400
    assert workerless_client.http.get(f"{path}/{version['id']}").status_code == 404


@pytest.mark.parametrize("path", ["versions", "versions/draft", "versions/00000000000000000000000000000001"])
def test_unknown_and_foreign_agents_are_not_found(
    workerless_client: Client, workerless_server: Server, path: str
) -> None:
    stranger = workerless_server.client()
    theirs = stranger.agent(ECHO)

    for agent in (theirs, "0" * 32, "x"):
        reply = workerless_client.http.get(f"/api/v1/viewer/agents/{agent}/{path}")
        assert (reply.status_code, reply.json()["message"]) == (404, f"There is no agent {agent}.")
