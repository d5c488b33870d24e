"""Reruns and forks: what lies before the chosen activations is taken over, what follows runs again."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, text
from sqlalchemy.exc import DBAPIError

from canvas.document import references
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import RunId
from canvas.outcome import Failed, Finished
from components.context import NodeContext
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle import run_copies
from scheduler.lifecycle.run_copies import CopyOptions, ForkOptions, ForkPlan
from store.agents import conversations
from store.primitives.ids import new_id
from store.runs import reused_activations
from store.tables.runs import activations as activation_rows
from tests.builders import content, goto, reads
from tests.integration.engine import FORM, Bench, Run, at_work, secrets_of, until


class Counted:
    """Node functions that count their executions. What a node returns depends on what it reads, and on its tweak."""

    def __init__(self, bench: Bench, *nodes: str) -> None:
        self.counts: Counter[str] = Counter()
        self.tweaks: dict[str, str] = {}
        bench.does(**dict.fromkeys(nodes, self.execute))

    def execute(self, ctx: NodeContext) -> Finished:
        self.counts[ctx.node_id] += 1
        found = references.find(str(ctx.params.get("script") or ""))
        read = " ".join(str(ctx.lookup(each.expression)) for each in found)
        return Finished({"result": f"{ctx.node_id}{self.tweaks.get(ctx.node_id, '')}({read})"})

    def pop(self) -> dict[str, int]:
        """Return the executions since the last call, by node."""
        counts, self.counts = self.counts, Counter()
        return dict(counts)


def plan(bench: Bench, source: Run, *places: str, **options: Any) -> ForkPlan:
    fields = CopyOptions.__dataclass_fields__
    copy = CopyOptions(**{name: value for name, value in options.items() if name in fields})
    rest = {name: value for name, value in options.items() if name not in fields}
    with bench.database.transaction() as tx:
        return run_copies.plan_fork(
            tx,
            bench.coordinator.versions,
            bench.tenant_id,
            source.id,
            ForkOptions(copy, places, **rest),
            RunId(new_id()),
            secrets_of,
        )


def fork(bench: Bench, source: Run, *places: str, **options: Any) -> Run:
    run = bench.start_run(plan(bench, source, *places, **options).start)
    bench.play()
    return run


def test_fork_runs_only_the_chosen_node_and_what_follows(bench: Bench):
    work = Counted(bench, "first", "left", "right", "join")
    source = bench.start(
        "begin -> first -> left, right -> join -> say", left=reads("first"), join=reads("left", "right"),
        say=content("{join@result}"),
    )  # fmt: skip
    bench.play()
    work.pop()

    work.tweaks["left"] = "!"
    copy = fork(bench, source, "left")

    assert work.pop() == {"left": 1, "join": 1}
    assert copy.status == "succeeded"
    assert copy.text == "join(left!(first()) right())"
    assert copy.row["origin"]["kind"] == "fork"
    assert copy.row["origin"]["run_id"] == source.id.hex


def test_failed_run_goes_on_from_the_failed_node(bench: Bench):
    work = Counted(bench, "first", "second", "after")
    bench.does(second=lambda ctx: Failed("no luck"))
    source = bench.start(
        "begin -> first -> second -> after -> say", after=reads("second"), say=content("{after@result}")
    )
    bench.play()
    assert source.status == "failed"
    work.pop()

    bench.does(second=work.execute)
    copy = fork(bench, source)

    assert work.pop() == {"second": 1, "after": 1}
    assert (copy.status, copy.text) == ("succeeded", "after(second())")


def test_handled_failure_is_taken_over(bench: Bench):
    work = Counted(bench, "first", "other", "last")
    calls = Counter[str]()

    def fail(ctx: NodeContext) -> Failed:
        calls[ctx.node_id] += 1
        return Failed("no luck")

    bench.does(broken=fail, last=lambda ctx: Failed("again"))
    source = bench.start("begin -> first -> broken -> never; other -> last", broken=goto("other"))
    bench.play()
    assert source.status == "failed"
    work.pop()

    bench.does(last=work.execute)
    copy = fork(bench, source)

    assert copy.status == "succeeded"
    assert (work.pop(), calls) == ({"last": 1}, {"broken": 1})


def test_item_of_an_iteration_runs_again_with_what_collects_it(bench: Bench):
    work = Counted(bench, "list", "ask", "after")
    bench.does(list=lambda ctx: Finished({"result": ["a", "b", "c", "d"]}))
    source = bench.start(
        "begin -> list -> each -> after -> say",
        "each: item -> ask",
        each={"items_ref": "list@result", "outputs": {"all": {"ref": "ask@result"}}},
        ask={"script": "{item@item}"},
        after={"script": "{each@all}"},
        say=content("{after@result}"),
    )
    bench.play()
    assert source.status == "succeeded", source.row["error"]
    work.pop()

    work.tweaks["ask"] = "!"
    copy = fork(bench, source, "ask[2]")

    assert work.pop() == {"ask": 1, "after": 1}
    assert copy.text == source.text.replace("ask(c)", "ask!(c)")


def test_later_passes_of_a_loop_run_again(bench: Bench):
    work = Counted(bench, "body", "after")
    source = bench.start(
        "begin -> loop -> after -> say",
        "loop: visit -> body",
        loop={"maximum_loop_count": 4, "logical_operator": "or"},
        say=content("{after@result}"),
    )
    bench.play()
    assert source.status == "succeeded", source.row["error"]
    assert work.pop() == {"body": 4, "after": 1}

    fork(bench, source, "body[1]")

    assert work.pop() == {"body": 3, "after": 1}


def test_edited_output_is_read_by_what_follows(bench: Bench):
    work = Counted(bench, "first", "second", "beside")
    source = bench.start(
        "begin -> first -> second -> say; first -> beside", second=reads("first"), say=content("{second@result}")
    )
    bench.play()
    work.pop()

    copy = fork(bench, source, outputs={"first": {"result": "edited"}})

    assert work.pop() == {"second": 1}
    assert copy.text == "second(edited)"
    assert copy.outputs("first") == {"result": "edited"}
    assert copy.outputs("beside") == source.outputs("beside")


def test_fork_shows_the_form_of_a_waiting_source_again(bench: Bench):
    work = Counted(bench, "first")
    source = bench.start("begin -> first -> form -> say", form=FORM, say=content("{form@name}"))
    bench.play()
    assert source.status == "waiting"
    work.pop()

    copy = fork(bench, source, "form")

    assert (copy.status, source.status, work.pop()) == ("waiting", "waiting", {})


def test_dry_run_counts_what_is_taken_over_and_what_runs_again(bench: Bench):
    Counted(bench, "first", "second")
    source = bench.start("begin -> first -> second -> say", say=content("x"))
    bench.play()

    preview = plan(bench, source, "second").preview

    assert (preview["reused"], [each["node_id"] for each in preview["runs_again"]]) == (2, ["second", "say"])
    assert preview["estimate"]["tokens"] == 0


@pytest.mark.parametrize(
    ("places", "options", "text"),
    [
        (["nobody"], {}, "no step 'nobody'"),
        (["first"], {"outputs": {"first": {"result": 1}}}, "runs again"),
        (["first"], {"variables": {"env.nothing": 1}}, "has a variable 'env.nothing'"),
        (["first"], {"params": {"nobody": {}}}, "no node 'nobody'"),
        (["first"], {"params": {"first": {"nothing": 1}}}, "no parameter 'nothing'"),
        (["first"], {"version": "new"}, "Use same, draft, published"),
    ],
)
def test_edit_that_does_not_fit_is_refused_by_name(bench: Bench, places: list[str], options: dict[str, Any], text: str):
    source = bench.start("begin -> first -> say", say=content("x"))
    bench.play()

    with pytest.raises(InvalidRequest, match=text):
        plan(bench, source, *places, **options)


def test_fork_of_a_succeeded_run_without_a_place_is_refused(bench: Bench):
    source = bench.start("begin -> say", say=content("x"))
    bench.play()

    with pytest.raises(Conflict, match="has no failed point"):
        plan(bench, source)


def test_run_of_another_tenant_cannot_be_forked(bench: Bench):
    source = bench.start("begin -> say", say=content("x"))
    bench.play()

    with bench.database.transaction() as tx, pytest.raises(NotFound):
        run_copies.plan_fork(
            tx, bench.coordinator.versions, bench.a_tenant(), source.id, ForkOptions(), RunId(new_id()), secrets_of
        )


def test_effect_that_may_happen_again_is_to_be_confirmed(bench: Bench):
    source = bench.start("begin -> act -> say", act={"component": "Unsafe"}, say=content("x"))
    bench.play()

    planned = plan(bench, source, "act")

    assert list(planned.to_confirm) == ["act"]
    with pytest.raises(run_copies.NeedsConfirmation):
        run_copies.require_confirmation(planned, [])
    run_copies.require_confirmation(planned, ["act"])


def test_parameter_of_a_node_is_edited_in_a_hidden_version(bench: Bench):
    work = Counted(bench, "first", "second")
    source = bench.start(
        "begin -> first -> second -> say", second={"script": "{first@result}"}, say=content("{second@result}")
    )
    bench.play()
    work.pop()

    copy = fork(bench, source, params={"second": {"script": "{sys.query}"}})

    assert work.pop() == {"second": 1}
    assert copy.text == "second(hello)"
    assert copy.row["version_id"] != source.row["version_id"]


def test_edited_variable_is_read_by_its_readers_only(bench: Bench):
    work = Counted(bench, "reader", "other")
    source = bench.start(
        "begin -> reader, other -> say", reader={"script": "{env.tone}"}, say=content("{reader@result}"),
        drawn=bench.draw(
            "begin -> reader, other -> say", variables={"tone": "kind"}, reader={"script": "{env.tone}"},
            say=content("{reader@result}"),
        ),
    )  # fmt: skip
    bench.play()
    work.pop()

    copy = fork(bench, source, variables={"env.tone": "strict"})

    assert (work.pop(), copy.text) == ({"reader": 1}, "reader(strict)")


def rerun(bench: Bench, source: Run, **options: Any) -> Run:
    with bench.database.transaction() as tx:
        start = run_copies.plan_rerun(
            tx, bench.coordinator.versions, bench.tenant_id, source.id, CopyOptions(**options), RunId(new_id())
        )
    run = bench.start_run(start)
    bench.play()
    return run


def test_rerun_does_everything_again_with_the_same_request(bench: Bench):
    work = Counted(bench, "first")
    source = bench.start(
        "begin -> first -> say", query="Q", first={"script": "{sys.query}"}, say=content("{first@result}")
    )
    bench.play()
    work.pop()

    copy = rerun(bench, source)

    assert (work.pop(), copy.text) == ({"first": 1}, "first(Q)")
    assert copy.conversation_id != source.conversation_id
    assert copy.row["origin"]["kind"] == "rerun"


def test_rerun_answers_forms_as_then(bench: Bench):
    source = bench.start("begin -> form -> say", query="Q", form=FORM, say=content("{form@name} {sys.query}"))
    bench.play()
    bench.lifecycle.resume_run(bench.tenant_id, source.id, RunRequest(query="", inputs={"name": "Ada"}))
    bench.play()
    assert source.text == "Ada Q"

    asked, as_then = rerun(bench, source), rerun(bench, source, answers="as_then")

    assert (asked.status, as_then.status, as_then.text) == ("waiting", "succeeded", "Ada Q")


def test_rerun_with_an_edited_query_reads_that_query(bench: Bench):
    source = bench.start("begin -> say", query="Q", say=content("{sys.query}"))
    bench.play()

    assert rerun(bench, source, query="other").text == "other"


def test_rerun_begins_with_what_was_said_before(bench: Bench):
    first = bench.start("begin -> say", query="one", say=content("{sys.query} {sys.conversation_turns}"))
    bench.play()
    again = bench.a_start("", query="two", drawn=(first.row["canvas_id"], first.row["version_id"]))
    second = bench.start_run(replace(again, conversation_id=first.conversation_id))
    bench.play()

    copy = rerun(bench, second)

    assert copy.text == second.text
    with bench.database.transaction() as tx:
        said = conversations.load_history(tx, copy.conversation_id, 10, 10)
    assert [message["role"] for message in said] == ["user", "assistant", "user", "assistant"]
    assert said[0]["content"] == "one"


@pytest.mark.parametrize("statement", ["READY", "TAKE_OVER", "COPY_VALUES", "COPY_STREAMS"])
def test_fork_whose_advance_breaks_off_goes_on_with_the_next_advance(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, statement: str
):  # T146
    work = Counted(bench, "first", "second")
    source = bench.start("begin -> first -> second -> say", second=reads("first"), say=content("{second@result}"))
    bench.play()
    work.pop()
    planned = plan(bench, source, "second")
    with monkeypatch.context() as patched:  # its process dies right after the commit of the start
        patched.setattr(Coordinator, "recheck", lambda *_: None)
        run = bench.start_run(planned.start)

    with monkeypatch.context() as patched:
        broken = getattr(reused_activations, statement).text.replace(
            "= :new_run", "= case 1 / 0 when 1 then :new_run end"
        )
        patched.setattr(reused_activations, statement, text(broken))
        with pytest.raises(DBAPIError):
            bench.coordinator.advance_run(run.id)
    bench.coordinator.advance_run(run.id)
    bench.play()

    assert (run.status, run.text, work.pop()) == ("succeeded", source.text, {"second": 1})


def test_two_forks_at_once_of_one_source_do_not_disturb_each_other(bench: Bench):
    work = Counted(bench, "first", "second")
    source = bench.start("begin -> first -> second -> say", second=reads("first"), say=content("{second@result}"))
    bench.play()
    work.pop()

    copies = [bench.start_run(plan(bench, source, "second").start) for _ in range(2)]
    with at_work(bench, threads=2):
        until(lambda: all(copy.status == "succeeded" for copy in copies))

    assert [copy.text for copy in copies] == [source.text] * 2
    assert work.pop() == {"second": 2}


def test_fork_of_a_fork_takes_over_what_the_first_took_over(bench: Bench):
    work = Counted(bench, "first", "second", "third")
    source = bench.start("begin -> first -> second -> third -> say", say=content("{first@result}{third@result}"))
    bench.play()
    first = fork(bench, source, "second")
    work.pop()

    second = fork(bench, first, "third")

    assert (work.pop(), second.text) == ({"third": 1}, source.text)


def test_fork_of_a_deleted_source_fails_and_executes_nothing_twice(bench: Bench):
    work = Counted(bench, "first", "second")
    source = bench.start("begin -> first -> second -> say", say=content("x"))
    bench.play()
    work.pop()
    planned = plan(bench, source, "second")
    with bench.database.transaction() as tx:
        tx.execute(delete(activation_rows).where(activation_rows.c.run_id == source.id))

    run = bench.start_run(planned.start)
    bench.play()

    assert (run.status, work.pop()) == ("failed", {})
    assert "is not there any more" in run.row["error"]
