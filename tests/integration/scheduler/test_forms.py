"""Forms: what a person is asked, what an answer does, and how long it may take (engine 4.9 "We do")."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from canvas.outcome import Finished
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run

AGE = {"inputs": {"age": {"type": "integer", "name": "Age"}}, "tips": "How old are you?"}
FILE = {"inputs": {"f": {"type": "file", "name": "File", "optional": False}}}
ROUNDS = {"maximum_loop_count": 3, "logical_operator": "or"}


def asked(run: Run) -> Mapping[str, Any]:
    """What the last question was."""
    return next(event.body for event in reversed(run.events) if event.name == "user_inputs")


def answer(bench: Bench, run: Run, query: Any = "", **inputs: Any) -> None:
    """The conversation's next turn, and what it leads to."""
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=query, inputs=inputs or None))
    bench.play()


def asking(bench: Bench, *parts: str, **params: Any) -> Run:
    """A run that has come to its question."""
    run = bench.start(*parts, **params)
    bench.play()
    assert run.status == "waiting"
    return run


# -- one form --------------------------------------------------------------------------------------------------------
def test_a_form_is_held_with_its_tips_and_empty_fields_and_starts_with_the_answer(bench: Bench):
    run = asking(bench, "begin -> form -> say", form=FORM, say=says("{form@name}"))
    held = run.outputs("form"), run.told.count("node_started")

    answer(bench, run, name="Ann")

    assert held == ({"name": None, "tips": "Who are you?"}, 1)
    assert [event.node_id for event in run.events if event.name == "node_started"] == ["begin", "form", "say"]
    assert (run.status, run.said) == ("succeeded", "Ann")


def test_query_answers_the_only_field_and_other_empty_answers_show_the_form_again(bench: Bench):
    run = asking(bench, "begin -> form -> say", form=FORM, say=says("{form@name}"))
    question = asked(run)

    answer(bench, run, query="")
    again = asked(run)
    answer(bench, run, query="Ann")

    assert again == question
    assert run.told.count("user_inputs") == 2
    assert run.said == "Ann"


def test_a_query_answers_no_form_of_several_fields(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}}
    run = asking(bench, "begin -> form", form=form)

    answer(bench, run, query="Ann")

    assert (run.status, run.told.count("user_inputs")) == ("waiting", 2)


def test_a_sentence_is_no_file(bench: Bench):
    run = asking(bench, "begin -> form", form=FILE)

    answer(bench, run, query="here it is")

    assert (run.status, run.told.count("user_inputs")) == ("waiting", 2)


def test_a_partial_answer_leaves_the_rest_empty_and_is_not_asked_again(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}, "enable_tips": False}
    run = asking(bench, "begin -> form -> say", form=form, say=says("{form@name} {form@age}!"))

    answer(bench, run, name={"value": "Ann", "type": "line"})

    assert (run.status, run.said) == ("succeeded", "Ann !")
    assert run.outputs("form") == {"name": "Ann", "age": None}


def test_keys_that_no_form_knows_become_outputs_too(bench: Bench):
    run = asking(bench, "begin -> form -> say", form=FORM, say=says("{form@mood}"))

    answer(bench, run, mood="good", nothing=None)

    assert run.said == "good"
    assert run.outputs("form") == {"name": None, "tips": "Who are you?", "mood": "good", "nothing": None}


def test_an_answer_of_another_type_is_taken_as_it_is(bench: Bench):
    run = asking(bench, "begin -> form", form=AGE)

    answer(bench, run, age={"type": "integer", "value": "old enough"})

    assert run.status == "succeeded"
    assert run.outputs("form")["age"] == "old enough"


def test_a_required_file_that_is_left_out_of_its_answer_fails_the_node_that_says_so(bench: Bench):
    run = asking(bench, "begin -> form", form=FILE)

    answer(bench, run, f={"type": "file", "value": None, "optional": False})

    assert run.status == "failed"
    assert 'Field "f" needs a file' in run.row["error"]


def test_a_turn_brings_its_own_globals_to_what_follows_the_form(bench: Bench):
    run = asking(
        bench,
        "begin -> form -> say",
        form=FORM,
        say=says("{sys.query} {sys.conversation_turns} {form@name}"),
        query="hi",
    )

    answer(bench, run, query="my answer", name="Ann")

    assert run.said == "my answer 2 Ann"


def test_files_of_the_answering_turn_replace_those_of_the_first(bench: Bench):
    run = asking(bench, "begin -> form -> work", form=FORM, work={"script": "{sys.files}"}, files=({"id": "1"},))
    seen: list[Any] = []
    bench.does(work=lambda ctx: (seen.append(ctx.lookup("sys.files")), Finished())[1])
    worker = bench.a_worker(read_file=lambda tenant_id, run_id, file, layout: file["id"])

    bench.lifecycle.resume_run(
        bench.tenant_id, run.id, RunRequest(query="x", inputs={"name": "Ann"}, files=({"id": "2"},))
    )
    bench.play(worker)

    assert seen == [["2"]]


# -- several forms ---------------------------------------------------------------------------------------------------
def test_forms_of_parallel_branches_and_depths_are_asked_together_when_nothing_else_moves(bench: Bench):
    run = bench.start("begin -> form, a; a -> formb -> c; form, c -> say", form=FORM, formb=AGE, say=says("done"))
    bench.play(until=lambda: "a" in run.statuses)
    assert run.status == "running"

    bench.play()

    assert run.status == "waiting"
    assert list(asked(run)["forms"]) == ["form", "formb"]
    assert list(asked(run)["inputs"]) == ["name", "age"]
    assert asked(run)["tips"] == "How old are you?"


