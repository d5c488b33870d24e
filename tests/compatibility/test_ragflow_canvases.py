"""RAGFlow's own canvases, unchanged: they load, are valid, and run to their end with a scripted model.

The other services are scripted as well: a knowledge base with one chunk, and a sandbox that answers any program.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from canvas.document import parsing
from canvas.validation import check
from cli.conformance.cases import load_case
from cli.conformance.compare.compare import ObservedCase, ObservedRun, Refusal
from cli.conformance.play.runner import Fixtures, run_case
from components.checks.check import findings_of
from local_engine import Engine
from providers.interfaces import Program, ProgramResult, RetrievalQuery, Services

RECORDINGS = Path(__file__).parents[1] / "recordings"
RAGFLOW = RECORDINGS / "ragflow"
REFUSED = {
    "exesql": "For the security reason, it does not support database named rag_flow.",
    "web_search_assistant": "SerpApi API key does not support empty value.",
}
DRAWN_CANVASES = ("dfx_picture_parser", "questions_category", "subaget", "switch")
TESTED_SEPARATELY = ("all", "user_interaction")
CANVASES = sorted(path.stem for path in RAGFLOW.rglob("*.json"))
FAILS = {"iteration": "generate:0@structured_content must be an array"}  # as recorded
REPLIES = {"stock_market_research_assistant": "Not Found"}  # any other reply would call the real stock exchange
REPLY = '{"answer": "fine"}'  # valid for nodes that expect JSON, too


class ScriptedFixtures(Fixtures):
    """The scripted services of the canvases."""

    def of_tenant(self, tenant_id: UUID, common: Services) -> Services:
        return replace(super().of_tenant(tenant_id, common), retriever=FakeKnowledgeBase(), sandbox=FakeSandbox())


class FakeKnowledgeBase:
    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        chunk = {"chunk_id": "1", "content": "Tea is a drink.", "doc_id": "d", "docnm_kwd": "tea.md"}
        return {"chunks": [chunk], "doc_aggs": [{"doc_name": "tea.md", "doc_id": "d", "count": 1}]}


class FakeSandbox:
    is_repeatable = True

    async def run(self, program: Program) -> ProgramResult:
        doubled = 2 * int(program.arguments["x"]) if "x" in program.arguments else "drawn"
        return ProgramResult(value=doubled, has_value=True)


@pytest.fixture(scope="module")
def fixtures() -> Fixtures:
    return ScriptedFixtures()


def test_all_ragflow_canvases_are_present():
    assert len(CANVASES) == 21
    assert set(REFUSED) | set(DRAWN_CANVASES) | set(TESTED_SEPARATELY) < set(CANVASES)


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in REFUSED])
def test_ragflow_canvas_is_valid(name: str):
    document = parsing.parse(document_of(name))

    assert [str(error) for error in check.errors_of(findings_of(document))] == []


@pytest.mark.parametrize("name", REFUSED)
def test_canvas_refused_by_ragflow_is_refused_with_the_same_reason(name: str):
    errors = check.errors_of(findings_of(parsing.parse(document_of(name))))

    assert any(REFUSED[name] in error.message for error in errors)


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in (*REFUSED, *FAILS, *TESTED_SEPARATELY)])
def test_ragflow_canvas_runs_to_its_end(name: str, engine: Engine, fixtures: Fixtures, tmp_path: Path):
    inputs = {"tz": {"type": "file", "value": [{"id": "f", "name": "part.dxf", "mime_type": "text/plain"}]}}
    request = {"query": "What is tea?", "inputs": inputs if name == "dfx_picture_parser" else {}}

    (run,) = run_conversation(engine, fixtures, tmp_path, name, request)

    assert (run.error, run.waiting) == ("", None)
    assert run.events[-1]["event"] == "workflow_finished"
    assert run.answer


@pytest.mark.parametrize("name", FAILS)
def test_canvas_that_fails_in_ragflow_fails_with_the_same_reason(
    name: str, engine: Engine, fixtures: Fixtures, tmp_path: Path
):
    (run,) = run_conversation(engine, fixtures, tmp_path, name, {"query": "Tea"})

    assert run.error.startswith(FAILS[name])


def test_canvas_with_a_form_waits_and_continues_with_the_answer(engine: Engine, fixtures: Fixtures, tmp_path: Path):
    first, run = run_conversation(
        engine, fixtures, tmp_path, "user_interaction", {"query": "Tea"}, {"inputs": {"instructions": "Go"}}
    )

    assert first.waiting is not None
    assert (run.error, run.waiting) == ("", None)
    assert run.answer


DEMOS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "loop": ([{"value": "0"}, {"value": "2"}, {"value": "1"}], "循环结束。你最后一次输入为：1"),
    "iteration": ([{"csv": "a,b,c"}], '["0: a", "1: b", "2: c"]'),
    "retrieval": ([{"kb": "kb1", "query": "tea"}], "Tea is a drink."),
    "condition": ([{"x": "yes"}], "命中 IF: x==yes"),
    "data_ops": ([], ""),
    "text": ([{"text": "hello big world"}], '["hello", "big", "world"]'),
    "var_assigner": ([], ""),
    "var_aggregator": ([], "picked=1"),
    "categorize": ([{"text": "查知识库"}], "Retrieval"),
    "code": ([{"x": 21}], "42"),
    "message": ([], "这是 Message 节点演示。"),
    "wait_input": ([{"anything": "ok"}], "你输入的是：ok"),
}


@pytest.mark.parametrize("demo", DEMOS)
def test_demo_of_the_canvas_with_all_nodes_runs_to_its_end(
    demo: str, engine: Engine, fixtures: Fixtures, tmp_path: Path
):
    answers, expected = DEMOS[demo]
    turns = [{"query": "开始"}, {"inputs": {"demo": demo}}, *({"inputs": answer} for answer in answers)]

    *first, last = run_conversation(engine, fixtures, tmp_path, "all", *turns)

    assert all(turn.waiting is not None and not turn.error for turn in first)
    assert (last.error, last.waiting) == ("", None)
    assert last.events[-1]["event"] == "workflow_finished"
    assert expected in last.answer


# -- helpers ---------------------------------------------------------------------------------------------------------
def file_of(name: str) -> Path:
    (found,) = RAGFLOW.rglob(f"{name}.json")
    return found


def document_of(name: str) -> Any:
    """Return the document of a canvas, with a model where its author left it empty."""
    return dsl_of(json.loads(file_of(name).read_text(encoding="utf-8")))


def dsl_of(case: Any) -> Any:
    match case:
        case dict():
            return {
                key: "m@Scripted" if key == "llm_id" and value == "" else dsl_of(value) for key, value in case.items()
            }
        case list():
            return [dsl_of(item) for item in case]
        case _:
            return case


def run_conversation(
    engine: Engine, fixtures: Fixtures, folder: Path, name: str, *turns: Mapping[str, Any]
) -> list[ObservedRun]:
    """Run the turns of one conversation with a canvas."""
    empty = {"events": [], "outputs": {}, "answer": "", "globals": {}, "history": []}
    case = {
        "name": name,
        "match": "sequence",
        "dsl_file": str(file_of(name).relative_to(RECORDINGS)),
        "dsl_fill_llm_id": "m@Scripted",
        "dsl_set": {"Retrieval:KBSearch": {"kb_ids": ["kb1"]}} if name == "all" else {},
        "runs": turns,
        "llm": [{"user": {"regex": "查知识库"}, "reply": "Retrieval"}, {"reply": REPLIES.get(name, REPLY)}],
        "file_store": {"f": "0\nSECTION"},
        "expect": {"runs": [empty for _ in turns]},
    }
    file = folder / "case.json"
    file.write_text(json.dumps(case), encoding="utf-8")
    observed = run_case(engine, fixtures, load_case(file, RECORDINGS))
    assert isinstance(observed, ObservedCase), observed.message if isinstance(observed, Refusal) else observed
    return list(observed.runs)
