"""What the head of a run's page shows: totals, names, waits, failures and rights."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from api.runs import critical_path
from scheduler.views.run_totals import NODE_COUNTS
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client, canvas, eventually, message
from tests.integration.api.test_activation_list import ITERATION

HANDLED = canvas(
    ("begin", "Begin", {}, ["VariableAssigner:0"]),
    (
        "VariableAssigner:0",
        "VariableAssigner",
        {
            "variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}],
            "exception_method": "goto",
            "exception_goto": ["Message:0"],
        },
        [],
    ),
    ("Message:0", "Message", message("instead"), []),
)
NOTHING = dict.fromkeys(("cancel", "answer", "raise_budget", "rerun", "fork", "share", "edit"), False)

MAY = {  # of a token of kind `api`, for a run that is over
    "cancel": False,
    "answer": False,
    "raise_budget": False,
    "rerun": True,
    "fork": True,
    "share": False,
    "edit": True,
}


def head(client: Client, run_id: str) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run_id}", params={"activations": "none"})
    assert reply.status_code == 200, reply.text
    return reply.json()


def counts_of(run: dict[str, Any], node_id: str) -> dict[str, Any]:
    """Return the counts of a node that are not 0."""
    return {name: value for name, value in zip(NODE_COUNTS, run["nodes"][node_id], strict=True) if value}


def test_head_of_a_run_has_everything_but_its_activations(client: Client) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]
    whole = client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    assert {name for name in whole if name not in run} == {"activations", "activations_truncated"}
    assert run["activations_total"] == run["activation_count"] == len(whole["activations"])
    changing = {"now"}
    assert {name: whole[name] for name in run if name not in changing} == {
        name: value for name, value in run.items() if name not in changing
    }


def test_finished_run_has_its_totals_by_status_and_node(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "hello")["run_id"]
    client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    model = counts_of(run, "LLM:0")
    assert run["counts"] == {"done": 3}
    assert set(run["nodes"]) == {"begin", "LLM:0", "Message:0"}
    assert (model["done"], model["attempts"]) == (1, 1)
    assert model["tokens"] == run["usage"]["total_tokens"] > 0
    assert model["first_started"] <= model["last_finished"] <= run["now"]
    assert run["revision"] > 0


def test_items_of_an_iteration_are_counted_by_node(client: Client) -> None:
    run_id = client.start(client.agent(ITERATION), "a,b,c")["run_id"]
    client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    assert counts_of(run, "StringTransform:0")["done"] == 3
    assert counts_of(run, "IterationItem:0")["done"] == 4
    assert run["activations_total"] == run["counts"]["done"] == 11


def test_run_has_the_names_of_its_agent_version_and_session(client: Client) -> None:
    agent = client.agent(ECHO, "The echo")
    first = client.start(agent)
    client.wait_for(first["run_id"], "succeeded")
    changed = canvas(
        ("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message("Changed: {sys.query}"), [])
    )
    before = head(client, first["run_id"])
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": changed})
    second = client.start(agent, session_id=first["session_id"], query="next")
    client.wait_for(second["run_id"], "succeeded")

    old, new = head(client, first["run_id"]), head(client, second["run_id"])

    assert (old["agent_title"], old["previous_run"], new["previous_run"]) == ("The echo", None, first["run_id"])
    assert before["version_digest"] == before["draft_digest"] == old["version_digest"] != old["draft_digest"]
    assert before["version_number"] == 1
    assert before["version_title"] == "", "a default title names the tenant"


def test_version_has_the_title_that_its_author_chose(client: Client) -> None:
    agent = client.agent(ECHO)
    client.http.post(f"/api/v1/agents/{agent}/publish", json={"title": "Greets"})

    run = head(client, client.start(agent)["run_id"])

    assert run["version_title"] == "Greets"


def test_run_of_a_deleted_agent_has_no_names_of_it(client: Client) -> None:
    agent = client.agent(ECHO)
    run_id = client.start(agent)["run_id"]
    client.wait_for(run_id, "succeeded")
    client.http.delete(f"/api/v1/agents/{agent}")

    run = head(client, run_id)

    assert (run["agent_title"], run["draft_digest"], run["may"]["edit"]) == (None, None, False)
    assert run["counts"] == {"done": 2}


def test_open_run_shows_what_it_waits_for_and_may_be_cancelled(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    run = head(workerless_client, run_id)
    explained = workerless_client.http.get(f"/api/v1/runs/{run_id}/explain").json()

    assert (run["waits"]["waits_for"], run["waits"]["node"]) == (explained["waits_for"], "begin")
    assert set(run["waits"]) == set(explained)
    assert counts_of(run, "begin") == {"ready": 1}
    assert run["may"] == {**MAY, "cancel": True}


def test_waiting_run_may_be_answered_and_keeps_its_first_request(client: Client) -> None:
    run_id = client.start(client.agent(FORM), "the first words")["run_id"]
    client.wait_for(run_id, "waiting")
    waiting = head(client, run_id)
    client.http.post(
        f"/api/v1/runs/{run_id}/resume",
        json={"query": "later", "inputs": {"name": {"value": "Ada"}}},
        headers={"Prefer": "wait=20"},
    )

    ended = head(client, run_id)

    assert waiting["may"] == {**MAY, "cancel": True, "answer": True}
    assert counts_of(waiting, "UserFillUp:0")["needs_input"] == 1
    assert waiting["counts"]["waiting"] == 1
    assert waiting["expires_at"] is not None
    assert ended["may"] == MAY
    assert ended["request"]["query"] == "later"
    assert (waiting["first_request"]["query"], ended["first_request"]["query"]) == ("the first words",) * 2


def test_failed_run_names_the_activation_that_failed(client: Client) -> None:
    run_id = client.start(client.agent(BROKEN))["run_id"]
    failed = client.wait_for(run_id, "failed")

    run = head(client, run_id)

    (step,) = [step for step in failed["activations"] if step["node_id"] == "VariableAssigner:0"]
    failure = run["first_failure"]
    assert (failure["activation_id"], failure["node_id"], failure["scope"]) == (step["id"], "VariableAssigner:0", "")
    assert failure["error"] == failed["error"]
    assert (counts_of(run, "VariableAssigner:0")["failed"], run["handled_failures"]) == (1, 0)


def test_failure_that_its_author_handles_does_not_fail_the_run(client: Client) -> None:
    run_id = client.start(client.agent(HANDLED))["run_id"]
    client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    counts = counts_of(run, "VariableAssigner:0")
    assert (run["first_failure"], run["handled_failures"]) == (None, 1)
    assert (counts.get("failed"), counts["handled"], counts.get("done")) == (None, 1, None)


def test_unknown_form_of_activations_is_refused(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}", params={"activations": "flat"})

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, "activations")


ADD_ACTIVATIONS = text("""
    insert into activations (run_id, id, node_id, component, scope, ordinal, order_key, region, level, trail, status,
        activated_rev, applied_rev)
    select :run_id, gen_random_uuid(), 'LLM:0', 'LLM', '', n, int4send(n), '', n, '[]', 'done', 1, 1
    from generate_series(1, :number) n
