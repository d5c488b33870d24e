"""A run asks whether a node whose worker was lost has acted, and a request answers."""

from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.lost_workers import register_post, start_and_lose_worker
from tests.integration.api.talking import Client


@pytest.fixture(autouse=True)
def unsafe_component(monkeypatch: pytest.MonkeyPatch) -> None:
    register_post(monkeypatch)


def resume(client: Client, run: str, **body: Any) -> Any:
    return client.http.post(f"/api/v1/runs/{run}/resume", json=body, headers={"Prefer": "wait=20"})


def test_run_with_an_unknown_outcome_continues_after_the_answer_happened(server: Server, client: Client):  # T073
    run = start_and_lose_worker(server, client)
    waiting = client.run(run)["waiting"]["Post:0"]

    reply = resume(client, run, outcomes={"Post:0": "happened"}, inputs={"Post:0.outputs": {"id": "7"}})

    assert waiting["tips"].startswith('It is not known whether "the Post:0" (Post:0) has happened')
    assert list(waiting["inputs"]) == ["Post:0.outcome", "Post:0.outputs"]
    assert reply.json()["content"] == "Posted 7."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 1, 1]


def test_answer_again_to_an_unknown_outcome_starts_another_attempt(server: Server, client: Client):  # T073
    run = start_and_lose_worker(server, client)

    reply = resume(client, run, inputs={"Post:0.outcome": {"value": "again"}})

    assert reply.json()["content"] == "Posted once more."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 2, 1]


def test_invalid_answer_to_an_unknown_outcome_is_refused_and_the_run_still_waits(server: Server, client: Client):
    run = start_and_lose_worker(server, client)

    unknown = resume(client, run, outcomes={"Post:1": "again"})
    vague = resume(client, run, outcomes={"Post:0": "perhaps"})

    assert (unknown.status_code, vague.status_code) == (400, 400)
    assert 'Nothing is asked about "Post:1"' in unknown.json()["message"]
    assert client.run(run)["status"] == "waiting"
