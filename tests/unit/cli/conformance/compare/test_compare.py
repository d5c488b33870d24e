"""The conformance comparer: what must agree with a recording, and what may differ."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conformance.cases import Case, load_case
from cli.conformance.compare.compare import Difference, ObservedCase, ObservedRun, Refusal, compare
from cli.conformance.compare.normalise import normalise
from cli.shell.value_pairs import NOTHING

RECORDINGS = Path(__file__).parents[4] / "recordings"
SAMPLES = {
    name: load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)
    for name in (
        "agent_tool_available_but_unused",
        "categorize_empty",
        "categorize_exact",
        "conversation_three_turns",
        "fillup_two_parallel",
        "generated_container_02",
        "invalid_switch_no_else",
        "invoke_error_goto",
        "invoke_retry_then_ok",
        "iteration_body_fails",
        "join_unequal_llm",
        "llm_generation_params",
        "llm_reasoning_streamed",
        "llm_stream_never_used",
        "llm_structured_into_switch",
        "llm_two_messages_same_stream",
        "parallel_fan_3_llm_join_refs",
        "parallel_one_fails",
        "variables_sys_all",
    )
}
RUNNABLE = [case for case in SAMPLES.values() if case.match != "load_error"]


def as_recorded(case: Case) -> ObservedCase:
    """Return an observation that repeats the recording exactly."""
    recorded = case.expect.runs
    runs = [
        ObservedRun(
            error=run.error,
            events=copy.deepcopy(run.events),
            answer=run.answer,
            outputs=copy.deepcopy(run.outputs),
            globals=copy.deepcopy(run.globals),
            history=copy.deepcopy(run.history),
            waiting=copy.deepcopy(run.waiting),
            reference=run.reference,
            path=run.path,
        )
        for run in recorded
    ]
    requests = [observed_request(request) for run in recorded for request in run.llm_requests]
    return ObservedCase(runs, requests, case.expect.http_requests, "http://127.0.0.1:4711")


def observed_request(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as a model would receive it, with text in place of the placeholders."""
    if "kind" in request:
        return {"model": request["model"], "messages": [{"role": "user", "content": "Which category?"}]}
    return json.loads(json.dumps(request).replace("<STRUCTURED_OUTPUT_PROMPT>", "Answer in JSON."))


def with_run(played: ObservedCase, number: int = 0, **changes: Any) -> ObservedCase:
    runs = list(played.runs)
    runs[number] = replace(runs[number], **changes)
    return replace(played, runs=runs)


def with_events(case: Case, events: list[dict[str, Any]], number: int = 0) -> Difference | None:
    return compare(case, with_run(as_recorded(case), number, events=events))


def events_of(case: Case, number: int = 0) -> list[dict[str, Any]]:
    return copy.deepcopy(case.expect.runs[number].events)


def index_of(events: list[dict[str, Any]], name: str, node: str = "") -> int:
    return next(
        i
        for i, event in enumerate(events)
        if event["event"] == name and event["data"].get("component_id", "") == node and not event.get("put_off")
    )


def move_event(events: list[dict[str, Any]], name: str, node: str, before: tuple[str, str]) -> list[dict[str, Any]]:
    event = events.pop(index_of(events, name, node))
    events.insert(index_of(events, *before), event)
    return events


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_an_executor_that_repeats_the_recording_agrees_with_it(case: Case):
    assert compare(case, as_recorded(case)) is None


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_missing_event_differs_unless_its_node_was_put_off(case: Case):
    events = events_of(case)

    for index, event in enumerate(events):
        difference = with_events(case, events[:index] + events[index + 1 :])

        assert (difference is None) == bool(event.get("put_off")), event


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_changed_output_or_variable_differs(case: Case):
    played = as_recorded(case)
    run = played.runs[0]

    for node, outputs in run.outputs.items():
        for name, value in outputs.items():
            if not name.startswith("_") and value != "<STREAM>":
                changed = {**run.outputs, node: {**outputs, name: "something else"}}
                difference = compare(case, with_run(played, outputs=changed))
                assert difference is not None
                assert difference.where == f"outputs.{node}.{name}"
    for name in run.globals:
        assert compare(case, with_run(played, globals={**run.globals, name: "something else"})) is not None


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_changed_answer_or_history_differs(case: Case):
    played = as_recorded(case)
    run = played.runs[0]

    assert compare(case, with_run(played, answer=run.answer + "!")) is not None
    assert compare(case, with_run(played, history=run.history[:-1])) is not None
    assert compare(case, replace(played, runs=played.runs[:-1])) is not None


