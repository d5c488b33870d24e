"""References of a turn: numbers that never change, whoever finds what and how often."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from store.db.database import Database
from store.primitives.ids import new_id
from store.runs import attempt_records

RUN, TURN, NODE = new_id(), new_id(), new_id()


def test_citations_are_read_under_their_numbers(database: Database):
    turn = new_id()

    with database.transaction() as tx:
        numbers = attempt_records.add_citations(
            tx, RUN, turn, NODE, [chunk("29584016"), chunk("83676664")], [document("a")]
        )

    with database.transaction() as tx:
        told = attempt_records.load_citations(tx, RUN, turn)
    assert numbers == [373, 194]
    assert told["chunks"] == {"194": {"content": "text of 83676664"}, "373": {"content": "text of 29584016"}}
    assert told["doc_aggs"] == {"a": document("a")}


def test_chunk_that_is_cited_again_keeps_its_number_and_counts_once(database: Database):
    turn = new_id()

    for _ in range(2):
        with database.transaction() as tx:
            numbers = attempt_records.add_citations(tx, RUN, turn, NODE, [chunk("1"), chunk("1")], [document("a", 2)])

    with database.transaction() as tx:
        told = attempt_records.load_citations(tx, RUN, turn)
    assert len(set(numbers)) == len(told["chunks"]) == 1
    assert told["doc_aggs"]["a"]["count"] == 2


def test_a_document_that_two_nodes_find_keeps_the_count_of_the_first(database: Database):
    turn = new_id()

    with database.transaction() as tx:
        attempt_records.add_citations(tx, RUN, turn, NODE, [chunk("1")], [document("a", 2)])
        attempt_records.add_citations(tx, RUN, turn, new_id(), [chunk("2")], [document("a", 3)])

    with database.transaction() as tx:
        assert attempt_records.load_citations(tx, RUN, turn)["doc_aggs"] == {"a": document("a", 2)}


def test_two_nodes_at_once_never_give_one_number_to_different_chunks(database: Database):
    turn = new_id()

    def cite(node: int) -> list[int]:
        with database.transaction() as tx:
            return attempt_records.add_citations(
                tx, RUN, turn, new_id(), [chunk(f"{node}-{at}") for at in range(60)], []
            )

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for given in pool.map(cite, range(4)) for number in given]

    assert len(set(numbers)) == 240


def test_citations_of_another_turn_are_separate(database: Database):
    turn = new_id()
    with database.transaction() as tx:
        attempt_records.add_citations(tx, RUN, turn, NODE, [chunk("1")], [document("a")])

    with database.transaction() as tx:
        assert attempt_records.load_citations(tx, RUN, new_id()) == {"chunks": {}, "doc_aggs": {}}


def chunk(chunk_id: str) -> dict[str, Any]:
    return {"chunk_id": chunk_id, "content": f"text of {chunk_id}"}


def document(name: str, count: int = 1) -> dict[str, Any]:
    return {"doc_name": name, "count": count}


def test_citations_of_runs_are_read_together_without_runs_that_have_none(database: Database):
    one, other, silent = new_id(), new_id(), new_id()
    with database.transaction() as tx:
        attempt_records.add_citations(tx, one, new_id(), NODE, [chunk("1")], [document("a")])
        attempt_records.add_citations(tx, one, new_id(), NODE, [chunk("2")], [document("a")])
        attempt_records.add_citations(tx, other, new_id(), NODE, [chunk("3")], [])

    with database.transaction() as tx:
        told = attempt_records.citations_of_runs(tx, [one, other, silent])

    assert {run: len(references["chunks"]) for run, references in told.items()} == {one: 2, other: 1}
    assert told[one]["doc_aggs"]["a"]["count"] == 1
