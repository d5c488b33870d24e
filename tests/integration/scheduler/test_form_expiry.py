"""Forms that say how long they wait."""

from datetime import UTC, datetime, timedelta

from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper.sweeper import Sweeper
from store.tables.runs import runs
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run

DAY = timedelta(days=1)


def asking(bench: Bench, *parts: str, **params: str | None) -> Run:
    """A run that waits with forms of these names, each for as long as its keyword says."""
    forms = {name: {**FORM, "expires_after": time} for name, time in params.items()}
    run = bench.start(*parts, **forms, say=says("never"))
    bench.play()
    assert run.status == "waiting"
    return run


def left(run: Run) -> timedelta:
    """How long the run goes on waiting."""
    return run.row["expires_at"] - datetime.now(UTC)


def later(bench: Bench, run: Run) -> None:
    """The time that the run waits is over, and somebody looks."""
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    Sweeper(bench.coordinator).tick()


def test_a_form_waits_for_as_long_as_its_canvas_says(bench: Bench):
    run = asking(bench, "begin -> form -> say", form="2d")
    assert DAY < left(run) <= 2 * DAY

    later(bench, run)

    assert (run.status, run.row["error"]) == ("failed", 'The form "form" (form) was not answered within 2 days.')
    assert run.events[-1].body["code"] == "form_expired"


def test_of_several_forms_the_first_whose_time_is_over_counts(bench: Bench):
    run = asking(bench, "begin -> form, formb, formc -> say", form="3d", formb="12h", formc=None)
    assert left(run) <= DAY / 2

    later(bench, run)

    assert run.row["error"] == 'The form "formb" (formb) was not answered within 12 hours.'


def test_a_form_may_wait_longer_than_the_deployment_lets_others_wait(bench: Bench):
    longer = asking(bench, "begin -> form -> say", form="90d")
    beside = asking(bench, "begin -> form, formb -> say", form="90d", formb=None)

    assert left(longer) > 89 * DAY
    assert left(beside) <= 30 * DAY
    later(bench, beside)
    assert beside.row["error"] == "The form was not answered in time."


def test_the_time_counts_from_when_the_form_was_shown_last(bench: Bench):
    run = asking(bench, "begin -> form -> say", form="2d")
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) + timedelta(hours=1)))

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=""))

    assert left(run) > DAY


def test_the_next_form_has_a_time_of_its_own(bench: Bench):
    run = asking(bench, "begin -> form -> formb -> say", form="1h", formb="2d")

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))
    assert run.row["expires_at"] is None
    bench.play()

    assert left(run) > DAY
