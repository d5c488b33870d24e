"""Deep research: its searches and model requests, their limits, the streamed progress, and the journal."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.errors import ToolError
from canvas.outcome import Failed, Finished, Outcome
from components.context import THINK_END, THINK_START
from components.nodes.agent import research
from components.nodes.agent.agent import AgentParams
from components.nodes.agent.deep_research import DeepResearchParams, deep_research
from components.nodes.agent.research_prompts import FollowUp, Verdict, parse_follow_ups, parse_verdict
from components.nodes.agent.tool_set import tool_function
from components.tools.framework import citations
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from providers.models.chat.scripted import Script
from tests.fakes import FakeContext, run
from tests.unit.components.nodes.agent.agents import Calls, Log, ask, calls, echo_tool, only_tools, scripted

JUDGES, FOLLOWS = "You judge whether", "is not enough. Name one to three"
ENOUGH = {"system": JUDGES, "reply": '{"is_sufficient": true, "reasoning": "", "missing_information": []}'}
ANSWER = {"system": "Answer from it", "reply": "Up by 4%."}
SEARCH = {"component_name": "Finder", "name": "Finder", "params": {}}


def insufficient(question: str, *questions: str) -> list[dict[str, Any]]:
    """Return rules that judge the evidence for a question insufficient and ask these questions next."""
    listed = [{"question": each, "query": f"{each} query"} for each in questions]
    return [
        {"system": JUDGES, "user": f"Question:\n{question}\n", "reply": '{"is_sufficient": false}'},
        {"system": FOLLOWS, "user": f"Question:\n{question}\n", "reply": json.dumps({"questions": listed})},
    ]


class Finder:
    """A search tool that finds one page for each query, or the configured pages."""

    def __init__(
        self, found: Mapping[str, Sequence[str]] | None = None, *, fails: bool = False, slow: str = ""
    ) -> None:
        self.queries: list[str] = []
        self._found = found or {}
        self._fails = fails
        self._slow = slow

    @property
    def tool(self) -> Tool[ToolParams]:
        query = Argument("string", "what to look for", required=True)
        return Tool(
            "Finder", "finder", ToolParams, "Finds.", {"q": query}, self._call, "idempotent", brings_sources=True
        )

    async def _call(self, params: ToolParams, arguments: Mapping[str, Any], ctx: Any) -> ToolResult:
        query = arguments["q"]
        self.queries.append(query)
        for _ in range(50 if query == self._slow else 1):
            await asyncio.sleep(0)
        if self._fails:
            raise ToolError("The search is away.")
        pages = self._found.get(query, [f"About {query}."])
        text = await citations.cite_hits([Hit(page, f"https://x.test/{page}", page) for page in pages], ctx)
        return ToolResult({"formalized_content": text})


def run_research(
    finder: Finder, *rules: Mapping[str, Any], ctx: FakeContext | None = None, **params: Any
) -> tuple[Outcome, FakeContext, Script]:
    """Run the component for the question "Prices?"; return its outcome, context and script."""
    script = Script([dict(rule) for rule in rules])
    ctx = ctx or FakeContext(globals={"sys.query": "Prices?"})
    ctx.models, ctx.log = {"m": scripted(script)}, ctx.log or Log()
    with only_tools(finder.tool):
        outcome = run(deep_research, {"llm_id": "m", "tools": [SEARCH], **params}, ctx)
    return outcome, ctx, script


def contents(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Finished)
    return [chunk["content"] for chunk in outcome.outputs["json"]]


def lines(thinking: str) -> list[str]:
    """Return the lines of progress without their durations."""
    progress = thinking.replace("<retrieving>", "<retrieving><br/>").split("<br/>")
    return [line.partition(" in ")[0] if line.startswith("Retrieval") else line for line in progress]


def without_line_order(outcome: Outcome) -> Finished:
    """The outcome with its progress lines sorted: questions of a level run in parallel, so their lines interleave."""
    assert isinstance(outcome, Finished)
    return replace(outcome, outputs={**outcome.outputs, "thinking": sorted(outcome.outputs["thinking"].split("<br/>"))})


# -- searches --------------------------------------------------------------------------------------------------------
def test_sufficient_evidence_takes_one_search_and_one_check():
    finder = Finder()

    outcome, _, script = run_research(finder, ENOUGH, ANSWER)

    assert isinstance(outcome, Finished)
    assert finder.queries == ["Prices?"]
    assert len(script.requests) == 2  # the check, and the answer
    assert lines(outcome.outputs["thinking"]) == [
        "<retrieving>",
        "Searching by `Prices?`...",
        "Retrieval 1 results",
        "Checking the sufficiency for retrieved information.",
        "Yes, the retrieved information is sufficient for 'Prices?'.",
        "</retrieving>",
    ]
    assert outcome.outputs["content"] == "Up by 4%."


def test_evidence_has_the_order_of_the_questions_when_searches_finish_in_another_order():
    finder = Finder(slow="A query")

    outcome, *_ = run_research(finder, *insufficient("Prices?", "A", "B"), *insufficient("A", "C"), ENOUGH, ANSWER)

    assert finder.queries == ["Prices?", "A query", "B query", "C query"]
    assert contents(outcome) == ["About Prices?.", "About A query.", "About C query.", "About B query."]
    assert isinstance(outcome, Finished)
    assert "questions:</br> - A</br> - B<br/>" in outcome.outputs["thinking"]


def test_a_page_that_several_searches_find_is_evidence_once():
    finder = Finder({"Prices?": ["One", "Two"], "A query": ["Two", "Three"]})

    outcome, ctx, _ = run_research(finder, *insufficient("Prices?", "A"), ENOUGH, ANSWER)

    assert contents(outcome) == ["One", "Two", "Three"]
    assert {chunk["content"] for chunk in ctx.reference_store["chunks"].values()} == {"One", "Two", "Three"}


def test_web_search_adds_six_results_at_most():
    outcome, *_ = run_research(Finder({"Prices?": [f"Page {n}" for n in range(9)]}), ENOUGH, ANSWER)

    assert contents(outcome) == [f"Page {n}" for n in range(6)]


def test_a_question_that_was_searched_is_not_searched_again():
    finder = Finder()
    again = json.dumps({"questions": [{"question": "PRICES"}, {"question": "A"}, {"question": " a! "}, "B"]})

    run_research(finder, *insufficient("Prices?")[:1], {"system": FOLLOWS, "reply": again}, ENOUGH, ANSWER)

    assert finder.queries == ["Prices?", "A"]  # B is the fourth, and the others are known


def test_a_long_question_is_judged_in_whole_and_searched_by_its_beginning():
    finder = Finder()
    question = "How are prices?\n" + "And why? " * 1000

    _, _, script = run_research(finder, ENOUGH, ANSWER, ctx=FakeContext(globals={"sys.query": question}))

    (query,) = finder.queries
    assert query.startswith("How are prices? And why?")
    assert len(query) == 1000
    assert question.strip() in script.requests[0].messages[1]["content"]


# -- limits ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("depth", "searches"), [(1, 1), (2, 4), (3, 13), (4, 24)])
def test_depth_and_number_of_searches_are_limited(depth: int, searches: int):
    finder = Finder()
    script = Script([{"system": JUDGES, "reply": '{"is_sufficient": false}'}, *_endless(), ANSWER])
    ctx = FakeContext(globals={"sys.query": "Q"}, models={"m": scripted(script)}, log=Log())

    with only_tools(finder.tool):
        run(deep_research, {"llm_id": "m", "tools": [SEARCH], "depth": depth}, ctx)

    assert len(finder.queries) == searches
    assert len(script.requests) - 1 <= 40


def test_number_of_model_calls_is_limited():
    finder, progress = Finder(), list[str]()
    script = Script([{"system": JUDGES, "reply": '{"is_sufficient": false}'}, *_endless()])

    found = _run_with_limits(finder, script, progress, research.ResearchLimits(calls=5))

    assert len(script.requests) == 5
    assert len(found) == len(finder.queries) > 2


def test_time_is_limited_and_evidence_found_until_then_counts():
    finder = Finder(slow="Q")
    script = Script([{"system": JUDGES, "reply": "{}", "delay_ms": 60_000}])
    log, progress = Log(), list[str]()

    found = _run_with_limits(finder, script, progress, research.ResearchLimits(seconds=0.2), log)

    assert [chunk["content"] for chunk in found] == ["About Q."]
    assert log.warnings == ["research_out_of_time"]
    assert progress[-1] == research.END + research.BREAK


def test_amount_of_evidence_is_limited():
    finder = Finder({"Q": ["one two three", "four five six", "seven eight nine"]})

    found = _run_with_limits(finder, Script([ENOUGH]), [], research.ResearchLimits(tokens=8))

    assert [chunk["content"] for chunk in found] == ["one two three", "four five six"]


def test_a_model_that_fails_to_judge_ends_the_question_and_not_the_research():
    finder, log = Finder(), Log()
    fails = {"system": JUDGES, "error": "401"}

    outcome, *_ = run_research(finder, fails, ANSWER, ctx=FakeContext(globals={"sys.query": "Prices?"}, log=log))

    assert contents(outcome) == ["About Prices?."]
    assert log.warnings == ["research_not_checked"]


# -- failures --------------------------------------------------------------------------------------------------------
def test_failed_search_fails_the_node_without_evidence():
    with pytest.raises(ToolError, match="The search is away"):
        run_research(Finder(fails=True), ENOUGH, ANSWER)


def test_default_value_replaces_the_answer_of_failed_research():
    outcome, *_ = run_research(
        Finder(fails=True), ENOUGH, exception_method="comment", exception_default_value="Ask later."
    )

    assert outcome == Finished(outputs={"content": "Ask later."})


def test_empty_response_is_the_answer_if_nothing_is_found():
    outcome, _, script = run_research(Finder({"Prices?": []}), ENOUGH, empty_response="Nobody knows.")

    assert isinstance(outcome, Finished)
    assert (outcome.outputs["content"], outcome.outputs["json"]) == ("Nobody knows.", [])
    assert len(script.requests) == 1


def test_empty_question_is_not_searched():
    finder = Finder()

    outcome, *_ = run_research(finder, ctx=FakeContext(globals={"sys.query": " "}), empty_response="Ask something.")

    assert finder.queries == []
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Ask something."


# -- progress --------------------------------------------------------------------------------------------------------
def test_progress_is_streamed_as_reasoning_before_the_answer():
    ctx = FakeContext(globals={"sys.query": "Prices?"}, is_streaming=True)

    outcome, *_ = run_research(Finder(), ENOUGH, ANSWER, ctx=ctx)

    assert ctx.streamed_text.startswith(f"{THINK_START}<retrieving>Searching by `Prices?`...<br/>")
    assert ctx.streamed_text.endswith(f"</retrieving>{THINK_END}Up by 4%.")
    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"].endswith("</think>Up by 4%.")
    assert "About Prices?." in outcome.outputs["formalized_content"]


def test_failure_of_a_streaming_research_is_written():
    ctx = FakeContext(globals={"sys.query": "Prices?"}, is_streaming=True)

    outcome, *_ = run_research(Finder(fails=True), ENOUGH, ctx=ctx)

    assert ctx.streamed_text.endswith(f"{THINK_END}The search is away.")
    assert isinstance(outcome, Finished)
    assert outcome.outputs["_ERROR"] == "The search is away."


def test_research_without_an_answer_sends_no_answer_request():
    outcome, _, script = run_research(Finder(), ENOUGH, answers=False)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == ""
    assert "About Prices?." in outcome.outputs["formalized_content"]
    assert len(script.requests) == 1


def test_research_without_an_answer_streams_nothing():
    ctx = FakeContext(globals={"sys.query": "Prices?"}, is_streaming=True)

    outcome, *_ = run_research(Finder(), ENOUGH, ctx=ctx, answers=False)

    assert isinstance(outcome, Finished)
    assert (outcome.outputs["content"], ctx.streamed_text) == ("", "")
    assert "<retrieving>" in outcome.outputs["thinking"]


def test_answer_request_contains_numbered_evidence():
    _, ctx, script = run_research(Finder(), ENOUGH, ANSWER, sys_prompt="You are brief.")

    system = script.requests[-1].messages[0]["content"]
    (number,) = ctx.reference_store["chunks"]
    assert system.startswith("You are brief.")
    assert f"ID: {number}\n├── Title: About Prices?." in system
    assert "[ID:n]" in system


def test_every_search_is_traced():
    _, ctx, _ = run_research(Finder(), ENOUGH, ANSWER)

    (trace,) = ctx.traces
    assert (trace["tool_name"], trace["arguments"], trace["result"]) == ("finder_0", {"q": "Prices?"}, "1 results")


# -- second attempt --------------------------------------------------------------------------------------------------
def test_second_attempt_repeats_no_search_and_no_check():
    first, again = Finder(), Finder()
    rules = (*insufficient("Prices?", "A", "B"), ENOUGH)
    outcome, ctx, _ = run_research(first, *rules, ANSWER)

    later = FakeContext(globals={"sys.query": "Prices?"}, journal=dict(ctx.journal))
    repeated, later, second = run_research(again, ANSWER, ctx=later)

    assert again.queries == []
    assert len(second.requests) == 1  # the answer, which is not recorded
    assert without_line_order(repeated) == without_line_order(outcome)
    assert later.usage == ctx.usage


# -- inside an Agent --------------------------------------------------------------------------------------------------
def test_agent_researches_before_it_answers_and_can_still_call_its_tools():
    finder = Finder()
    script = Script(
        [ENOUGH, {"system": "Answer from it", "last_role": "user", **calls(("finder_0", {"q": "more"}))}, ANSWER]
    )

    with only_tools(finder.tool):
        outcome, _ = ask(script, tools=[SEARCH], deep_research=True)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["content"] == "Up by 4%."
    assert finder.queries == ["Q", "more"]
    assert lines(outcome.outputs["thinking"])[1] == "Searching by `Q`..."
    assert "About Q." in script.requests[1].messages[0]["content"]


def test_failed_research_fails_the_agent_with_the_reason():
    with only_tools(Finder(fails=True).tool):
        outcome, _ = ask(Script([ENOUGH, ANSWER]), tools=[SEARCH], deep_research=2)

    assert isinstance(outcome, Failed)
    assert outcome.error == "The search is away."


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"deep_research": True, "tools": []}, "needs a tool that brings sources"),
        ({"deep_research": True, "tools": ["Echo"]}, "needs a tool that brings sources"),
        ({"deep_research": 5, "tools": [SEARCH]}, "Depth 5 not supported, should be from 1 to 4"),
        ({"deep_research": {"depth": "deep"}, "tools": [SEARCH]}, "Depth deep not supported"),
    ],
)
def test_agent_with_invalid_research_parameters_is_refused(params: dict[str, Any], reason: str):
    with only_tools(Finder().tool, echo_tool(Calls())), pytest.raises(ValidationError, match=reason):
        AgentParams.model_validate({"llm_id": "m", **params})


@pytest.mark.parametrize("stored_depth", [{"depth": 2}, "2", 2])
def test_an_agents_depth_may_be_written_in_several_ways(stored_depth: Any):
    with only_tools(Finder().tool):
        params = AgentParams.model_validate({"llm_id": "m", "tools": [SEARCH], "deep_research": stored_depth})

    assert params.deep_research == 2


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "add a tool that searches"),
        ({"tools": "Finder"}, "must be a list"),
        ({"tools": ["Echo"]}, "Echo brings no sources that could be cited"),
        ({"tools": ["Agent"]}, "a sub-agent cannot be a source"),
        ({"tools": ["Nothing"]}, "Can't import Nothing"),
        ({"tools": [SEARCH], "depth": 0}, "Depth 0 not supported"),
        ({"tools": [SEARCH], "answers": "perhaps"}, "must be true or false"),
    ],
)
def test_research_node_with_invalid_parameters_is_refused(params: dict[str, Any], reason: str):
    with only_tools(Finder().tool, echo_tool(Calls())), pytest.raises(ValidationError, match=reason):
        DeepResearchParams.model_validate({"llm_id": "m", **params})


# -- parsing of answers ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('```json\n{"is_sufficient": false, "missing_information": ["x", "", 3]}\n```', Verdict(False, ("x", "3"))),
        ('{"is_sufficient": "No", "missing_information": "dates"}', Verdict(False, ("dates",))),
        ('{"is_sufficient": true, "missing_information": ["x"]}', Verdict()),
        ('{"is_sufficient": 0}', Verdict()),
        ("[false]", Verdict()),
        ("It is not enough.", Verdict()),
        ("", Verdict()),
    ],
)
def test_unreadable_verdict_counts_as_sufficient(answer: str, verdict: Verdict):
    assert parse_verdict(answer) == verdict


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ('{"questions": [{"question": "A", "query": "a"}, {"query": "b"}, "C"]}',
         [FollowUp("A", "a"), FollowUp("b", "b"), FollowUp("C", "C")]),
        ('{"questions": [{"question": "  "}, {}, null, [1], {"question": "A"}]}', [FollowUp("A", "A")]),
        ('[{"question": "A"}]', [FollowUp("A", "A")]),
        ('{"answers": []}', []),
        ('{"questions": "A"}', []),
        ("none", []),
    ],
)  # fmt: skip
def test_follow_up_questions_are_parsed_and_invalid_ones_are_skipped(answer: str, found: list[FollowUp]):
    assert parse_follow_ups(answer) == found


@settings(max_examples=30)
@given(st.text(), st.integers(), st.lists(st.text()))
def test_any_answer_can_be_parsed(text: str, number: int, listed: list[str]):
    for answer in (text, json.dumps({"is_sufficient": number, "questions": listed}), json.dumps({"questions": text})):
        assert isinstance(parse_verdict(answer), Verdict)
        assert len(parse_follow_ups(answer)) <= 3


# -- helpers ---------------------------------------------------------------------------------------------------------
def _endless() -> list[dict[str, Any]]:
    """Return rules that ask three new questions each time."""
    questions = [{"question": f"Q{number}.{n}"} for number in range(30) for n in range(3)]
    groups = [questions[at : at + 3] for at in range(0, len(questions), 3)]
    return [{"system": FOLLOWS, "reply": json.dumps({"questions": group}), "times": 1} for group in groups]


def _run_with_limits(
    finder: Finder, script: Script, progress: list[str], bounds: research.ResearchLimits, log: Any = None
) -> list[research.Chunk]:
    ctx = FakeContext(log=log or Log())

    async def write_line(line: str) -> None:
        progress.append(line)

    with only_tools(finder.tool):
        params = DeepResearchParams.model_validate({"llm_id": "m", "tools": [SEARCH]})
    sources = [tool_function(entry, 0) for entry in params.tools]
    return asyncio.run(research.Research(ctx, scripted(script), sources, write_line, bounds).run("Q"))
