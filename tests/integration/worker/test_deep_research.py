"""Deep research in a run on a knowledge base of the tenant: progress, citations, and a change of worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.context import THINK_END, THINK_START
from providers.models.chat.scripted import Script
from scheduler.lifecycle.lifecycle import Lifecycle
from store.runs import attempt_records
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.knowledge_bases import KnowledgeTenant
from worker.worker import Worker

JUDGES, FOLLOWS, ANSWERS = "You judge whether", "is not enough. Name one to three", "Answer from it"
FIRST = {"system": JUDGES, "user": "Question:\nrefunds\n", "reply": '{"is_sufficient": false}'}
NEXT = {
    "system": FOLLOWS,
    "reply": json.dumps({"questions": [{"question": "holidays", "query": "holidays"}, {"question": "shoes"}]}),
}
DOCUMENTS = ["refunds.txt", "holidays.txt", "shoes.txt"]  # in the order of the questions
ENOUGH = {"system": JUDGES, "reply": '{"is_sufficient": true}'}
SOURCE = {"component_name": "Retrieval", "name": "Rules", "params": {"dataset_ids": ["Policies"], "top_n": 1}}


def create_knowledge_base(bench: Bench, folder: Path) -> KnowledgeTenant:
    shop = KnowledgeTenant(bench.database, bench.tenant_id, folder)
    base = shop.base()
    for name in ("refunds", "holidays", "shoes"):
        shop.add(base, f"{name}.txt", f"What the house says about {name}.")
    shop.read()
    return shop


def start_research(bench: Bench, **params: Any) -> Run:
    node = {"component": "DeepResearch", "llm_id": "m", "tools": [SOURCE], **params}
    return bench.start("begin -> work -> say", query="refunds", work=node, say=content("{work@content}"))


def cited_documents(run: Run) -> set[str]:
    (end,) = [event.body for event in run.events if event.name == "message_end"]
    return set(end["reference"]["doc_aggs"])


@pytest.mark.parametrize("way", ["node", "agent"])
def test_deep_research_streams_its_progress_and_cites_its_evidence(bench: Bench, tmp_path: Path, way: str):
    shop = create_knowledge_base(bench, tmp_path)
    bench.script = Script([FIRST, NEXT, ENOUGH, {"system": ANSWERS, "reply": "Five days."}])
    agent = {"component": "Agent", "deep_research": True, "prompts": [{"role": "user", "content": "{sys.query}"}]}

    run = start_research(bench, **(agent if way == "agent" else {}))
    bench.play(bench.a_worker(blobs=shop.blobs))

    assert run.status == "succeeded"
    assert run.text.startswith(f"{THINK_START}<retrieving>Searching by `refunds`...<br/>Retrieval 1 results in ")
    assert run.text.endswith(f"</retrieving>{THINK_END}Five days.")
    assert cited_documents(run) == set(DOCUMENTS)
    with bench.database.transaction() as tx:
        (record,) = attempt_records.list_tool_calls(tx, run.id, run.row["message_id"])
    assert len(record["trace"]) == 3
    evidence = run.outputs("work").get("json") or []
    assert [chunk["document_name"] for chunk in evidence] == ([] if way == "agent" else DOCUMENTS)


def test_deep_research_continues_on_another_worker_without_repeated_calls(bench: Bench, tmp_path: Path):
    shop = create_knowledge_base(bench, tmp_path)
    slow = {"system": ANSWERS, "reply": "Never heard.", "delay_ms": 60_000, "times": 1}
    script = bench.script = Script([FIRST, NEXT, ENOUGH, slow, {"system": ANSWERS, "reply": "Five days."}])
    run = start_research(bench)
    leaving, other = (bench.a_worker(blobs=shop.blobs) for _ in range(2))

    with at_work(bench, leaving):
        until(lambda: len(script.requests) == 5)  # one judgement, the further questions, two judgements, and the answer
        leaving.close()
    bench.play(other)

    assert (run.status, run.activation("work").attempt) == ("succeeded", 2)
    assert len(script.requests) == 6
    assert run.text.endswith("Five days.")
    assert cited_documents(run) == set(DOCUMENTS)


def test_cancelled_deep_research_ends_at_once(bench: Bench, tmp_path: Path):
    shop = create_knowledge_base(bench, tmp_path)
    script = bench.script = Script([{"system": JUDGES, "reply": "{}", "delay_ms": 60_000}])
    run = start_research(bench)
    worker: Worker = bench.a_worker(blobs=shop.blobs)

    with at_work(bench, worker):
        until(lambda: script.requests)
        Lifecycle(bench.coordinator).cancel_run(bench.tenant_id, run.id)
        until(lambda: run.status == "cancelled")

    assert len(script.requests) == 1