@pytest.mark.parametrize("case", [c for c in RUNNABLE if c.match == "sequence"], ids=lambda case: case.name)
def test_swapped_steps_of_a_sequence_differ(case: Case):
    events = events_of(case)

    for index in range(len(events) - 1):
        swapped = [*events[:index], events[index + 1], events[index], *events[index + 2 :]]

        assert with_events(case, swapped) is not None, (events[index], events[index + 1])


def test_refused_document_must_be_refused_with_any_message():
    case = SAMPLES["invalid_switch_no_else"]

    assert compare(case, Refusal("no")) is None
    assert compare(case, ObservedCase([])) == Difference(None, "loading", "a refusal", "accepted")


def test_a_document_that_runs_in_the_recording_must_be_accepted():
    difference = compare(SAMPLES["categorize_exact"], Refusal("no else"))

    assert difference == Difference(None, "loading", "accepted", "refused: no else")


# -- order within a batch --------------------------------------------------------------------------------------------


def test_nodes_of_one_batch_start_and_finish_in_any_order():
    case = SAMPLES["parallel_fan_3_llm_join_refs"]
    events = move_event(events_of(case), "node_started", "LLM:C", before=("node_started", "LLM:A"))
    events = move_event(events, "node_finished", "LLM:B", before=("node_started", "LLM:A"))
    events = move_event(events, "node_started", "LLM:B", before=("node_finished", "LLM:B"))

    assert with_events(case, events) is None


def test_a_node_does_not_finish_before_it_has_started():
    case = SAMPLES["parallel_fan_3_llm_join_refs"]
    events = move_event(events_of(case), "node_finished", "LLM:C", before=("node_started", "LLM:A"))

    difference = with_events(case, events)

    assert difference is not None
    assert (difference.where, difference.expected) == (
        "order of events",
        "node_started of LLM:C before node_finished of LLM:C",
    )


def test_a_join_does_not_start_before_a_branch_it_waits_for():
    case = SAMPLES["parallel_fan_3_llm_join_refs"]
    events = move_event(events_of(case), "node_started", "LLM:Join", before=("node_finished", "LLM:B"))

    difference = with_events(case, events)

    assert difference is not None
    assert difference.expected == "node_finished of LLM:B before node_started of LLM:Join"


def test_branch_continues_while_another_of_an_earlier_batch_is_active():
    case = SAMPLES["join_unequal_llm"]
    events = events_of(case)
    events = [event for event in events if not event.get("put_off")]
    events = move_event(events, "node_finished", "StringTransform:A", before=("node_finished", "StringTransform:B"))
    events = move_event(events, "node_started", "LLM:C", before=("node_finished", "StringTransform:B"))

    assert with_events(case, events) is None


def test_next_iteration_starts_after_every_leaf_of_the_previous_one():
    case = SAMPLES["generated_container_02"]
    events = events_of(case)
    leaf = index_of(events, "node_finished", "StringTransform:F2")
    events.insert(leaf + 1, events.pop(leaf))

    difference = with_events(case, events)

    assert difference is not None
    assert difference.expected == "node_finished of StringTransform:F2 before node_started of IterationItem:I (no. 2)"


