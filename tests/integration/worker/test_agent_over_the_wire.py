"""An Agent with the real SDK, against servers with the protocols of chat completions and of a search engine."""

from typing import Any

from components.context import THINK_END, THINK_START
from store.runs import attempt_records
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work
from tests.integration.worker.scripted_vendor import HANGS, MODEL, ScriptedVendor, said, vendor_of

CALLS = [("call-1", "tavily_search_0", '{"query": "widget prices"}'), ("call-2", "tavily_search_0", '{"query": "May"}')]


def test_agent_calls_tools_in_parallel_and_answers_from_their_results(bench: Bench):
    with vendor_of(tool_call_deltas(*CALLS), said("They rose ", "by 4%.")) as served:
        run = run_agent(bench, served)

    running = "Running the tavily_search_0 tool..." * 2
    assert (run.status, run.text) == ("succeeded", f"{THINK_START}{running}{THINK_END}They rose by 4%.")
    first, second = served.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["tavily_search_0"]
    assert first["stream"] is True
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [message.get("tool_call_id") for message in second["messages"][3:]] == ["call-1", "call-2"]
    assert all("Up 4% in May." in message["content"] for message in second["messages"][3:])
    assert sorted(served.queries) == ["May", "widget prices"]


def test_message_end_cites_the_results_of_tool_calls(bench: Bench):
    with vendor_of(tool_call_deltas(*CALLS), said("They rose [ID:1].")) as served:
        run = run_agent(bench, served)

    (end,) = [event.body for event in run.events if event.name == "message_end"]
    (chunk,) = end["reference"]["chunks"].values()
    assert (chunk["content"], chunk["url"]) == ("Up 4% in May.", "https://example.com/a")
    assert end["reference"]["doc_aggs"].keys() == {"Prices"}
    used = run.outputs("model")["use_tools"]
    assert [call["arguments"] for call in used] == [{"query": "widget prices"}, {"query": "May"}]


def test_tool_calls_of_a_turn_are_listed_by_message_id(bench: Bench):
    with vendor_of(tool_call_deltas(*CALLS), said("Fine.")) as served:
        run = run_agent(bench, served)

    with bench.database.transaction() as tx:
        (record,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])

    assert record["component_id"] == "model"
    assert {call["tool_name"] for call in record["trace"]} == {"tavily_search_0"}


def test_second_attempt_of_an_agent_repeats_no_recorded_call(bench: Bench):
    with vendor_of(tool_call_deltas(*CALLS), HANGS, said("They rose by 4%.")) as served:
        bench.accounts = [served.account]
        run = start_agent(bench)
        leaving, other = (bench.a_worker(services=served.services) for _ in range(2))
        with at_work(bench, leaving):
            assert served.is_hanging.wait(20)
            leaving.close()
        bench.play(other)

    assert run.status == "succeeded"
    assert run.text.endswith("They rose by 4%.")
    assert run.activation("model").attempt == 2
    assert len(served.requests) == 3
    assert sorted(served.queries) == ["May", "widget prices"]
    assert served.requests[2]["messages"] == served.requests[1]["messages"]


# -- helpers ---------------------------------------------------------------------------------------------------------
def start_agent(bench: Bench) -> Run:
    search = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "a key that is long"}}
    agent = {
        "component": "Agent",
        "llm_id": MODEL,
        "sys_prompt": "You search.",
        "prompts": [{"role": "user", "content": "How are prices?"}],
        "tools": [search],
    }
    return bench.start("begin -> model -> say", model=agent, say=content("{model@content}"))


def run_agent(bench: Bench, served: ScriptedVendor) -> Run:
    bench.accounts = [served.account]
    run = start_agent(bench)
    bench.play(bench.a_worker(services=served.services))
    return run


def tool_call_deltas(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return the deltas of an answer with tool calls, whose arguments are split in two."""
    deltas: list[dict[str, Any]] = []
    for index, (call_id, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        head = {"index": index, "id": call_id, "type": "function"}
        deltas.append({"tool_calls": [{**head, "function": {"name": name, "arguments": arguments[:half]}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    return deltas