""")


def test_tree_of_more_than_two_thousand_activations_says_that_it_is_cut(
    workerless_server: Server, workerless_client: Client
) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    small = workerless_client.run(run_id)
    with workerless_server.database.transaction() as tx:
        tx.execute(ADD_ACTIVATIONS, run_id=UUID(run_id), number=2_000)

    run = workerless_client.run(run_id)

    assert (len(run["activations"]), run["activations_cut"], run["activations_total"]) == (2_000, True, 2_001)
    assert "activations_cut" not in small


def test_run_in_the_queue_of_its_session_cannot_be_repeated(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    queued = workerless_client.start(agent, session_id=first["session_id"], on_busy="enqueue")

    run = head(workerless_client, queued["run_id"])

    assert run["status"] == "queued"
    assert run["may"] == {**NOTHING, "cancel": True, "edit": True}


# -- models -----------------------------------------------------------------------------------------------------------
def test_usage_by_model_is_that_of_the_stored_calls(client: Client, server: Server) -> None:
    run_id = client.start(client.agent(MODEL), "hello")["run_id"]
    client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    (call,) = client.http.get(f"/api/v1/runs/{run_id}/model_calls").json()["calls"]
    (model,) = run["usage"]["by_model"]
    assert model == {
        **call["usage"], "model": "echo", "account": call["account"], "calls": 1, "failed": 0, "waited_ms": 0,
    }  # fmt: skip
    assert (run["usage"]["total_tokens"], run["model_calls"]) == (call["usage"]["total_tokens"], "full")

    with server.database.transaction() as tx:
        tx.execute(
            text("update model_calls set request = null, status = 'failed' where run_id = :run"), run=UUID(run_id)
        )
    run = head(client, run_id)
    assert (run["model_calls"], run["usage"]["by_model"][0]["failed"]) == ("usage", 1)

    with server.database.transaction() as tx:
        tx.execute(text("delete from model_calls where run_id = :run"), run=UUID(run_id))
    run = head(client, run_id)
    assert (run["model_calls"], run["usage"]["by_model"], run["usage"]["calls"]) == ("none", None, 1)


def test_run_without_model_calls_has_used_no_model(client: Client) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run_id, "succeeded")

    run = head(client, run_id)

    assert (run["model_calls"], run["usage"]) == (None, {"by_model": [], "by_model_cut": False})


# -- the critical path ------------------------------------------------------------------------------------------------
def critical(client: Client, run_id: str) -> Any:
    reply = client.http.get(f"/api/v1/runs/{run_id}", params={"activations": "none", "critical": "1"})
    assert reply.status_code == 200, reply.text
    return reply.json()["critical"]


def test_critical_path_of_a_run_leads_from_begin_to_its_end(client: Client) -> None:
    run_id = client.start(client.agent(ITERATION), "one two three")["run_id"]
    run = client.wait_for(run_id, "succeeded")

    path = critical(client, run_id)

    rows = client.http.get(f"/api/v1/runs/{run_id}/activations").json()
    place = rows["columns"].index("node_id")
    nodes = {row[0]: rows["strings"][row[place]] for row in rows["rows"]}
    names = [nodes[each] for each in path["steps"]]
    assert (names[0], names[-1]) == ("begin", "Message:0")
    assert "IterationItem:0" in names
    assert path["ms"] == sum(path["parts"].values()) > 0
    assert path["ms"] <= run["elapsed_ms"] + 1000
    assert (path["steps_total"], path["unavailable"]) == (len(names), None)
    assert "critical" not in head(client, run_id)


def test_critical_path_of_a_run_that_is_over_is_computed_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run_id, "succeeded")
    first = critical(client, run_id)

    monkeypatch.setattr(critical_path, "_compute", lambda *_: {"ms": -1})

    assert critical(client, run_id) == first


def test_time_until_an_answer_is_that_of_a_person(client: Client) -> None:
    run_id = client.start(client.agent(FORM))["run_id"]
    client.wait_for(run_id, "waiting")
    waiting = critical(client, run_id)
    later = eventually(lambda: critical(client, run_id), lambda path: path["parts"]["person"] > 50)
    client.http.post(
        f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": "Ada"}}}, headers={"Prefer": "wait=20"}
    )

    ended = critical(client, run_id)

    assert later["steps"] == waiting["steps"] == ended["steps"][:2]
    assert ended["parts"]["person"] > 50
    assert ended["ms"] == sum(ended["parts"].values())


def test_critical_path_of_a_huge_run_says_why_it_is_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run_id, "succeeded")
    monkeypatch.setattr(critical_path, "MAX_STEPS", 1)

    path = critical(client, run_id)

    assert (path["ms"], path["parts"], path["steps"]) == (None, None, None)
    assert path["unavailable"] == "The run has 2 activations. A critical path is computed of 1 at most."


def test_unknown_value_of_critical_is_refused(client: Client) -> None:
    run_id = client.start(client.agent(ECHO))["run_id"]

    assert client.http.get(f"/api/v1/runs/{run_id}", params={"critical": "yes"}).status_code in (400, 422)