def test_model_node_finishes_after_the_stream_it_wrote_into():
    case = SAMPLES["parallel_fan_3_llm_join_refs"]

    early = with_events(case, move_event(events_of(case), "node_finished", "LLM:Join", before=("message_end", "")))
    late = with_events(case, move_event(events_of(case), "node_finished", "LLM:Join", before=("workflow_finished", "")))

    assert early is not None
    assert early.expected == "message_end before node_finished of LLM:Join"
    assert late is not None
    assert late.expected == "node_finished of LLM:Join before node_finished of Message:Out"


def test_messages_of_one_batch_are_streamed_in_the_recorded_order():
    case = SAMPLES["categorize_empty"]
    events = events_of(case)
    messages = [index for index, event in enumerate(events) if event["event"] == "message"]
    first, second = messages
    events[first], events[second] = events[second], events[first]

    difference = with_events(case, events)

    assert difference == Difference(1, "speech of turn 1", "other path", "other2 <Other>")


def test_the_second_message_of_a_batch_may_start_when_the_first_has_ended():
    case = SAMPLES["categorize_empty"]
    events = events_of(case)
    second = events.pop(index_of(events, "node_started", "Message:Other2"))
    events.insert(index_of(events, "node_finished", "Message:Other") + 1, second)

    assert with_events(case, events) is None


def test_message_is_not_streamed_before_its_node_has_started():
    case = SAMPLES["categorize_empty"]
    events = events_of(case)
    second = events.pop(index_of(events, "node_started", "Message:Other2"))
    events.insert(len(events) - 2, second)

    difference = with_events(case, events)

    assert difference is not None
    assert difference.expected == "node_started of Message:Other2 before message (no. 2)"


# -- a Message that starts early ---------------------------------------------------------------------------------------


def case_with_an_early_message(match: str) -> Case:
    """LLM:A -> Message:M, LLM:A -> T:T -> Message:M; M shows both. Recorded: T is done before M starts."""
    node = {"LLM:A": "LLM", "T:T": "StringTransform", "Message:M": "Message"}
    edges = {"LLM:A": ["T:T", "Message:M"], "T:T": ["Message:M"], "Message:M": []}

    def event(name: str, node_id: str) -> dict[str, Any]:
        data: dict[str, Any] = {"component_id": node_id, "component_name": "", "component_type": node[node_id]}
        ending = {"inputs": {}, "outputs": {}, "error": None} if name == "node_finished" else {}
        return {"event": name, "data": data | ending}

    events = [
        event("node_started", "LLM:A"),
        event("node_started", "T:T"),
        event("node_finished", "T:T"),
        event("node_started", "Message:M"),
        {"event": "message", "data": {"content": "a and t"}},
        {"event": "message_end", "data": {}},
        event("node_finished", "LLM:A"),
        event("node_finished", "Message:M"),
    ]
    sample = SAMPLES["llm_generation_params"]
    run = sample.expect.runs[0].model_copy(
        update={"events": events, "schedule": [["LLM:A"], ["T:T"], ["Message:M"]], "llm_requests": []}
    )
    components = {
        node_id: {"obj": {"component_name": node[node_id], "params": {}}, "downstream": targets}
        for node_id, targets in edges.items()
    }
    expect = sample.expect.model_copy(update={"runs": [run]})
    return replace(sample, match=match, document={"components": components}, expect=expect)


@pytest.mark.parametrize("match", ["sequence", "partial_order"])
def test_message_may_start_as_soon_as_its_model_node_streams(match: str):
    case = case_with_an_early_message(match)
    events = move_event(events_of(case), "node_started", "Message:M", before=("node_started", "T:T"))
    events.insert(2, {"event": "message", "data": {"content": "a and "}})
    events[index_of(events, "node_finished", "T:T") + 1]["data"]["content"] = "t"

    assert with_events(case, events) is None


@pytest.mark.parametrize("match", ["sequence", "partial_order"])
def test_a_message_does_not_start_before_its_model_node(match: str):
    case = case_with_an_early_message(match)
    events = move_event(events_of(case), "node_started", "Message:M", before=("node_started", "LLM:A"))

    assert with_events(case, events) is not None


