"""From what a caller sends to a start: version, conversation, key."""

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


def test_a_draft_is_kept_as_a_version_before_it_runs(bench: Bench, canvas_id: UUID):
    with bench.database.transaction() as tx:
        canvases.update(tx, bench.tenant_id, canvas_id, dsl=dsl_of("begin -> other"))

    wanted = asked(bench, canvas_id, query="hi")

    with bench.database.transaction() as tx:
        assert "other" in versions.get(tx, wanted.version_id).dsl["components"]


def test_the_released_version_runs_if_that_is_wanted(bench: Bench, canvas_id: UUID):
    with bench.database.transaction() as tx:
        released = canvases.publish(tx, bench.tenant_id, canvas_id).id
        canvases.update(tx, bench.tenant_id, canvas_id, dsl=dsl_of("begin -> other"))

    assert asked(bench, canvas_id, release=True).version_id == released
    assert asked(bench, canvas_id, version=str(released)).version_id == released
    assert asked(bench, canvas_id, version="draft").version_id != released


def test_a_conversation_goes_on_with_the_version_it_began_with(bench: Bench):
    drawn = bench.draw("begin -> work")
    run = bench.start(drawn=drawn)
    with bench.database.transaction() as tx:
        canvases.update(tx, bench.tenant_id, drawn[0], dsl=dsl_of("begin -> other"))

    wanted = asked(bench, drawn[0], session_id=str(run.conversation_id))

    assert (wanted.conversation_id, wanted.version_id) == (run.conversation_id, drawn[1])


def test_a_conversation_of_another_canvas_does_not_exist(bench: Bench, canvas_id: UUID):
    run = bench.start("begin -> work")

    with pytest.raises(NotFound):
        asked(bench, canvas_id, session_id=str(run.conversation_id))


@pytest.mark.parametrize(
    ("option", "value"),
    [("session_id", "no id"), ("version", "no id"), ("inputs", ["a"]), ("query", 7), ("files", "a"), ("files", ["a"])],
)
def test_what_cannot_be_meant_is_refused_by_its_name(bench: Bench, canvas_id: UUID, option: str, value: Any):
    with pytest.raises(InvalidRequest, match=f'"{option}"'):
        asked(bench, canvas_id, **{option: value})


def test_the_same_request_has_the_same_digest_and_another_has_another(bench: Bench, canvas_id: UUID):
    one = asked(bench, canvas_id, query="hi", idempotency_key="k")
    same = asked(bench, canvas_id, idempotency_key="k", query="hi")
    other = asked(bench, canvas_id, query="ho", idempotency_key="k")
    elsewhere = asked(bench, bench.draw("begin -> work")[0], query="hi", idempotency_key="k")

    first = bench.lifecycle.start_run(one)
    assert bench.lifecycle.start_run(same).run_id == first.run_id
    for changed in (other, elsewhere):
        with pytest.raises(Conflict):
            bench.lifecycle.start_run(changed)


def test_a_request_without_a_key_is_new_every_time(bench: Bench, canvas_id: UUID):
    started = [bench.lifecycle.start_run(asked(bench, canvas_id, query="hi")) for _ in range(2)]

    assert started[0].run_id != started[1].run_id


def test_everything_that_a_turn_brings_reaches_the_run(bench: Bench, canvas_id: UUID):
    run_id = new_id()
    wanted = asked(
        bench,
        canvas_id,
        run_id=run_id,
        query={"a": 1},
        inputs={"n": 2},
        files=[{"id": "f"}],
        user_id=7,
        on_busy="enqueue",
    )

    assert (wanted.run_id, wanted.on_busy) == (run_id, "enqueue")
    assert (wanted.request.query, wanted.request.inputs, wanted.request.user_id) == ({"a": 1}, {"n": 2}, "7")
    assert wanted.request.files == ({"id": "f"},)


def asked(bench: Bench, canvas_id: UUID, *, run_id: UUID | None = None, **options: Any) -> Start:
    with bench.database.transaction() as tx:
        return parse_start(tx, bench.tenant_id, run_id, canvas_id, options)
