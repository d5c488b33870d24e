"""Citations of a message: their numbers are stable across nodes, repetitions and concurrency."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from store.db.database import Database
from store.primitives.ids import new_id
from store.runs import attempt_records
from tests.integration.engine import Bench

RUN, NODE = new_id(), new_id()


def test_citations_are_read_under_their_numbers(database: Database):
    message_id = new_id()

    with database.transaction() as tx:
        numbers = attempt_records.add_citations(
            tx, RUN, message_id, NODE, [chunk("29584016"), chunk("83676664")], [document("a")]
        )

    with database.transaction() as tx:
        citations = attempt_records.load_citations(tx, RUN, message_id)
    assert numbers == [373, 194]
    assert citations["chunks"] == {"194": {"content": "text of 83676664"}, "373": {"content": "text of 29584016"}}
    assert citations["doc_aggs"] == {"a": document("a")}


def test_chunk_that_is_cited_again_keeps_its_number_and_counts_once(database: Database):
    message_id = new_id()

    for _ in range(2):
        with database.transaction() as tx:
            numbers = attempt_records.add_citations(
                tx, RUN, message_id, NODE, [chunk("1"), chunk("1")], [document("a", 2)]
            )

    with database.transaction() as tx:
        citations = attempt_records.load_citations(tx, RUN, message_id)
    assert len(set(numbers)) == len(citations["chunks"]) == 1
    assert citations["doc_aggs"]["a"]["count"] == 2


def test_document_found_by_two_nodes_has_the_count_of_the_first(database: Database):
    message_id = new_id()

    with database.transaction() as tx:
        attempt_records.add_citations(tx, RUN, message_id, NODE, [chunk("1")], [document("a", 2)])
        attempt_records.add_citations(tx, RUN, message_id, new_id(), [chunk("2")], [document("a", 3)])

    with database.transaction() as tx:
        assert attempt_records.load_citations(tx, RUN, message_id)["doc_aggs"] == {"a": document("a", 2)}


def test_document_found_by_parallel_nodes_has_the_count_of_the_first_in_order_whichever_is_stored_first(
    bench: Bench,
):
    run = bench.start("begin -> first, second")
    bench.play()
    message_id = run.row["message_id"]

    with bench.coordinator.database.transaction() as tx:
        for node, count in (("second", 3), ("first", 2), ("first", 4), ("second", 5)):
            attempt_records.add_citations(
                tx, run.id, message_id, run.activation(node).id, [chunk(f"{node}-{count}")], [document("a", count)]
            )

    with bench.coordinator.database.transaction() as tx:
        of_turn = attempt_records.load_citations(tx, run.id, message_id)["doc_aggs"]
        of_run = attempt_records.citations_of_runs(tx, [run.id])[run.id]["doc_aggs"]
    assert of_turn == of_run == {"a": document("a", 2)}


def test_concurrent_nodes_never_assign_one_number_to_different_chunks(database: Database):
    message_id = new_id()

    def cite(node: int) -> list[int]:
        with database.transaction() as tx:
            return attempt_records.add_citations(
                tx, RUN, message_id, new_id(), [chunk(f"{node}-{at}") for at in range(60)], []
            )

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for batch in pool.map(cite, range(4)) for number in batch]

    assert len(set(numbers)) == 240


def test_citations_of_another_message_are_separate(database: Database):
    message_id = new_id()
    with database.transaction() as tx:
        attempt_records.add_citations(tx, RUN, message_id, NODE, [chunk("1")], [document("a")])

    with database.transaction() as tx:
        assert attempt_records.load_citations(tx, RUN, new_id()) == {"chunks": {}, "doc_aggs": {}}


def chunk(chunk_id: str) -> dict[str, Any]:
    return {"chunk_id": chunk_id, "content": f"text of {chunk_id}"}


def document(name: str, count: int = 1) -> dict[str, Any]:
    return {"doc_name": name, "count": count}


def test_citations_of_runs_are_read_together_without_runs_that_have_none(database: Database):
    one, other, without_citations = new_id(), new_id(), new_id()
    with database.transaction() as tx:
        attempt_records.add_citations(tx, one, new_id(), NODE, [chunk("1")], [document("a")])
        attempt_records.add_citations(tx, one, new_id(), NODE, [chunk("2")], [document("a")])
        attempt_records.add_citations(tx, other, new_id(), NODE, [chunk("3")], [])

    with database.transaction() as tx:
        citations = attempt_records.citations_of_runs(tx, [one, other, without_citations])

    assert {run: len(references["chunks"]) for run, references in citations.items()} == {one: 2, other: 1}
    assert citations[one]["doc_aggs"]["a"]["count"] == 1
