"""`POST /runs/cancel`: cancel many runs with one request."""

from typing import Any

import pytest

from scheduler.lifecycle import cancellation
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client
from tests.integration.api.test_external_ids import send

PATH = "/api/v1/runs/cancel"


def cancel(client: Client, ids: list[str], **headers: str) -> dict[str, Any]:
    reply = client.http.post(PATH, json={"ids": ids}, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_each_id_is_reported_once_as_cancelled_over_or_unknown(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent = workerless_client.agent(ECHO)
    running, over = (workerless_client.start(agent)["run_id"] for _ in range(2))
    cancel(workerless_client, [over])
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent)
    send(workerless_server, workerless_client.tenant_id.hex, "refused-1", "no agent")
    stranger = workerless_server.client()
    foreign = stranger.start(stranger.agent(ECHO))["run_id"]
    unknown = [foreign, "0" * 32, "nothing", "", "x" * 300, "a\nb"]

    reply = cancel(workerless_client, [running, over, running, "order-4711", "refused-1", *unknown])

    assert reply == {"cancelled": [running, "order-4711"], "over": [over, "refused-1"], "unknown": unknown}
    assert workerless_client.run(running)["status"] == "cancelled"
    assert workerless_client.run("order-4711")["status"] == "cancelled"
    assert stranger.run(foreign)["status"] == "running"


def test_queued_run_is_cancelled_before_the_run_that_it_waits_for(
    workerless_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = workerless_client.agent(ECHO)
    active = workerless_client.start(agent)
    queued = workerless_client.start(agent, session_id=active["session_id"], on_busy="enqueue")
    order: list[str] = []
    cancel_one = cancellation._cancel

    def cancel_and_note(lifecycle: Any, tenant_id: Any, run_id: Any, by: Any) -> Any:
        order.append(run_id.hex)
        return cancel_one(lifecycle, tenant_id, run_id, by)

    monkeypatch.setattr(cancellation, "_cancel", cancel_and_note)

    reply = cancel(workerless_client, [active["run_id"], queued["run_id"]])

    assert reply["cancelled"] == [active["run_id"], queued["run_id"]]
    assert order == [queued["run_id"], active["run_id"]]


def test_run_that_ends_before_its_cancel_is_over(workerless_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    monkeypatch.setattr(cancellation, "_cancel", lambda *_: cancellation.RunStatus.SUCCEEDED)

    assert cancel(workerless_client, [run]) == {"cancelled": [], "over": [run], "unknown": []}


def test_run_that_is_deleted_before_its_cancel_is_unknown(
    workerless_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    monkeypatch.setattr(cancellation, "_cancel", lambda *_: None)

    assert cancel(workerless_client, [run]) == {"cancelled": [], "over": [], "unknown": [run]}


def test_repeat_with_an_idempotency_key_gets_the_first_reply(workerless_client: Client) -> None:
    run = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    replies = [cancel(workerless_client, [run], **{"Idempotency-Key": "stop these"}) for _ in range(2)]

    assert replies[0] == replies[1] == {"cancelled": [run], "over": [], "unknown": []}
    assert cancel(workerless_client, [run])["over"] == [run]


def test_five_hundred_ids_are_accepted_and_none_is_fine(workerless_client: Client) -> None:
    ids = [f"{number:032x}" for number in range(500)]

    assert cancel(workerless_client, ids) == {"cancelled": [], "over": [], "unknown": ids}
    assert cancel(workerless_client, []) == {"cancelled": [], "over": [], "unknown": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ids": ["x"] * 501}, "ids"),
        ({"ids": "x"}, "ids"),
        ({"ids": [1]}, "ids.0"),
        ({}, "ids"),
        ({"ids": [], "status": "running"}, "status"),
    ],
)
def test_invalid_body_is_refused_and_its_field_named(workerless_client: Client, body: Any, field: str) -> None:
    reply = workerless_client.http.post(PATH, json=body)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