@pytest.mark.parametrize("match", ["sequence", "partial_order"])
def test_stream_does_not_end_before_the_inputs_of_its_message(match: str):
    case = case_with_an_early_message(match)
    events = events_of(case)
    for name, node in [("node_started", "Message:M"), ("message", ""), ("message_end", "")]:
        events = move_event(events, name, node, before=("node_finished", "T:T"))

    assert with_events(case, events) is not None


# -- what may differ -------------------------------------------------------------------------------------------------


def test_text_deltas_may_have_any_size():
    case = SAMPLES["llm_reasoning_streamed"]
    events: list[dict[str, Any]] = []
    for event in events_of(case):
        content = event["data"].get("content")
        is_text = event["event"] == "message" and len(event["data"]) == 1
        events += (
            [{"event": "message", "data": {"content": character}} for character in content] if is_text else [event]
        )

    assert len(events) > len(events_of(case))
    assert with_events(case, events) is None


def test_reasoning_without_its_end_marker_differs():
    case = SAMPLES["llm_reasoning_streamed"]
    events = [event for event in events_of(case) if "end_to_think" not in event["data"]]

    difference = with_events(case, events)

    assert difference is not None
    assert difference.where.startswith("speech of turn")


def test_times_ids_and_usage_of_an_envelope_are_ignored():
    case = SAMPLES["categorize_exact"]
    events = events_of(case)
    for event in events:
        event |= {"message_id": "m", "created_at": 1.5, "task_id": "t"}
        event["data"] |= {"created_at": 1.5, "elapsed_time": 0.1, "thoughts": "hm", "usage": {"calls": 1}}
        if event["event"] == "node_finished":
            event["data"]["outputs"] |= {"_created_time": 1.5, "_elapsed_time": 0.2}

    assert with_events(case, events) is None


def test_run_failed_event_is_not_an_extra_event():
    case = SAMPLES["parallel_one_fails"]
    end = {"event": "run_failed", "data": {"message": "B broke"}}

    assert with_events(case, [*events_of(case), end]) is None


def test_error_of_a_run_must_agree_with_the_recording():
    failing, fine = SAMPLES["parallel_one_fails"], SAMPLES["categorize_exact"]

    assert compare(failing, with_run(as_recorded(failing), error="")) is not None
    assert compare(fine, with_run(as_recorded(fine), error="oh")) == Difference(1, "error", NOTHING, "oh")


def test_inputs_are_compared_for_components_that_show_them():
    case = SAMPLES["categorize_exact"]
    of_message, of_router = events_of(case), events_of(case)
    for events, kind in ((of_message, "Message"), (of_router, "Categorize")):
        finish = next(e for e in events if e["event"] == "node_finished" and e["data"]["component_type"] == kind)
        finish["data"]["inputs"] = {"more": 1}

    assert with_events(case, of_router) is None
    difference = with_events(case, of_message)
    assert difference is not None
    assert difference.where == "node_finished of Message:Refund: inputs.more"


def test_the_date_of_the_run_may_be_any_date():
    case = SAMPLES["variables_sys_all"]
    played = as_recorded(case)
    run = json.loads(
        json.dumps([played.runs[0].events, played.runs[0].answer]).replace("<DATE>", "2031-01-02 03:04:05")
    )

    assert compare(case, with_run(played, events=run[0], answer=run[1])) is None
    assert compare(case, with_run(played, answer=run[1].replace("2031-01-02", "today"))) is not None


def test_printed_assistant_lines_are_compared_by_number_and_role_only():
    case = SAMPLES["conversation_three_turns"]
    played = as_recorded(case)
    lines = list(played.runs[1].globals["sys.history"])
    assert lines[1].startswith("assistant: ")

    def compare_history(changed: list[Any]) -> Difference | None:
        return compare(case, with_run(played, 1, globals={**played.runs[1].globals, "sys.history": changed}))

    assert compare_history([lines[0], 'assistant: {"content": "r"}', *lines[2:]]) is None
    assert compare_history([lines[0], "user: r", *lines[2:]]) is not None
    assert compare_history([lines[0], *lines[2:]]) is not None
    assert compare_history(["user: else", *lines[1:]]) is not None


