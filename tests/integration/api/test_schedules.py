"""Schedules over HTTP: fields, errors that name them, runs that are started, and their origin."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.schedules.firing import Firing
from store.agents import schedules
from store.tenants import tenants
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, canvas

DAILY = {"cron": "30 7 * * *", "time_zone": "Europe/Berlin"}


def create(client: Client, agent: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
    """Create a schedule; return the reply."""
    body = {"agent_id": agent, "spec": DAILY, **fields}
    return client.http.post("/api/v1/schedules", json=body, headers=dict(headers or {}))


def test_created_schedule_is_shown_with_its_defaults_and_next_slots(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    reply = create(workerless_client, agent, start={"query": "hello", "version": "latest"})

    assert reply.status_code == 201
    made = reply.json()
    assert made["name"] == "30 7 * * * Europe/Berlin"
    assert (made["agent_id"], made["spec"], made["status"]) == (agent, DAILY, "active")
    assert (made["session"], made["overlap"]) == ("new", "skip")
    assert made["catch_up"] == {"window_seconds": 3600, "at_most": 1}
    assert made["start"] == {"query": "hello", "version": "latest"}
    assert made["created_by"] is not None
    assert len(made["next_slots"]) == 5
    assert made["next_slots"][0] == made["next_at"]
    shown = workerless_client.http.get(f"/api/v1/schedules/{made['id']}").json()
    assert {**shown, "now": made["now"]} == made


def test_repeated_creation_with_a_key_creates_one_schedule(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    key = {"Idempotency-Key": "once"}

    first, second = (create(workerless_client, agent, key) for _ in range(2))

    assert first.json() == second.json()
    assert len(list_of(workerless_client)) == 1


def test_list_is_filtered_by_agent_and_read_in_pages(workerless_client: Client) -> None:
    one, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    made = [create(workerless_client, agent).json()["id"] for agent in (one, other, one)]

    page = workerless_client.http.get("/api/v1/schedules", params={"agent_id": one, "limit": 1}).json()
    rest = workerless_client.http.get("/api/v1/schedules", params={"agent_id": one, "after": page["next"]}).json()

    assert [each["id"] for each in (*page["schedules"], *rest["schedules"])] == [made[0], made[2]]
    assert rest["next"] is None
    assert [each["id"] for each in list_of(workerless_client)] == made


def test_changed_paused_and_resumed_schedule_shows_its_next_slot(workerless_client: Client) -> None:
    path = path_of(create(workerless_client, workerless_client.agent(ECHO)))
    http = workerless_client.http

    changed = http.patch(path, json={"spec": {"every_seconds": 60}, "max_runs": 2, "name": "Often"}).json()
    paused = http.post(f"{path}/pause", json={"reason": "holiday"}).json()
    resumed = http.post(f"{path}/resume").json()

    assert (changed["name"], changed["spec"], changed["max_runs"]) == ("Often", {"every_seconds": 60, "offset": 0}, 2)
    assert len(changed["next_slots"]) == 2
    assert (paused["status"], paused["paused_reason"], paused["next_at"]) == ("paused", "holiday", None)
    assert (resumed["status"], resumed["paused_reason"]) == ("active", "")
    assert datetime.fromisoformat(resumed["next_at"]) <= datetime.now(UTC) + timedelta(minutes=2)
    assert http.patch(path, json={"max_runs": 0}).json()["max_runs"] is None


def test_triggered_run_says_where_it_comes_from(workerless_client: Client) -> None:
    made = create(workerless_client, workerless_client.agent(ECHO), start={"query": "hello"}, paused=True).json()
    path, http = f"/api/v1/schedules/{made['id']}", workerless_client.http
    key = {"Idempotency-Key": "now"}

    first, repeated = (http.post(f"{path}/trigger", json={}, headers=key) for _ in range(2))
    refused = http.post(f"{path}/trigger", json={})
    third = http.post(f"{path}/trigger", json={"overlap": "cancel_previous"}).json()

    assert first.status_code == 202
    assert first.json() == repeated.json()
    run = workerless_client.run(first.json()["run_id"])
    assert run["origin"] == {
        "kind": "schedule", "run_id": None, "from": None, "edits": None,
        "schedule_id": made["id"], "slot": run["origin"]["slot"], "by_hand": True,
    }  # fmt: skip
    assert (refused.status_code, refused.json()["details"]["run_id"]) == (409, run["id"])
    assert run["status"] == "cancelled"
    listed = http.get("/api/v1/runs", params={"origin": "schedule"}).json()["runs"]
    assert [each["id"] for each in listed] == [third["run_id"], run["id"]]
    fires = http.get(f"{path}/fires").json()["fires"]
    assert [(each["run_id"], each["outcome"], each["by_hand"]) for each in fires] == [
        (third["run_id"], "started", True), (run["id"], "started", True),
    ]  # fmt: skip


def test_fires_are_read_in_pages(workerless_client: Client, workerless_server: Server) -> None:
    made = create(workerless_client, workerless_client.agent(ECHO)).json()
    first = datetime(2026, 11, 4, 12, tzinfo=UTC)
    with workerless_server.database.transaction() as tx:
        row = schedules.lock(tx, workerless_client.tenant_id, UUID(made["id"]))
        for hour in range(3):
            schedules.add_fire(tx, row, first + timedelta(hours=hour), "skipped", reason="busy")
    path = f"/api/v1/schedules/{made['id']}/fires"

    page = workerless_client.http.get(path, params={"limit": 2}).json()
    rest = workerless_client.http.get(path, params={"before": page["next"]}).json()

    found = [datetime.fromisoformat(each["slot"]) for each in (*page["fires"], *rest["fires"])]
    assert found == [first + timedelta(hours=hour) for hour in (2, 1, 0)]
    assert rest["next"] is None


def test_run_of_a_slot_is_executed_by_workers(client: Client, server: Server, engine: Any) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    made = create(client, client.agent(ECHO), spec={"at": at.isoformat()}, start={"query": "on time"}).json()
    firing = Firing(Lifecycle(engine.coordinator), lambda: at + timedelta(seconds=1))

    assert firing.fire_due() >= 1

    shown = client.http.get(f"/api/v1/schedules/{made['id']}").json()
    assert (shown["status"], shown["next_at"], shown["runs"]) == ("ended", None, 1)
    run = client.wait_for(shown["last_run_id"], "succeeded", "failed")
    assert (run["status"], run["request"]["query"]) == ("succeeded", "on time")


def test_preview_shows_slots_in_the_time_zone_and_stores_nothing(workerless_client: Client) -> None:
    body = {"spec": {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}, "after": "2026-03-28T12:00:00Z", "number": 2}

    reply = workerless_client.http.post("/api/v1/schedules/preview", json=body).json()

    assert [slot["local"] for slot in reply["slots"]] == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    assert reply["slots"][0]["at"] == "2026-03-29T01:00:00+00:00"
    assert list_of(workerless_client) == []


def test_deleted_schedule_and_those_of_a_deleted_agent_are_gone(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    paths = [path_of(create(workerless_client, agent)) for _ in range(2)]

    deleted = workerless_client.http.delete(paths[0])
    workerless_client.http.delete(f"/api/v1/agents/{agent}")

    assert deleted.status_code == 204
    assert [workerless_client.http.get(path).status_code for path in paths] == [404, 404]
    assert list_of(workerless_client) == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"agent_id": None}, "agent_id", "Send the id of the agent"),
        ({"spec": None}, "spec", "Send one of"),
        ({"spec": {"cron": "61 * * * *"}}, "spec.cron", "minute"),
        ({"spec": {"cron": "* * * * *", "time_zone": "Berlin"}}, "spec.time_zone", "IANA"),
        ({"overlap": "never"}, "overlap", "cancel_previous"),
        ({"start": {"qurey": "x"}}, "start", 'Did you mean "query"'),
        ({"start": {"session_id": "x"}}, "start.session_id", "`session`"),
        ({"every": 5}, "every", "Its fields are"),
    ],
)
def test_error_names_the_field_and_the_remedy(
    workerless_client: Client, fields: Mapping[str, Any], field: str, words: str
) -> None:
    reply = create(workerless_client, workerless_client.agent(ECHO), **fields)

    assert reply.status_code == 400
    assert reply.json()["details"]["field"] == field
    assert words in reply.json()["message"]


def test_password_of_a_form_is_refused_because_a_schedule_would_show_it(workerless_client: Client) -> None:
    agent = workerless_client.agent(
        canvas(
            (
                "begin",
                "Begin",
                {"mode": "task", "inputs": {"login": {"type": "password"}, "user": {"type": "line"}}},
                [],
            )
        )
    )

    refused = create(workerless_client, agent, start={"inputs": {"login": "hunter2", "user": "ada"}})
    accepted = create(workerless_client, agent, start={"inputs": {"user": "ada"}})

    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "start.inputs.login")
    assert "hunter2" not in refused.text
    assert accepted.status_code == 201


def test_token_that_only_reads_changes_no_schedule(workerless_client: Client, workerless_server: Server) -> None:
    path = path_of(create(workerless_client, workerless_client.agent(ECHO)))
    with workerless_server.database.transaction() as tx:
        _, token = tenants.create_token(tx, workerless_client.tenant_id, "reader", "viewer")
    reader = workerless_server.client_of(workerless_client.tenant_id, token)

    assert reader.http.get(path).status_code == 200
    assert reader.http.patch(path, json={"name": "x"}).status_code == 403
    assert reader.http.post(f"{path}/trigger", json={}).status_code == 403
    assert reader.http.delete(path).status_code == 403
    reader.http.close()


def list_of(client: Client) -> list[dict[str, Any]]:
    return client.http.get("/api/v1/schedules").json()["schedules"]


def path_of(reply: Any) -> str:
    return f"/api/v1/schedules/{reply.json()['id']}"
