"""Figures of a tenant's runs for pages."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text, update

from api.viewer import overview as route
from api.viewer import state
from store.db.transaction import Transaction
from store.monitoring import model_usage, overview
from store.tables.runs import runs
from tests.integration.api.conftest import Server, start_server
from tests.integration.api.talking import ECHO, FORM, MODEL, Client

PATH = "/api/v1/viewer/overview"


def figures(client: Client, **params: Any) -> dict[str, Any]:
    reply = client.http.get(PATH, params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


def set_usage(server: Server, run: str, usage: dict[str, int], *, status: str = "succeeded", seconds: int = 2) -> None:
    """Let a run have ended with this usage, after some seconds."""
    with server.database.transaction() as tx:
        (row,) = tx.rows(text("select now() as now, now() + make_interval(secs => :s) as then"), s=seconds)
        changes = {"usage": usage, "status": status, "started_at": row.now, "finished_at": row.then}
        tx.execute(update(runs).where(runs.c.id == UUID(run)).values(**changes))


def test_tiles_buckets_and_agents_show_the_runs_of_the_last_day(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    first, second, third = (workerless_client.start(each)["run_id"] for each in (agent, agent, other))
    set_usage(workerless_server, first, {"total_tokens": 10, "cost_USD": 2_500_000_000, "unpriced_calls": 1})
    set_usage(workerless_server, second, {"total_tokens": 5}, status="failed", seconds=4)

    shown = figures(workerless_client, buckets=4)

    ended = {"cancelled": 0, "p50_ms": 3000, "p95_ms": 3900, "tokens": 15, "cost": {"USD": 2.5}, "unpriced_calls": 1}
    assert shown["tiles"] == {
        "runs": 3, "succeeded": 1, "failed": 1, "active": 1, "failure_rate": 0.5, "waiting": 0,
        "waiting_is_capped": False, **ended,
    }  # fmt: skip
    assert len(shown["buckets"]) == 4
    assert {name: value for name, value in shown["buckets"][-1].items() if name != "t"} == {
        "succeeded": 1, "failed": 1, "active": 1, **ended,
    }  # fmt: skip
    assert shown["buckets"][0]["p50_ms"] is None
    steps = [b["t"] - a["t"] for a, b in zip(shown["buckets"], shown["buckets"][1:], strict=False)]
    assert all(abs(step - 6 * 3600 * 1000) <= 1 for step in steps)
    assert [(each["agent_id"], each["title"], each["runs"]) for each in shown["agents"]] == [
        (agent, "agent", 2),
        (other, "other", 1),
    ]
    assert (shown["capped"], shown["counted_from"]) == (False, None)
    assert (shown["agents_cut"], shown["nodes_cut"]) == (False, False)
    assert workerless_client.run(third)["status"] == "running"


def test_figures_of_one_agent_and_of_an_earlier_range(workerless_client: Client) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    for each in (agent, agent, other):
        workerless_client.start(each)

    assert figures(workerless_client, agent_id=agent)["tiles"]["runs"] == 2
    assert figures(workerless_client, agent_id="nothing")["tiles"]["runs"] == 0
    earlier = figures(workerless_client, **{"from": "2026-01-01", "to": "2026-01-02"})
    assert earlier["tiles"]["runs"] == 0
    assert (earlier["from"], earlier["to"]) == ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")


def test_runs_of_another_tenant_are_not_counted(workerless_client: Client, workerless_server: Server) -> None:
    stranger = workerless_server.client()
    theirs = stranger.agent(ECHO)
    stranger.start(theirs)

    shown = figures(workerless_client, agent_id=theirs)

    assert (shown["tiles"]["runs"], shown["agents"], shown["nodes"], shown["waiting"]) == (0, [], [], [])


def test_run_that_waits_is_listed_with_the_sentence_that_explains_it(client: Client) -> None:
    agent = client.agent(FORM)
    run = client.start(agent)["run_id"]
    client.wait_for(run, "waiting")
    explained = client.http.get(f"/api/v1/runs/{run}/explain").json()

    shown = figures(client)

    (waiting,) = shown["waiting"]
    assert (waiting["run_id"], waiting["agent_id"], waiting["agent"]) == (run, agent, "agent")
    assert (waiting["waits_for"], waiting["since"]) == ("person", explained["since"])
    assert waiting["sentence"].partition(" and fails")[0] == explained["sentence"].partition(" and fails")[0]
    assert shown["tiles"]["waiting"] == 1
    assert {each["node_id"] for each in shown["nodes"]} >= {"begin"}


def test_reply_is_shown_again_while_it_is_recent(workerless_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_AGE", 3600)
    with start_server(workerless_server.config) as server:
        client, stranger = server.client(), server.client()
        agent = client.agent(ECHO)
        before = figures(client)
        client.start(agent)

        assert figures(client) == before
        assert figures(client, buckets=3)["tiles"]["runs"] == 1
        assert figures(stranger, buckets=3)["tiles"]["runs"] == 0


def test_figures_of_fewer_runs_are_shown_if_those_of_all_take_too_long(
    workerless_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = workerless_client.agent(ECHO)
    runs_of_agent = [workerless_client.start(agent)["run_id"] for _ in range(3)]
    load = overview.load_overview

    def load_slowly(tx: Any, tenant_id: Any, chosen: Any, max_runs: int) -> Any:
        if max_runs == overview.MAX_RUNS:
            tx.rows(text("select set_config('statement_timeout', '10', true)"))
            tx.rows(text("select pg_sleep(30)"))
        return load(tx, tenant_id, chosen, max_runs)

    monkeypatch.setattr(overview, "load_overview", load_slowly)
    monkeypatch.setattr(route, "FEWER_RUNS", 2)

    shown = figures(workerless_client)

    assert (shown["tiles"]["runs"], shown["capped"]) == (2, True)
    counted = workerless_client.run(runs_of_agent[1])
    assert shown["counted_from"][:19] <= counted["created_at"][:19]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-01-01", "from": "2026-01-02"}, "from"),
        ({"from": "2026-01-01", "to": "2026-03-01"}, "from"),
        ({"buckets": "1000"}, "buckets"),
        ({"agent": "x"}, "agent"),
    ],
)
def test_invalid_parameter_is_refused_and_named(workerless_client: Client, params: dict[str, str], field: str) -> None:
    reply = workerless_client.http.get(PATH, params=params)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)


def test_parameter_from_is_in_the_list_of_an_error(workerless_client: Client) -> None:
    reply = workerless_client.http.get(PATH, params={"form": "2026-01-01"})

    assert "Its parameters are: from, " in reply.json()["message"]


# -- models -----------------------------------------------------------------------------------------------------------
def test_models_are_those_of_the_stored_calls_of_the_tenant(client: Client, server: Server) -> None:
    agent = client.agent(MODEL)
    first, second = (client.start(agent, "hello")["run_id"] for _ in range(2))
    for run_id in (first, second):
        client.wait_for(run_id, "succeeded")
    with server.database.transaction() as tx:
        tx.execute(text("delete from model_calls where run_id = :run"), run=UUID(second))
    other = server.client()
    other_run = other.start(other.agent(MODEL))["run_id"]
    other.wait_for(other_run, "succeeded")

    shown = figures(client)

    (call,) = client.http.get(f"/api/v1/runs/{first}/model_calls").json()["calls"]
    (model,) = shown["models"]
    assert (model["model"], model["account"], model["calls"], model["failed"]) == ("echo", call["account"], 1, 0)
    assert model["total_tokens"] == call["usage"]["total_tokens"]
    assert (shown["models_of_runs"], shown["runs_without_model_calls"], shown["models_cut"]) == (2, 1, False)
    assert figures(client, agent_id=agent, buckets=3)["models"] == shown["models"]
    assert figures(client, agent_id="nothing")["models"] == []


def test_models_are_null_if_counting_them_takes_too_long(
    workerless_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(tx: Transaction, *_: Any) -> Any:
        return tx.rows(text("select pg_sleep(10)"))

    workerless_client.start(workerless_client.agent(ECHO))
    monkeypatch.setattr(model_usage, "load_usage_of_range", sleep)

    shown = figures(workerless_client)

    assert shown["models"] is None
    assert shown["tiles"]["runs"] == 1
