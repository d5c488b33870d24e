"""Explanations of what a run waits for, from rows in the database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from sqlalchemy import text

from canvas.events.explain import Explanation, explain
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.sweeper.sweeper import Sweeper
from store.db.database import Database
from store.monitoring import queue_probes, wait_facts
from store.tables.runs import activations
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test: the latest queue probe is a fact of the whole deployment."""
    database = Database(database_url)
    yield database
    database.close()


def explanation_of(bench: Bench, run: Run) -> Explanation:
    with bench.database.transaction() as tx:
        found = wait_facts.load_facts(tx, bench.tenant_id, run.id)
        assert found is not None
        facts, version_id = found
        return explain(facts, bench.coordinator.versions.canvas(tx, version_id), lambda _: inf)


def waits_for(bench: Bench, run: Run) -> tuple[str, str | None]:
    """Return the kind of the run's wait and the node that it names."""
    wait = explanation_of(bench, run).wait
    return wait.kind.value, wait.of.node_id if wait.of else None


def change(bench: Bench, run: Run, **values: Any) -> None:
    with bench.database.transaction() as tx:
        tx.execute(activations.update().where(activations.c.run_id == run.id).values(**values))


def test_explanation_follows_a_run_from_its_first_message_to_its_end(bench: Bench):
    run = bench.start("begin -> work")
    in_the_queue = waits_for(bench, run)
    claimed = bench.claim(run, "begin")
    at_work = waits_for(bench, run)
    bench.report(claimed)
    reported = waits_for(bench, run)

    bench.coordinator.advance_run(run.id)
    bench.play()

    assert in_the_queue == ("worker", "begin")
    assert at_work == ("work", "begin")
    assert reported == ("report", "begin")
    assert waits_for(bench, run) == ("over", None)


def test_explanation_names_the_running_node_and_its_time(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")

    wait = explanation_of(bench, run).wait

    assert (wait.owner, wait.detail["attempt"]) == ("worker by hand", 1)
    assert wait.sentence == "begin has been running for 0 s: attempt 1, worker by hand."


def test_explanation_of_an_expired_lease_names_the_sweeper(bench: Bench):  # T044
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=timedelta(seconds=-1))
    without_sweeper = explanation_of(bench, run).wait

    Sweeper(bench.coordinator).tick()
    with_sweeper = explanation_of(bench, run).wait

    assert [without_sweeper.kind.value, with_sweeper.kind.value] == ["silent_lease", "silent_lease"]
    assert without_sweeper.sentence.endswith(
        "no sweeper has run yet. Start one with `easel sweeper`: it gives the work to another worker."
    )
    assert with_sweeper.sentence.endswith("the sweeper gives the work to another worker within 7 s.")


def test_explanation_says_that_no_worker_receives(bench: Bench):
    run = bench.start("begin -> work")
    with bench.database.transaction() as tx:
        queue_probes.record_return(tx, "nodes", datetime.now(UTC) - timedelta(seconds=90))
    Sweeper(bench.coordinator).tick()

    sentence = explanation_of(bench, run).wait.sentence

    assert sentence == "begin is ready, and no worker has received anything from the queue for 90 s."


def test_explanation_of_an_attempt_that_is_not_due_names_its_time(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, not_before=datetime.now(UTC) + timedelta(minutes=1))

    wait = explanation_of(bench, run).wait

    assert (wait.kind.value, wait.owner) == ("time", "the clock")
    assert wait.until == run.activation("begin").not_before


def test_explanation_of_a_full_run_names_slots_and_running_nodes(bench: Bench):
    bench.lifecycle = Lifecycle(bench.a_coordinator(max_running=1))
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "two" in run.statuses)

    found = explanation_of(bench, run)

    assert found.wait.kind.value == "worker"
    assert [(wait.kind.value, wait.detail["queued"]) for wait in found.also] == [("place", 1)]


def test_explanation_of_a_form_names_its_fields_and_its_expiry(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()

    wait = explanation_of(bench, run).wait

    assert (wait.kind.value, wait.owner) == ("person", "a person")
    assert wait.until == run.row["expires_at"]
    assert (list(wait.detail["fields"]), wait.detail["tips"]) == (["name"], "Who are you?")


def test_explanation_of_a_queued_run_names_the_run_before_it(bench: Bench):
    first = bench.start("begin -> work")
    second, third = (
        bench.start("begin -> work", conversation_id=first.conversation_id, on_busy="enqueue") for _ in range(2)
    )

    owners = [explanation_of(bench, run).wait.owner for run in (second, third)]
    bench.play(until=lambda: first.status == "succeeded")
    with bench.database.transaction() as tx:
        tx.execute(text("update conversations set active_run = null"))
        tx.execute(text("update runs set status = 'queued' where id = :id"), id=second.id)
    once_free = explanation_of(bench, second).wait

    assert owners == [f"run {first.id.hex}", f"run {first.id.hex}"]
    assert once_free.owner == "the sweeper"


def test_explanation_of_a_cancelled_run_names_the_nodes_that_have_not_stopped(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert waits_for(bench, run) == ("letting_go", "begin")


def test_run_that_waits_for_nothing_is_explained_as_a_bug(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    with bench.database.transaction() as tx:
        tx.execute(text("update runs set status = 'running' where id = :id"), id=run.id)

    assert waits_for(bench, run) == ("nobody", None)


def test_another_tenants_run_is_not_explained(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as tx:
        assert wait_facts.load_facts(tx, bench.a_tenant(), run.id) is None
