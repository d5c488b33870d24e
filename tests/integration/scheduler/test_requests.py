"""Parsing of start requests: version, conversation, idempotency key."""

from typing import Any
from uuid import UUID

import pytest

from canvas.errors import Conflict, InvalidRequest, NotFound
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.start_options import parse_start
from store.agents import canvases, versions
from store.primitives.ids import new_id
from tests.integration.engine import Bench, dsl_of


@pytest.fixture
def canvas_id(bench: Bench) -> UUID:
    return bench.draw("begin -> work")[0]


def test_draft_is_stored_as_a_version_before_it_runs(bench: Bench, canvas_id: UUID):
    with bench.database.transaction() as tx:
        canvases.update(tx, bench.tenant_id, canvas_id, dsl=dsl_of("begin -> other"))

    start = parse(bench, canvas_id, query="hi")

    with bench.database.transaction() as tx:
        assert "other" in versions.get(tx, start.version_id).dsl["components"]


def test_released_version_runs_if_it_is_requested(bench: Bench, canvas_id: UUID):
    with bench.database.transaction() as tx:
        released = canvases.publish(tx, bench.tenant_id, canvas_id).id
        canvases.update(tx, bench.tenant_id, canvas_id, dsl=dsl_of("begin -> other"))

    assert parse(bench, canvas_id, release=True).version_id == released
    assert parse(bench, canvas_id, version=str(released)).version_id == released
    assert parse(bench, canvas_id, version="draft").version_id != released


def test_conversation_continues_with_the_version_it_was_created_with(bench: Bench):
    drawn = bench.draw("begin -> work")
    run = bench.start(drawn=drawn)
    with bench.database.transaction() as tx:
        canvases.update(tx, bench.tenant_id, drawn[0], dsl=dsl_of("begin -> other"))

    start = parse(bench, drawn[0], session_id=str(run.conversation_id))

    assert (start.conversation_id, start.version_id) == (run.conversation_id, drawn[1])


def test_conversation_of_another_canvas_is_not_found(bench: Bench, canvas_id: UUID):
    run = bench.start("begin -> work")

    with pytest.raises(NotFound):
        parse(bench, canvas_id, session_id=str(run.conversation_id))


@pytest.mark.parametrize(
    ("option", "value"),
    [("session_id", "no id"), ("version", "no id"), ("inputs", ["a"]), ("query", 7), ("files", "a"), ("files", ["a"])],
)
def test_invalid_option_is_refused_with_its_name(bench: Bench, canvas_id: UUID, option: str, value: Any):
    with pytest.raises(InvalidRequest, match=f'"{option}"'):
        parse(bench, canvas_id, **{option: value})


def test_equal_requests_have_equal_digests_and_different_ones_do_not(bench: Bench, canvas_id: UUID):
    one = parse(bench, canvas_id, query="hi", idempotency_key="k")
    same = parse(bench, canvas_id, idempotency_key="k", query="hi")
    other = parse(bench, canvas_id, query="ho", idempotency_key="k")
    elsewhere = parse(bench, bench.draw("begin -> work")[0], query="hi", idempotency_key="k")

    first = bench.lifecycle.start_run(one)
    assert bench.lifecycle.start_run(same).run_id == first.run_id
    for changed in (other, elsewhere):
        with pytest.raises(Conflict):
            bench.lifecycle.start_run(changed)


def test_request_without_an_idempotency_key_starts_a_new_run_each_time(bench: Bench, canvas_id: UUID):
    started = [bench.lifecycle.start_run(parse(bench, canvas_id, query="hi")) for _ in range(2)]

    assert started[0].run_id != started[1].run_id


def test_all_options_of_a_request_reach_the_start(bench: Bench, canvas_id: UUID):
    run_id = new_id()
    start = parse(
        bench,
        canvas_id,
        run_id=run_id,
        query={"a": 1},
        inputs={"n": 2},
        files=[{"id": "f"}],
        user_id=7,
        on_busy="enqueue",
    )

    assert (start.run_id, start.on_busy) == (run_id, "enqueue")
    assert (start.request.query, start.request.inputs, start.request.user_id) == ({"a": 1}, {"n": 2}, "7")
    assert start.request.files == ({"id": "f"},)


def parse(bench: Bench, canvas_id: UUID, *, run_id: UUID | None = None, **options: Any) -> Start:
    with bench.database.transaction() as tx:
        return parse_start(tx, bench.tenant_id, run_id, canvas_id, options)
