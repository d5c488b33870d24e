"""Attempts after which an activation becomes ready again: each is kept with the reason why it ended."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from canvas.budget import parse_limits
from canvas.outcome import POSTPONED
from providers.models.chat.scripted import Script
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper import sweeper
from scheduler.sweeper.sweeper import Sweeper
from store.runs import attempts
from store.runs.attempts import StoredAttempt
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, at_work, until
from tests.integration.worker.conftest import PausedNodes

UNSAFE: Mapping[str, Any] = {"component": "Unsafe"}
EXPIRE = text("update activations set lease_until = now() - interval '1 minute' where run_id = :run_id and id = :id")
DUE = text("update activations set not_before = now() where run_id = :run_id and status = 'ready'")


@pytest.fixture(autouse=True)
def sweeper_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sweeper act at its first tick."""
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


def test_run_without_retries_has_no_attempts_and_sends_no_statement_about_them(
    bench: Bench, sent_statements: list[bytes]
):  # T142
    run = bench.start("begin -> compute1 -> work -> say", say=content("done"))
    bench.play()

    assert run.status == "succeeded"
    assert attempts_of(run) == []
    assert not [sql for sql in sent_statements if b"into attempts" in sql]


def test_attempt_of_a_lost_worker_is_kept(bench: Bench):  # T142
    run = lose_worker(bench, {})
    bench.play()

    (kept,) = attempts_of(run)
    row = run.activation("work")
    assert (run.status, row.attempt, kept.attempt, kept.end_reason) == ("succeeded", 2, 1, "worker_lost")
    assert (kept.activation_id, kept.worker, kept.crash_count) == (row.id, "by hand", 1)
    assert (kept.code, kept.error) == ("worker_lost", "The worker was lost.")
    assert row.created_at <= kept.ready_at <= kept.started_at <= kept.ended_at <= kept.next_attempt_at
    assert kept.next_attempt_at <= row.started_at


def test_attempt_released_by_a_shutdown_is_kept(bench: Bench, paused_nodes: PausedNodes):  # T142
    run = paused_nodes.start("begin -> work")
    leaving = bench.a_worker()
    with at_work(bench, leaving):
        paused_nodes.wait_for("work")
        leaving.close()
    until(lambda: run.activation("work").status == "ready")
    paused_nodes.release()
    bench.play()

    (kept,) = attempts_of(run)
    assert (run.status, kept.end_reason, kept.crash_count) == ("succeeded", "released", 0)


def test_postponed_attempt_is_kept_with_what_it_waits_for(bench: Bench):  # T142
    run = ready(bench)
    waits = {"error": "waits for the allowance of OpenAI", "code": POSTPONED, "retryable": True, "again_in": 30.0}
    assert bench.report(bench.claim(run, "work"), "Failed", column=waits)
    bench.coordinator.advance_run(run.id)

    (kept,) = attempts_of(run)
    assert (kept.end_reason, kept.error) == ("postponed", "waits for the allowance of OpenAI")
    assert kept.ended_at is not None
    assert kept.next_attempt_at == run.activation("work").not_before
    assert timedelta(seconds=25) < kept.next_attempt_at - kept.ended_at < timedelta(seconds=35)


def test_next_attempt_of_a_postponed_one_was_ready_when_it_was_due(bench: Bench):
    run = ready(bench)
    waits = {"error": "waits", "code": POSTPONED, "retryable": True, "again_in": 30.0}
    assert bench.report(bench.claim(run, "work"), "Failed", column=waits)
    bench.coordinator.advance_run(run.id)
    with bench.database.transaction() as tx:
        tx.execute(DUE, run_id=run.id)
    due_at = run.activation("work").not_before
    assert bench.report(bench.claim(run, "work"), "Failed", column=waits)
    bench.coordinator.advance_run(run.id)

    first, second = attempts_of(run)
    assert (first.attempt, second.attempt, second.ready_at) == (1, 2, due_at)


def test_attempt_with_another_harmless_failure_is_kept_as_retried(bench: Bench):  # T142
    run = ready(bench)
    failure = {"error": "Something of a later release.", "code": "of_a_later_release", "retryable": True}
    assert bench.report(bench.claim(run, "work"), "Failed", column=failure)
    bench.coordinator.advance_run(run.id)
    bench.play()

    (kept,) = attempts_of(run)
    assert (run.status, kept.end_reason, kept.code) == ("succeeded", "retried", "of_a_later_release")