def test_one_answer_goes_to_every_form_that_asks(bench: Bench):
    run = asking(
        bench, "begin -> form, formb; form, formb -> say", form=FORM, formb=AGE, say=says("{form@name} {formb@age}")
    )

    answer(bench, run, name="Ann", age=7)

    assert (run.status, run.said) == ("succeeded", "Ann 7")
    assert run.outputs("formb") == {"age": 7, "name": "Ann", "tips": "How old are you?"}


def test_an_answer_to_one_form_lets_the_others_go_on_empty(bench: Bench):
    run = asking(
        bench, "begin -> form, formb; form, formb -> say", form=FORM, formb=AGE, say=says("{form@name} {formb@age}!")
    )

    answer(bench, run, name="Ann")

    assert (run.status, run.said) == ("succeeded", "Ann !")


def test_forms_that_share_their_only_field_are_answered_by_one_query(bench: Bench):
    run = asking(bench, "begin -> form, formb -> say", form=FORM, formb=FORM, say=says("{form@name}{formb@name}"))

    answer(bench, run, query="Ann")

    assert run.said == "AnnAnn"


def test_a_form_behind_another_is_asked_for_itself(bench: Bench):
    run = asking(bench, "begin -> form -> formb -> say", form=FORM, formb=AGE, say=says("{form@name} {formb@age}"))

    answer(bench, run, query="Ann")
    assert list(asked(run)["forms"]) == ["formb"]
    answer(bench, run, query="7")

    assert run.said == "Ann 7"


def test_a_form_in_a_loop_asks_anew_in_each_round(bench: Bench):
    run = asking(
        bench, "begin -> loop -> say", "loop: visit -> form -> saya", loop=ROUNDS, form=FORM, saya=says("{form@name}.")
    )

    for name in ("Ann", "Bo", "Cy"):
        assert run.outputs("form")["name"] is None
        answer(bench, run, query=name)

    assert run.status == "succeeded"
    assert run.said.startswith("Ann.Bo.Cy.")


def test_what_an_answer_leaves_open_holds_nothing_of_an_earlier_round(bench: Bench):
    form = {"inputs": {**FORM["inputs"], **AGE["inputs"]}}
    run = asking(
        bench,
        "begin -> loop",
        "loop: visit -> form -> say",
        loop=ROUNDS,
        form=form,
        say=says("{form@name} {form@age}."),
    )

    answer(bench, run, name="Ann", age=7)
    answer(bench, run, name="Bo")

    assert run.said == "Ann 7.Bo ."


def test_forms_in_a_loop_and_beside_it_wait_together(bench: Bench):
    run = asking(
        bench, "begin -> loop, formb -> say", "loop: visit -> form", loop=ROUNDS, form=FORM, formb=AGE, say=says("done")
    )
    first = sorted(asked(run)["forms"])

    answer(bench, run, name="Ann", age=7)
    second = sorted(asked(run)["forms"])
    answer(bench, run, query="Bo")
    answer(bench, run, query="Cy")

    assert (first, second) == (["form", "formb"], ["form"])
    assert (run.status, run.said) == ("succeeded", "done")


# -- time ------------------------------------------------------------------------------------------------------------
def a_while_ago(bench: Bench, run: Run, ago: timedelta) -> None:
    """Everything that the rows of a run say was so long ago."""
    for table, columns in {
        "runs": ("created_at", "started_at", "expires_at"),
        "activations": ("created_at", "started_at", "finished_at", "not_before", "hinted_at", "lease_until"),
        "run_events": ("created_at",),
    }.items():
        moved = ", ".join(f"{column} = {column} - :ago" for column in columns)
        key = "id" if table == "runs" else "run_id"
        with bench.database.transaction() as tx:
            tx.execute(text(f"update {table} set {moved} where {key} = :run_id"), ago=ago, run_id=run.id)


def test_an_answer_may_come_a_week_later(bench: Bench):
    run = asking(bench, "begin -> form -> say", form=FORM, say=says("Hello {form@name}"))
    a_while_ago(bench, run, timedelta(days=7))
    Sweeper(bench.coordinator).tick()
    assert run.status == "waiting"

    answer(bench, run, query="Ann")

    assert (run.status, run.said) == ("succeeded", "Hello Ann")


def test_form_expires_after_the_deployments_time(bench: Bench):
    run = asking(bench, "begin -> form, work -> say", form=FORM, say=says("never"))
    a_while_ago(bench, run, timedelta(days=31))

    Sweeper(bench.coordinator).tick()

    assert (run.status, run.row["error"]) == ("failed", "The form was not answered in time.")
    assert run.events[-1].body["code"] == "form_expired"
    assert {row.status for row in run.activations} == {"done", "closed"}
    with pytest.raises(Exception, match="does not wait"):
        answer(bench, run, query="too late")


def test_a_form_that_was_answered_at_the_last_moment_is_not_given_up(bench: Bench):
    run = asking(bench, "begin -> form -> formb", form=FORM, formb=AGE)
    a_while_ago(bench, run, timedelta(days=31))
    answer(bench, run, query="Ann")  # after the sweeper has found the run, and before it holds it

    bench.lifecycle.expire_form(run.id, "The form was not answered in time.")

    assert (run.status, list(asked(run)["forms"])) == ("waiting", ["formb"])
    assert run.row["expires_at"] > datetime.now(UTC)
