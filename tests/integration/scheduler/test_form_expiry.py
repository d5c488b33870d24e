"""Forms with their own expiry (`expires_after`)."""

from datetime import UTC, datetime, timedelta

from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper.sweeper import Sweeper
from store.tables.runs import runs
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run

DAY = timedelta(days=1)


def waiting_run(bench: Bench, *parts: str, **params: str | None) -> Run:
    """Return a run that waits for forms of these names, each with the expiry that its keyword sets."""
    forms = {name: {**FORM, "expires_after": time} for name, time in params.items()}
    run = bench.start(*parts, **forms, say=content("never"))
    bench.play()
    assert run.status == "waiting"
    return run


def time_left(run: Run) -> timedelta:
    """Return how much longer the run waits."""
    return run.row["expires_at"] - datetime.now(UTC)


def expire(bench: Bench, run: Run) -> None:
    """Move the expiry of the run's form into the past and let the sweeper tick."""
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    Sweeper(bench.coordinator).tick()


def test_form_expires_after_the_time_that_its_canvas_sets(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form="2d")
    assert DAY < time_left(run) <= 2 * DAY

    expire(bench, run)

    assert (run.status, run.row["error"]) == ("failed", 'The form "form" (form) was not answered within 2 days.')
    assert run.events[-1].body["code"] == "form_expired"


def test_run_with_several_forms_fails_when_the_first_one_expires(bench: Bench):
    run = waiting_run(bench, "begin -> form, formb, formc -> say", form="3d", formb="12h", formc=None)
    assert time_left(run) <= DAY / 2

    expire(bench, run)

    assert run.row["error"] == 'The form "formb" (formb) was not answered within 12 hours.'


def test_form_may_set_a_longer_expiry_than_the_default_of_the_deployment(bench: Bench):
    longer = waiting_run(bench, "begin -> form -> say", form="90d")
    beside = waiting_run(bench, "begin -> form, formb -> say", form="90d", formb=None)

    assert time_left(longer) > 89 * DAY
    assert time_left(beside) <= 30 * DAY
    expire(bench, beside)
    assert beside.row["error"] == "The form was not answered in time."


def test_expiry_counts_from_the_last_time_that_the_form_was_shown(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form="2d")
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) + timedelta(hours=1)))

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=""))

    assert time_left(run) > DAY


def test_each_form_of_a_run_has_its_own_expiry(bench: Bench):
    run = waiting_run(bench, "begin -> form -> formb -> say", form="1h", formb="2d")

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))
    assert run.row["expires_at"] is None
    bench.play()

    assert time_left(run) > DAY