def test_waiting_run_may_include_its_forms():
    case = SAMPLES["fillup_two_parallel"]
    played = as_recorded(case)
    waiting = {**(played.runs[0].waiting or {}), "forms": {"UserFillUp:U": {}}}
    events = events_of(case)
    events[index_of(events, "user_inputs")]["data"] = waiting

    assert compare(case, with_run(played, waiting=waiting, events=events)) is None
    assert compare(case, with_run(played, waiting={**waiting, "tips": "else"}, events=events)) is not None
    assert compare(case, with_run(played, waiting=None)) is not None


# -- outgoing requests -----------------------------------------------------------------------------------------------


def test_model_requests_may_come_in_any_order_but_none_is_missing_or_new():
    case = SAMPLES["parallel_fan_3_llm_join_refs"]
    played = as_recorded(case)
    requests = list(played.llm_requests or ())

    assert compare(case, replace(played, llm_requests=requests[::-1])) is None
    assert compare(case, replace(played, llm_requests=requests[1:])) is not None
    assert compare(case, replace(played, llm_requests=[*requests, requests[0]])) is not None


def test_requests_may_be_repeated_where_retries_are_counted_differently():
    case = replace(SAMPLES["parallel_fan_3_llm_join_refs"], deviations=frozenset({"E12"}))
    played = as_recorded(case)
    requests = list(played.llm_requests or ())
    new = {**requests[0], "messages": [{"role": "user", "content": "else"}]}

    assert compare(case, replace(played, llm_requests=[requests[0], *requests])) is None
    assert compare(case, replace(played, llm_requests=[*requests, new])) is not None


def test_prompt_text_must_agree_up_to_the_recorded_placeholder():
    case = SAMPLES["llm_structured_into_switch"]
    played = as_recorded(case)
    requests = list(played.llm_requests or ())
    first = requests[0]["messages"][0]
    assert first["content"].endswith("Answer in JSON.")

    def sent(system: str) -> Difference | None:
        request = {**requests[0], "messages": [{**first, "content": system}, *requests[0]["messages"][1:]]}
        return compare(case, replace(played, llm_requests=[request, *requests[1:]]))

    assert sent(first["content"].replace("Answer in JSON.", "{schema}")) is None
    assert sent(first["content"].removesuffix("Answer in JSON.")) is not None
    assert sent("Else. Answer in JSON.") is not None


def test_generation_parameters_and_tools_are_compared_in_any_shape():
    case = SAMPLES["agent_tool_available_but_unused"]
    played = as_recorded(case)
    request = dict((played.llm_requests or ())[0])
    schemas = [{"type": "function", "function": {"name": name}} for name in request["tools"]]

    assert (
        compare(case, replace(played, llm_requests=[{**request, "tools": schemas, "params": {"max_tokens": 9}}]))
        is None
    )
    assert compare(case, replace(played, llm_requests=[{**request, "tools": []}])) is not None
    assert compare(case, replace(played, llm_requests=[{**request, "params": {"top_p": 1}}])) is not None


def test_http_calls_are_compared():
    case = SAMPLES["invoke_retry_then_ok"]
    played = as_recorded(case)

    assert compare(case, replace(played, http_requests=[("GET", "/c"), ("GET", "/c")])) is None
    assert compare(case, replace(played, http_requests=[("GET", "/c")])) is not None


def test_address_of_the_fixture_server_is_replaced_by_its_placeholder():
    assert normalise({"at http://h:1": ["http://h:1/x"]}, "http://h:1") == {"at __HTTP_BASE__": ["__HTTP_BASE__/x"]}
