"""Forms: which fields are shown, what an answer does, and when a form expires."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from canvas.outcome import Finished
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run

AGE = {"inputs": {"age": {"type": "integer", "name": "Age"}}, "tips": "How old are you?"}
FILE = {"inputs": {"f": {"type": "file", "name": "File", "optional": False}}}
ROUNDS = {"maximum_loop_count": 3, "logical_operator": "or"}


def shown_form(run: Run) -> Mapping[str, Any]:
    """Return the body of the latest `user_inputs` event."""
    return next(event.body for event in reversed(run.events) if event.name == "user_inputs")


def answer(bench: Bench, run: Run, query: Any = "", **inputs: Any) -> None:
    """Answer the forms of the run and carry it on."""
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=query, inputs=inputs or None))
    bench.play()


def waiting_run(bench: Bench, *parts: str, **params: Any) -> Run:
    """Return a run that waits for its form."""
    run = bench.start(*parts, **params)
    bench.play()
    assert run.status == "waiting"
    return run


# -- one form --------------------------------------------------------------------------------------------------------
def test_waiting_form_has_tips_and_empty_fields_and_its_node_starts_with_the_answer(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form=FORM, say=content("{form@name}"))
    while_waiting = run.outputs("form"), run.event_names.count("node_started")

    answer(bench, run, name="Ann")

    assert while_waiting == ({"name": None, "tips": "Who are you?"}, 1)
    assert [event.node_id for event in run.events if event.name == "node_started"] == ["begin", "form", "say"]
    assert (run.status, run.text) == ("succeeded", "Ann")


def test_query_answers_the_only_field_and_other_empty_answers_show_the_form_again(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form=FORM, say=content("{form@name}"))
    question = shown_form(run)

    answer(bench, run, query="")
    again = shown_form(run)
    answer(bench, run, query="Ann")

    assert again == question
    assert run.event_names.count("user_inputs") == 2
    assert run.text == "Ann"


def test_query_does_not_answer_a_form_of_several_fields(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}}
    run = waiting_run(bench, "begin -> form", form=form)

    answer(bench, run, query="Ann")

    assert (run.status, run.event_names.count("user_inputs")) == ("waiting", 2)


def test_text_query_does_not_answer_a_file_field(bench: Bench):
    run = waiting_run(bench, "begin -> form", form=FILE)

    answer(bench, run, query="here it is")

    assert (run.status, run.event_names.count("user_inputs")) == ("waiting", 2)


def test_partial_answer_leaves_other_fields_empty_and_the_form_is_not_shown_again(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}, "enable_tips": False}
    run = waiting_run(bench, "begin -> form -> say", form=form, say=content("{form@name} {form@age}!"))

    answer(bench, run, name={"value": "Ann", "type": "line"})

    assert (run.status, run.text) == ("succeeded", "Ann !")
    assert run.outputs("form") == {"name": "Ann", "age": None}


def test_unknown_keys_of_an_answer_become_outputs_of_the_form(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form=FORM, say=content("{form@mood}"))

    answer(bench, run, mood="good", nothing=None)

    assert run.text == "good"
    assert run.outputs("form") == {"name": None, "tips": "Who are you?", "mood": "good", "nothing": None}


def test_answer_of_another_type_is_stored_unchanged(bench: Bench):
    run = waiting_run(bench, "begin -> form", form=AGE)

    answer(bench, run, age={"type": "integer", "value": "old enough"})

    assert run.status == "succeeded"
    assert run.outputs("form")["age"] == "old enough"


def test_answer_without_a_required_file_fails_the_node_with_that_reason(bench: Bench):
    run = waiting_run(bench, "begin -> form", form=FILE)

    answer(bench, run, f={"type": "file", "value": None, "optional": False})

    assert run.status == "failed"
    assert 'Field "f" needs a file' in run.row["error"]


def test_answering_turn_sets_the_globals_of_nodes_behind_the_form(bench: Bench):
    run = waiting_run(
        bench,
        "begin -> form -> say",
        form=FORM,
        say=content("{sys.query} {sys.conversation_turns} {form@name}"),
        query="hi",
    )

    answer(bench, run, query="my answer", name="Ann")

    assert run.text == "my answer 2 Ann"


def test_files_of_the_answering_turn_replace_those_of_the_first(bench: Bench):
    run = waiting_run(bench, "begin -> form -> work", form=FORM, work={"script": "{sys.files}"}, files=({"id": "1"},))
    seen: list[Any] = []
    bench.does(work=lambda ctx: (seen.append(ctx.lookup("sys.files")), Finished())[1])
    worker = bench.a_worker(read_file=lambda tenant_id, run_id, file, layout: file["id"])

    bench.lifecycle.resume_run(
        bench.tenant_id, run.id, RunRequest(query="x", inputs={"name": "Ann"}, files=({"id": "2"},))
    )
    bench.play(worker)

    assert seen == [["2"]]


# -- several forms ---------------------------------------------------------------------------------------------------
def test_forms_of_parallel_branches_are_shown_together_when_nothing_else_is_active(bench: Bench):
    run = bench.start("begin -> form, a; a -> formb -> c; form, c -> say", form=FORM, formb=AGE, say=content("done"))
    bench.play(until=lambda: "a" in run.statuses)
    assert run.status == "running"

    bench.play()

    assert run.status == "waiting"
    assert list(shown_form(run)["forms"]) == ["form", "formb"]
    assert list(shown_form(run)["inputs"]) == ["name", "age"]
    assert shown_form(run)["tips"] == "How old are you?"


def test_one_answer_is_given_to_every_waiting_form(bench: Bench):
    run = waiting_run(
        bench, "begin -> form, formb; form, formb -> say", form=FORM, formb=AGE, say=content("{form@name} {formb@age}")
    )

    answer(bench, run, name="Ann", age=7)

    assert (run.status, run.text) == ("succeeded", "Ann 7")
    assert run.outputs("formb") == {"age": 7, "name": "Ann", "tips": "How old are you?"}


def test_answer_to_one_form_continues_the_other_forms_with_empty_fields(bench: Bench):
    run = waiting_run(
        bench, "begin -> form, formb; form, formb -> say", form=FORM, formb=AGE, say=content("{form@name} {formb@age}!")
    )

    answer(bench, run, name="Ann")

    assert (run.status, run.text) == ("succeeded", "Ann !")


def test_forms_that_share_their_only_field_are_answered_by_one_query(bench: Bench):
    run = waiting_run(
        bench, "begin -> form, formb -> say", form=FORM, formb=FORM, say=content("{form@name}{formb@name}")
    )

    answer(bench, run, query="Ann")

    assert run.text == "AnnAnn"


def test_form_behind_another_form_is_shown_separately(bench: Bench):
    run = waiting_run(
        bench, "begin -> form -> formb -> say", form=FORM, formb=AGE, say=content("{form@name} {formb@age}")
    )

    answer(bench, run, query="Ann")
    assert list(shown_form(run)["forms"]) == ["formb"]
    answer(bench, run, query="7")

    assert run.text == "Ann 7"


def test_form_in_a_loop_is_shown_again_in_each_iteration(bench: Bench):
    run = waiting_run(
        bench,
        "begin -> loop -> say",
        "loop: visit -> form -> saya",
        loop=ROUNDS,
        form=FORM,
        saya=content("{form@name}."),
    )

    for name in ("Ann", "Bo", "Cy"):
        assert run.outputs("form")["name"] is None
        answer(bench, run, query=name)

    assert run.status == "succeeded"
    assert run.text.startswith("Ann.Bo.Cy.")


def test_unanswered_field_of_a_form_in_a_loop_has_no_value_of_an_earlier_iteration(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}}
    run = waiting_run(
        bench,
        "begin -> loop",
        "loop: visit -> form -> say",
        loop=ROUNDS,
        form=form,
        say=content("{form@name} {form@age}."),
    )

    answer(bench, run, name="Ann", age=7)
    answer(bench, run, name="Bo")

    assert run.text == "Ann 7.Bo ."


def test_forms_in_a_loop_and_beside_it_wait_together(bench: Bench):
    run = waiting_run(
        bench,
        "begin -> loop, formb -> say",
        "loop: visit -> form",
        loop=ROUNDS,
        form=FORM,
        formb=AGE,
        say=content("done"),
    )
    first = sorted(shown_form(run)["forms"])

    answer(bench, run, name="Ann", age=7)
    second = sorted(shown_form(run)["forms"])
    answer(bench, run, query="Bo")
    answer(bench, run, query="Cy")

    assert (first, second) == (["form", "formb"], ["form"])
    assert (run.status, run.text) == ("succeeded", "done")


# -- time ------------------------------------------------------------------------------------------------------------
def move_into_the_past(bench: Bench, run: Run, ago: timedelta) -> None:
    """Move all timestamps of a run into the past."""
    for table, columns in {
        "runs": ("created_at", "started_at", "expires_at"),
        "activations": ("created_at", "started_at", "finished_at", "not_before", "enqueued_at", "lease_until"),
        "run_events": ("created_at",),
    }.items():
        moved = ", ".join(f"{column} = {column} - :ago" for column in columns)
        key = "id" if table == "runs" else "run_id"
        with bench.database.transaction() as tx:
            tx.execute(text(f"update {table} set {moved} where {key} = :run_id"), ago=ago, run_id=run.id)


def test_form_can_be_answered_a_week_later(bench: Bench):
    run = waiting_run(bench, "begin -> form -> say", form=FORM, say=content("Hello {form@name}"))
    move_into_the_past(bench, run, timedelta(days=7))
    Sweeper(bench.coordinator).tick()
    assert run.status == "waiting"

    answer(bench, run, query="Ann")

    assert (run.status, run.text) == ("succeeded", "Hello Ann")


def test_form_expires_after_the_deployments_time(bench: Bench):
    run = waiting_run(bench, "begin -> form, work -> say", form=FORM, say=content("never"))
    move_into_the_past(bench, run, timedelta(days=31))

    Sweeper(bench.coordinator).tick()

    assert (run.status, run.row["error"]) == ("failed", "The form was not answered in time.")
    assert run.events[-1].body["code"] == "form_expired"
    assert {row.status for row in run.activations} == {"done", "closed"}
    with pytest.raises(Exception, match="does not wait"):
        answer(bench, run, query="too late")


def test_form_answered_while_the_sweeper_expires_it_does_not_fail_the_run(bench: Bench):
    run = waiting_run(bench, "begin -> form -> formb", form=FORM, formb=AGE)
    move_into_the_past(bench, run, timedelta(days=31))
    answer(bench, run, query="Ann")  # after the sweeper has found the run and before it locks it

    bench.lifecycle.expire_form(run.id, "The form was not answered in time.")

    assert (run.status, list(shown_form(run)["forms"])) == ("waiting", ["formb"])
    assert run.row["expires_at"] > datetime.now(UTC)