def test_attempt_that_showed_an_answered_form_is_kept(bench: Bench):  # T142
    run = bench.start("begin -> ask -> say", ask={"component": "UserFillUp", **FORM}, say=content("Hi {ask@name}"))
    bench.play()
    assert (run.status, attempts_of(run)) == ("waiting", [])

    answer(bench, run, {"name": {"value": "Ada"}})
    bench.play()

    (kept,) = attempts_of(run)
    assert (run.status, run.activation("ask").attempt) == ("succeeded", 2)
    assert (kept.end_reason, kept.attempt, kept.code, kept.error) == ("waited_for_input", 1, None, None)


def test_attempt_over_budget_is_kept_when_the_budget_is_raised(bench: Bench):  # T142
    bench.script = Script([{"reply": "Fine."}])
    params = {"component": "LLM", "llm_id": "scripted", "prompts": [{"role": "user", "content": "?"}]}
    start = bench.a_start("begin -> model -> say", model=params, say=content("{model@content}"))
    run = bench.start_run(replace(start, budget=parse_limits({"calls": 0})))
    bench.play()
    assert (run.status, attempts_of(run)) == ("waiting", [])

    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(), budget=parse_limits({"calls": 5}))
    bench.play()

    (kept,) = attempts_of(run)
    assert (run.status, kept.end_reason, kept.code) == ("succeeded", "over_budget", "budget_exceeded")


@pytest.mark.parametrize("params", [{"on_unknown": "retry"}, {"on_unknown": "ask"}])
def test_attempt_that_may_have_acted_is_kept_with_an_unknown_outcome(bench: Bench, params: Mapping[str, Any]):  # T142
    run = lose_worker(bench, {**UNSAFE, **params})
    if run.status == "waiting":
        answer(bench, run, {"*.outcome": "again"})
    bench.play()

    (kept,) = attempts_of(run)
    assert (run.status, run.activation("work").attempt) == ("succeeded", 2)
    assert (kept.attempt, kept.end_reason) == (1, "unknown_outcome")


def test_usage_of_a_kept_attempt_is_its_own(bench: Bench):
    run = ready(bench)
    for tokens in (5, 7):
        column = {"error": "released", "code": "released", "retryable": True, "used": {"total_tokens": tokens}}
        assert bench.report(bench.claim(run, "work"), "Failed", column=column, usage={"total_tokens": 99})
        bench.coordinator.advance_run(run.id)

    assert [kept.usage for kept in attempts_of(run)] == [{"total_tokens": 5}, {"total_tokens": 7}]


def test_attempts_of_another_tenant_are_not_found(bench: Bench):
    run = lose_worker(bench, {})

    with bench.database.transaction() as tx:
        assert attempts.list_attempts(tx, bench.a_tenant(), run.id) == []
    assert len(attempts_of(run)) == 1


# -- helpers ---------------------------------------------------------------------------------------------------------
def ready(bench: Bench, **params: Any) -> Run:
    """Return a run whose node `work` is ready, and which no message will execute."""
    run = bench.start("begin -> work", work=params)
    bench.play(until=lambda: "work" in run.statuses)
    bench.outbox.lose()
    return run


def lose_worker(bench: Bench, params: Mapping[str, Any]) -> Run:
    """Let the worker of `work` be lost while the node may be acting."""
    run = ready(bench, **params)
    bench.claim(run, "work")
    effect = "unsafe" if params else None
    with bench.database.transaction() as tx:
        row = run.activation("work")
        tx.execute(text("update activations set effect = :effect where run_id = :run_id and id = :id"),
                   effect=effect, run_id=run.id, id=row.id)  # fmt: skip
        tx.execute(EXPIRE, run_id=run.id, id=row.id)
    Sweeper(bench.coordinator).tick()
    return run


def answer(bench: Bench, run: Run, inputs: Mapping[str, Any]) -> None:
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(inputs=inputs))


def attempts_of(run: Run) -> list[StoredAttempt]:
    with run.bench.database.transaction() as tx:
        return attempts.list_attempts(tx, run.bench.tenant_id, run.id)
