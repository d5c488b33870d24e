"""The list of runs by key, and the states of rows in view."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client


def get(client: Client, **query: Any) -> dict[str, Any]:
    reply = client.http.get("/api/v1/runs", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_pages_by_key_have_names_queries_and_progress(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO, "The echo")
    old, new = (workerless_client.start(agent, query) for query in ("first " * 50, "second"))

    first = get(workerless_client, limit=1)
    rest = get(workerless_client, limit=1, before=first["next"])

    (row,) = first["runs"]
    assert (row["id"], row["agent_title"], row["query"]) == (new["run_id"], "The echo", "second")
    assert (row["version_number"], row["waits"], row["failed_node"]) == (1, None, None)
    assert row["progress"] == {"activated": 1, "active": 1, "queued": 0}
    assert [each["id"] for each in rest["runs"]] == [old["run_id"]]
    assert rest["runs"][0]["query"] == ("first " * 50)[:200]
    assert (rest["next"], rest["searched_until"]) == (None, None)
    plain = get(workerless_client)["runs"][0]
    assert {name: row[name] for name in plain} == plain


def test_pages_have_every_run_once_while_runs_are_started(
    workerless_client: Client, workerless_server: Server
) -> None:  # T025
    agent = workerless_client.agent(ECHO)
    for _ in range(7):
        workerless_client.start(agent)
    with workerless_server.database.transaction() as tx:
        stored = text("select id from runs where tenant_id = :tenant order by id desc")
        expected = [row[0].hex for row in tx.rows(stored, tenant=workerless_client.tenant_id)]

    page = get(workerless_client, limit=2)
    seen = [run["id"] for run in page["runs"]]
    while page["next"]:
        workerless_client.start(agent)
        page = get(workerless_client, limit=2, before=page["next"])
        seen += [run["id"] for run in page["runs"]]

    assert seen == expected


def test_runs_are_filtered_searched_and_counted(workerless_client: Client) -> None:
    one, other = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "other")
    a, b = workerless_client.start(one, "needle in hay"), workerless_client.start(other, "hay")
    workerless_client.http.post(f"/api/v1/runs/{a['run_id']}/cancel")

    def ids(**query: Any) -> list[str]:
        return [run["id"] for run in get(workerless_client, **query)["runs"]]

    assert ids(q="NEEDLE hay") == [a["run_id"]]
    assert ids(q="other") == [b["run_id"]]
    assert ids(q=a["session_id"]) == [a["run_id"]]
    assert ids(q=b["message_id"]) == [b["run_id"]]
    assert ids(status="cancelled,failed") == [a["run_id"]]
    assert ids(agent_id=f"{one},{other}") == [b["run_id"], a["run_id"]]
    assert ids(version_id=workerless_client.run(b["run_id"])["version_id"]) == [b["run_id"]]
    assert ids(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-02"}) == []
    assert ids(trouble="1") == [a["run_id"]]  # a cancelled run has an error
    counted = get(workerless_client, limit=1, total="1")
    assert (counted["total"], counted["total_is_capped"]) == (2, False)


def test_states_of_runs_and_the_number_of_newer_ones(client: Client) -> None:
    agent = client.agent(FORM)
    first = client.start(agent)["run_id"]
    client.wait_for(first, "waiting")
    second = client.start(agent)["run_id"]
    client.wait_for(second, "waiting")
    client.http.post(f"/api/v1/runs/{second}/cancel")

    reply = client.http.get(
        "/api/v1/runs/states", params={"ids": f"{first},{second},{'0' * 32}", "newer_than": first}
    ).json()
    cancelled = client.http.get("/api/v1/runs/states", params={"newer_than": first, "status": "failed"}).json()

    states = {state["id"]: state for state in reply["runs"]}
    assert (states[first]["status"], states[first]["waits"]) == ("waiting", "person")
    assert (states[second]["status"], states[second]["waits"]) == ("cancelled", None)
    assert states[second]["elapsed_ms"] is not None
    assert (len(states), reply["newer"]) == (2, 1)
    assert (cancelled["runs"], cancelled["newer"]) == ([], 0)


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("runs", {"before": "x"}, "before"),
        ("runs", {"before": "0" * 32, "page": 2}, "page"),
        ("runs", {"limit": 5, "page_size": 5}, "page"),
        ("runs", {"limit": 101}, "limit"),
        ("runs", {"limit": 5, "external_id": "x"}, "external_id"),
        ("runs", {"status": "failed,odd"}, "status"),
        ("runs", {"from": "yesterday"}, "from"),
        ("runs", {"trouble": "yes"}, "trouble"),
        ("runs", {"q": "x" * 201}, "q"),
        ("runs", {"q": "a b c d e f g h i j k"}, "q"),
        ("runs", {"q": "x", "total": "1"}, "total"),
        ("runs", {"origin": "replayed"}, "origin"),
        ("runs", {"from": "0001-01-01T00:00+14:00"}, "from"),
        ("runs/states", {"ids": "x"}, "ids"),
        ("runs/states", {"ids": ",".join(["0" * 32] * 101)}, "ids"),
        ("runs/states", {"newer_than": "x"}, "newer_than"),
    ],
)
def test_invalid_query_is_refused_with_the_name_of_its_field(
    workerless_client: Client, path: str, query: dict[str, Any], field: str
) -> None:  # T145
    reply = workerless_client.http.get(f"/api/v1/{path}", params=query)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
