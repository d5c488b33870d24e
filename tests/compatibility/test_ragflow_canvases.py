"""RAGFlow's own canvases, as they are: they load, they are valid, and they run to their end with a scripted model.

The world around them is scripted too: a knowledge base that knows one thing, and a sandbox that answers any program.
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
DRAWN = ("dfx_picture_parser", "questions_category", "subaget", "switch")
PLAYED_BELOW = ("all", "user_interaction")
CANVASES = sorted(path.stem for path in RAGFLOW.rglob("*.json"))
FAILS = {"iteration": "generate:0@structured_content must be an array"}  # as recorded: the document says so
REPLIES = {"stock_market_research_assistant": "Not Found"}  # anything else would ask the real stock exchange
REPLY = '{"answer": "fine"}'  # good for those who want JSON, too


class World(Fixtures):
    """What stands around the canvases."""

    def of_tenant(self, tenant_id: UUID, common: Services) -> Services:
        return replace(super().of_tenant(tenant_id, common), retriever=Shelf(), sandbox=Oracle())


class Shelf:
    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        chunk = {"chunk_id": "1", "content": "Tea is a drink.", "doc_id": "d", "docnm_kwd": "tea.md"}
        return {"chunks": [chunk], "doc_aggs": [{"doc_name": "tea.md", "doc_id": "d", "count": 1}]}


class Oracle:
    is_repeatable = True

    async def run(self, program: Program) -> ProgramResult:
        doubled = 2 * int(program.arguments["x"]) if "x" in program.arguments else "drawn"
        return ProgramResult(value=doubled, has_value=True)


@pytest.fixture(scope="module")
def fixtures() -> Fixtures:
    return World()


def test_every_canvas_of_theirs_is_here():
    assert len(CANVASES) == 21
    assert set(REFUSED) | set(DRAWN) | set(PLAYED_BELOW) < set(CANVASES)


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in REFUSED])
def test_it_is_valid(name: str):
    document = parsing.parse(document_of(name))

    assert [str(error) for error in check.errors_of(findings_of(document))] == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_their_executor_refuses_is_refused_with_the_same_reason(name: str):
    errors = check.errors_of(findings_of(parsing.parse(document_of(name))))

    assert any(REFUSED[name] in error.message for error in errors)


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in (*REFUSED, *FAILS, *PLAYED_BELOW)])
def test_it_runs_to_its_end(name: str, engine: Engine, fixtures: Fixtures, tmp_path: Path):
    inputs = {"tz": {"type": "file", "value": [{"id": "f", "name": "part.dxf", "mime_type": "text/plain"}]}}
    begins = {"query": "What is tea?", "inputs": inputs if name == "dfx_picture_parser" else {}}

    (run,) = played(engine, fixtures, tmp_path, name, begins)

    assert (run.error, run.waiting) == ("", None)
    assert run.events[-1]["event"] == "workflow_finished"
    assert run.answer


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_upstream_fails_here_with_the_same_reason(
    name: str, engine: Engine, fixtures: Fixtures, tmp_path: Path
):
    (run,) = played(engine, fixtures, tmp_path, name, {"query": "Tea"})

    assert run.error.startswith(FAILS[name])


def test_a_form_in_the_middle_is_asked_and_answered(engine: Engine, fixtures: Fixtures, tmp_path: Path):
    asked, run = played(
        engine, fixtures, tmp_path, "user_interaction", {"query": "Tea"}, {"inputs": {"instructions": "Go"}}
    )

    assert asked.waiting is not None
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
def test_the_canvas_with_everything_plays_each_of_its_demos_to_the_end(
    demo: str, engine: Engine, fixtures: Fixtures, tmp_path: Path
):
    answers, said = DEMOS[demo]
    turns = [{"query": "开始"}, {"inputs": {"demo": demo}}, *({"inputs": answer} for answer in answers)]

    *asked, last = played(engine, fixtures, tmp_path, "all", *turns)

    assert all(turn.waiting is not None and not turn.error for turn in asked)
    assert (last.error, last.waiting) == ("", None)
    assert last.events[-1]["event"] == "workflow_finished"
    assert said in last.answer


# -- in other words --------------------------------------------------------------------------------------------------
def file_of(name: str) -> Path:
    (found,) = RAGFLOW.rglob(f"{name}.json")
    return found


def document_of(name: str) -> Any:
    """The document, with a model where its author left the choice open."""
    return dsl_of(json.loads(file_of(name).read_text(encoding="utf-8")))


def dsl_of(written: Any) -> Any:
    match written:
        case dict():
            return {
                key: "m@Scripted" if key == "llm_id" and value == "" else dsl_of(value)
                for key, value in written.items()
            }
        case list():
            return [dsl_of(item) for item in written]
        case _:
            return written


def played(engine: Engine, fixtures: Fixtures, folder: Path, name: str, *turns: Mapping[str, Any]) -> list[ObservedRun]:
    """The turns of one conversation with a canvas."""
    nothing = {"events": [], "outputs": {}, "answer": "", "globals": {}, "history": []}
    written = {
        "name": name,
        "match": "sequence",
        "dsl_file": str(file_of(name).relative_to(RECORDINGS)),
        "dsl_fill_llm_id": "m@Scripted",
        "dsl_set": {"Retrieval:KBSearch": {"kb_ids": ["kb1"]}} if name == "all" else {},
        "runs": turns,
        "llm": [{"user": {"regex": "查知识库"}, "reply": "Retrieval"}, {"reply": REPLIES.get(name, REPLY)}],
        "file_store": {"f": "0\nSECTION"},
        "expect": {"runs": [nothing for _ in turns]},
    }
    file = folder / "case.json"
    file.write_text(json.dumps(written), encoding="utf-8")
    seen = run_case(engine, fixtures, load_case(file, RECORDINGS))
    assert isinstance(seen, ObservedCase), seen.message if isinstance(seen, Refusal) else seen
    return list(seen.runs)
