"""Tool calls of an Agent: each row says which attempt made it, where in its round, and how it ended."""

from sqlalchemy import text

from components.text.json_in_text import to_storable_json
from store.runs import attempt_records
from store.runs.attempt_records import ToolCallRow
from tests.integration.engine import Bench, Run, at_work
from tests.integration.worker.scripted_vendor import HANGS, MODEL, calls, said, vendor_of
from tests.integration.worker.test_model_calls import ADD, agent, calls_of, played, started

TWO_CALLS = [*calls("a"), {"tool_calls": [{**calls("b")[0]["tool_calls"][0], "index": 1}]}]


def test_tool_calls_have_their_attempt_round_and_ordinal(bench: Bench):
    with vendor_of(TWO_CALLS, calls("c"), said("Done.")) as served:
        run = played(bench, served, agent())

    found = tool_calls_of(run)
    assert sorted((call.round, call.ordinal, call.body["arguments"]["query"]) for call in found) == [
        ("round:0", 0, "a"),
        ("round:0", 1, "b"),
        ("round:1", 0, "c"),
    ]
    row = run.activation("model")
    assert {(call.activation_id, call.node_id, call.attempt, call.failed, call.replayed) for call in found} == {
        (row.id, "model", 1, False, False)
    }
    assert all(row.started_at <= call.started_at <= row.finished_at for call in found)


def test_calls_of_a_sub_agent_have_the_place_of_its_tool_call(bench: Bench):
    helper = {
        "component_name": "Agent",
        "name": "Helper",
        "params": {"llm_id": MODEL, "sys_prompt": "You help.", "tools": [ADD], "max_rounds": 3},
    }
    asks = calls("x", name="Helper_0", user_prompt="Search.", reasoning="Because.")
    with vendor_of(asks, calls("a"), said("Helped."), said("Done.")) as served:
        run = played(bench, served, agent(tools=[helper]))

    assert run.status == "succeeded"
    assert [(call.round, call.status) for call in calls_of(run)] == [
        ("round:0", "ok"),
        ("0:0/round:0", "ok"),
        ("0:0/round:1", "ok"),
        ("round:1", "ok"),
    ]
    assert [(call.round, call.ordinal) for call in tool_calls_of(run)] == [("0:0/round:0", 0), ("round:0", 0)]


def test_failed_tool_call_is_marked(bench: Bench):
    with vendor_of(calls("a", name="no_such_tool"), said("Done.")) as served:
        run = played(bench, served, agent())

    (call,) = tool_calls_of(run)
    assert (call.failed, call.body["result"]) == (True, "LLM tool no_such_tool does not exist")


def test_replayed_tool_call_is_a_row_of_the_later_attempt_which_lists_of_turns_leave_out(bench: Bench):  # T064
    with vendor_of(calls("a"), HANGS, said("Done.")) as served:
        bench.accounts = [served.account]
        run = started(bench, agent())
        leaving = bench.a_worker(services=served.services)
        with at_work(bench, leaving):
            assert served.is_hanging.wait(30)
            leaving.close()
        bench.play(bench.a_worker(services=served.services))

    made, replayed = tool_calls_of(run)
    assert [(call.attempt, call.replayed) for call in (made, replayed)] == [(1, False), (2, True)]
    assert (made.round, made.ordinal) == (replayed.round, replayed.ordinal) == ("round:0", 0)
    assert made.body["result"] == replayed.body["result"]
    with bench.database.transaction() as tx:
        (listed,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])
        (of_turn,) = attempt_records.find_tool_calls(tx, bench.tenant_id, run.id, run.row["message_id"])
    assert len(listed["trace"]) == len(of_turn["trace"]) == 1


def test_tool_call_of_an_earlier_release_has_no_activation(bench: Bench):
    with vendor_of(calls("a"), said("Done.")) as served:
        run = played(bench, served, agent())
    with bench.database.transaction() as tx:
        tx.execute(
            text("""
                update tool_calls set activation_id = null, attempt = null, round = null, ordinal = null,
                    started_at = null, failed = null, replayed = null where run_id = :run_id
            """),
            run_id=run.id,
        )

    (call,) = tool_calls_of(run)
    assert (call.activation_id, call.replayed, call.body["tool_name"]) == (None, None, "tavily_search_0")
    with bench.database.transaction() as tx:
        (listed,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])
    assert [to_storable_json(each) for each in listed["trace"]] == [call.body]


def tool_calls_of(run: Run) -> list[ToolCallRow]:
    with run.bench.database.transaction() as tx:
        return attempt_records.list_calls_of_run(tx, run.bench.tenant_id, run.id)
