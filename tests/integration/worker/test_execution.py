"""From claim to report: whatever a component does, only its own node bears it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import CapturingLogger

from canvas.errors import NodeFailure
from canvas.outcome import Failed, Finished, Outcome
from components import registry
from components.context import NodeContext
from scheduler.coordinator.coordinator import Coordinator
from scheduler.metrics import Metrics
from store.runs.reports import ReportPayload
from store.tables.runs import activations as rows
from tests.builders import default, goto, says
from tests.integration.engine import Bench, Run, reporting, until
from worker import attempt
from worker.reporter import Reporter

FORKED = "begin -> work -> after; begin -> other"


# -- what a component may do -----------------------------------------------------------------------------------------
def test_what_a_component_raises_is_the_failure_of_its_node(bench: Bench):
    def broken(ctx: NodeContext) -> NoReturn:
        raise ZeroDivisionError("division by zero")

    run = played(bench, work=broken)

    assert (run.status, run.row["error"]) == ("failed", "Node work (Act): division by zero")
    assert run.statuses == {"begin": "done", "work": "done", "other": "done"}
    assert error_of(run, "work") == "division by zero"
    assert is_alive(bench)


def test_what_a_computing_component_raises_is_the_failure_of_its_node(bench: Bench):
    def broken(ctx: NodeContext) -> NoReturn:
        raise NodeFailure("The list is empty.")

    run = played(bench, "begin -> compute", compute=broken)

    assert (run.status, run.row["error"]) == ("failed", "Node compute: The list is empty.")


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError()])
@pytest.mark.parametrize("node", ["work", "compute"])
def test_what_would_end_a_process_ends_a_node(bench: Bench, error: BaseException, node: str):
    def end(ctx: NodeContext) -> NoReturn:
        raise error

    run = played(bench, f"begin -> {node}", **{node: end})

    assert run.status == "failed"
    assert run.activation(node).attempt == 1
    assert is_alive(bench)


def test_numbers_that_are_none_and_texts_that_are_broken_are_stored_as_what_they_can_be(bench: Bench):
    outputs = {"nan": float("nan"), "inf": [float("inf")], "half": "a\ud800b", "nul": "a\x00b", "set": {2, 1}}

    run = played(bench, work=lambda ctx: Finished(outputs={**outputs, "key\ud800": 1, 7: b"bytes"}))

    stored = run.outputs("work")
    assert run.status == "succeeded"
    assert (stored["nan"], stored["inf"], stored["set"]) == (None, [None], [1, 2])
    assert (stored["half"], stored["nul"]) == ("a\ufffdb", "a\ufffdb")
    assert (stored["key\ufffd"], stored["7"]) == (1, "b'bytes'")


def test_an_error_that_cannot_be_written_is_told_as_far_as_it_can(bench: Bench):
    run = played(bench, work=lambda ctx: Failed("half \ud800, nul \x00"))

    assert (run.status, run.row["error"]) == ("failed", "Node work (Act): half \ufffd, nul \ufffd")


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("I will not be shown.")


def nested(levels: int) -> list[Any]:
    return [] if levels == 0 else [nested(levels - 1)]


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


UNSTORABLE = {
    "itself": (itself(), "nested deeper than 200 levels"),
    "deep": (nested(900), "nested deeper than 200 levels"),
    "long number": (10**5000, "4,300 digits"),
    "hostile": (Hostile(), "cannot be stored"),
    "large": ("x" * 2_000_000, "larger than"),
}


@pytest.mark.parametrize("where", ["an output", "a variable", "an input"])
@pytest.mark.parametrize("what", UNSTORABLE)
def test_what_no_row_can_hold_fails_its_node_at_once(bench: Bench, what: str, where: str):
    value, told = UNSTORABLE[what]

    def hand_out(ctx: NodeContext) -> Finished:
        if where == "an input":
            ctx.note_input("given", value)
        kept = {"env.count": value} if where == "a variable" else {}
        return Finished(outputs={"result": value} if where == "an output" else {}, assign=kept)

    bench.does(work=hand_out)
    run = bench.start(FORKED, variables={"count": 0})
    bench.play(bench.a_worker(max_output=1_000_000))

    assert run.status == "failed"
    assert told in run.row["error"]
    assert (run.activation("work").attempt, run.activation("work").outcome["code"]) == (1, "unstorable_output")
    assert run.statuses["other"] == "done"
    assert is_alive(bench)


def test_a_component_that_gives_back_no_outcome_fails_its_node(bench: Bench):
    run = played(bench, work=lambda ctx: None)

    assert (run.status, run.row["error"]) == (
        "failed",
        "Node work (Act): Act returned NoneType, which is not an outcome.",
    )


def test_a_message_may_speak_what_no_row_can_hold(bench: Bench):
    run = bench.start("begin -> say", query="a\x00b", say=says("You said {sys.query}."))
    bench.play()

    assert (run.status, run.said) == ("succeeded", "You said a\ufffdb.")
    assert run.outputs("say")["content"] == run.said


def test_a_component_nobody_knows_fails_its_node(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work", work={"component": "Teleporter"})
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", "Node work (Teleporter): Can't import Teleporter")


def test_a_default_value_and_a_goto_answer_a_failure(bench: Bench):
    bench.does(work=lambda ctx: Failed("broken"), work2=lambda ctx: Failed("broken"))

    sorry = bench.start("begin -> work -> say", work=default("Sorry."), say=says("{work@result}"))
    elsewhere = bench.start("begin -> work2 -> never; begin -> x; rescue -> say", work2=goto("rescue"), say=says("ok"))
    bench.play()

    assert (sorry.status, elsewhere.status) == ("succeeded", "succeeded")
    assert sorry.said == "Sorry."
    assert "never" not in elsewhere.statuses
    assert elsewhere.said == "ok"


def test_a_file_that_is_gone_fails_the_node_that_looks_at_it_at_once(bench: Bench):
    def gone(*_: Any) -> NoReturn:
        raise NodeFailure('The file "a.txt" is not there. Upload it again.')

    run = bench.start("begin -> work", files=({"id": "a"},), work={"script": "{sys.files}"})
    bench.play(bench.a_worker(read_file=gone))

    assert (run.status, run.activation("work").attempt) == ("failed", 1)
    assert "a.txt" in run.row["error"]


def test_reading_files_takes_no_connection_that_others_wait_for(bench: Bench):
    taken: list[int] = []

    def read(*_: Any) -> str:
        taken.append(bench.database._engine.pool.checkedout())  # type: ignore[attr-defined]
        return "text"

    run = bench.start("begin -> work", files=({"id": "a"},), work={"script": "{sys.files}"})
    bench.does(work=lambda ctx: Finished(outputs={"result": ctx.lookup("sys.files")}))
    bench.play(bench.a_worker(read_file=read))

    assert run.outputs("work") == {"result": ["text"]}
    assert taken == [0]


# -- time limits -----------------------------------------------------------------------------------------------------
def test_a_component_that_waits_too_long_is_stopped_at_the_limit_that_is_named(bench: Bench):
    ended: list[str] = []

    async def wait(ctx: NodeContext) -> NoReturn:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(ctx.node_id)

    bench.does(work=wait)
    run = bench.start("begin -> work")
    bench.play(limited(bench, 0.1))

    assert ended == ["work"]
    assert run.row["error"] == "Node work (Act): Act: timeout after 0.1s. Raise COMPONENT_EXEC_TIMEOUT_ACT."
    assert run.activation("work").outcome["code"] == "node_timeout"


def test_a_component_that_goes_on_when_it_is_stopped_is_too_late_all_the_same(bench: Bench):
    async def stubborn(ctx: NodeContext) -> Finished:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return Finished(outputs={"result": "late"})

    bench.does(work=stubborn)
    run = bench.start("begin -> work")
    bench.play(limited(bench, 0.1))

    assert "timeout after 0.1s" in run.row["error"]
    assert run.outputs("work") == {}


@pytest.mark.parametrize("node", ["compute", "work"])
def test_a_component_that_does_not_let_go_is_reported_in_its_name_and_its_own_report_is_refused(
    bench: Bench, node: str
):
    may_end, has_ended = threading.Event(), threading.Event()

    async def deaf(ctx: NodeContext) -> Finished:
        while not may_end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return Finished(outputs={"result": "much too late"})

    def spin(ctx: NodeContext) -> Finished:
        may_end.wait(20)
        return Finished(outputs={"result": "much too late"})

    bench.does(work=deaf, compute=spin)
    run = bench.start(f"begin -> {node}")
    worker = limited(bench, 0.1)
    bench.play(until=lambda: node in run.statuses)

    def work() -> None:
        bench.play(worker)
        has_ended.set()

    threading.Thread(target=work, daemon=True).start()
    until(lambda: run.status == "failed")
    may_end.set()
    assert has_ended.wait(10)

    assert "timeout after 0.1s" in run.row["error"]
    assert run.outputs(node) == {}
    assert run.told.count("node_finished") == 2


def test_others_go_on_while_one_does_not_let_go(bench: Bench):
    may_end = threading.Event()
    bench.does(compute=lambda ctx: may_end.wait(20) and Finished())
    stuck, other = bench.start("begin -> compute"), bench.start("begin -> work")
    worker = limited(bench, 0.1)
    bench.play(until=lambda: "compute" in stuck.statuses)
    activation = stuck.activation("compute")
    threading.Thread(target=worker.execute, args=(stuck.id, activation.id), daemon=True).start()
    until(lambda: stuck.statuses["compute"] == "running")

    bench.play(worker)

    assert (other.status, stuck.status) == ("succeeded", "running")
    until(lambda: stuck.status == "failed")
    may_end.set()


# -- reporting -------------------------------------------------------------------------------------------------------
def test_a_report_is_repeated_while_the_database_is_away(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    tries = [0]
    store = Reporter._store

    def unlucky(self: Reporter, written: ReportPayload, *, inline_advance: bool) -> None:
        tries[0] += 1
        if tries[0] in (2, 3):
            raise OperationalError("update", {}, Exception("the database is away"))
        store(self, written, inline_advance=inline_advance)

    monkeypatch.setattr(Reporter, "_store", unlucky)
    run = bench.start("begin -> work")
    bench.play()

    assert run.status == "succeeded"
    assert {row.attempt for row in run.activations} == {1}
    assert tries == [4]


def test_a_report_whose_answer_got_lost_is_not_stored_twice_and_its_run_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    is_first = [True]

    class Unlucky(Coordinator):
        """The answer to the first commit gets lost, and with it what would have been sent."""

        def apply_reports(self, tx: Any, snapshot: Any, inline: Any = ()) -> Any:
            advance = super().apply_reports(tx, snapshot, inline)
            if is_first[0]:
                is_first[0] = False
                tx.commit()
                tx.connection.close()
                raise OperationalError("commit", {}, Exception("connection lost"), connection_invalidated=True)
            return advance

    coordinator = bench.a_coordinator(kind=Unlucky)
    bench.play(bench.a_worker(coordinator), until=lambda: run.statuses["begin"] == "done")

    assert run.told.count("node_finished") == 1
    assert run.statuses == {"begin": "done", "work": "ready"}
    assert run.activation("begin").attempt == 1


def test_a_report_under_a_lease_that_somebody_else_has_now_leaves_nothing(bench: Bench):
    def lose_the_lease(ctx: NodeContext) -> Finished:
        with bench.database.transaction() as tx:
            tx.execute(rows.update().where(rows.c.run_id == run.id, rows.c.node_id == "work").values(lease_id=uuid4()))
        return Finished(outputs={"result": "mine"}, assign={"env.count": 1})

    run = bench.start("begin -> work", variables={"count": 0})
    bench.does(work=lose_the_lease)
    bench.play()

    assert run.statuses["work"] == "running"
    assert run.outputs("work") == {}


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_model_error_that_is_the_answer_is_counted_when_its_report_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_stored: bool
):
    counted: list[str] = []
    bench.coordinator.dispatch.counters = Metrics(model_error=counted.append)

    async def answer_with_an_error(params: Any, ctx: NodeContext) -> Finished:
        if not is_stored:
            with bench.database.transaction() as tx:
                tx.execute(
                    rows.update().where(rows.c.run_id == run.id, rows.c.node_id == "model").values(lease_id=uuid4())
                )
        return Finished(outputs={"content": "**ERROR**: away", "_ERROR": "away"})

    run = bench.start("begin -> model")
    monkeypatch.setitem(registry.COMPONENTS, "llm", replace(registry.COMPONENTS["llm"], run=answer_with_an_error))
    bench.play()

    assert run.statuses["model"] == ("done" if is_stored else "running")
    assert counted == (["LLM"] if is_stored else [])


def test_a_worker_that_wakes_up_long_after_its_lease_is_refused_and_no_step_is_said_to_have_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    logged = CapturingLogger()
    monkeypatch.setattr("worker.reporter.log", logged)  # whatever level another test has set
    bench.does(list=lambda ctx: Finished(outputs={"result": [1]}))
    each = {"items_ref": "list@result", "outputs": {}}
    run = bench.start("begin -> list -> each -> after", "each: item -> work", each=each)
    bench.play(until=lambda: run.statuses.get("work") == "ready")
    asleep = bench.claim(run, "work")
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.id == asleep.id).values(status="ready", lease_id=None))
    bench.play(until=lambda: run.statuses.get("after") == "ready")  # and the item that it was in is over

    reporting(bench.coordinator, asleep).report(Finished(outputs={"result": "late"}), None, {})

    assert [line.args[0] for line in logged.calls] == ["report_refused"]
    bench.play()
    assert run.status == "succeeded"


def test_an_outage_while_a_node_works_is_no_fault_of_the_nodes(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempt, "RELEASE_DELAY", 0.0)
    tries: list[str] = []

    def away_at_first(ctx: NodeContext) -> Outcome:
        tries.append(ctx.node_id)
        if len(tries) < 3:
            raise OperationalError("select", {}, Exception("the database is away"))
        return Finished()

    bench.does(work=away_at_first)
    run = bench.start("begin -> work")
    bench.play()

    assert (run.status, run.activation("work").attempt, run.activation("work").strikes) == ("succeeded", 3, 0)


def test_a_node_that_meets_an_outage_whenever_it_works_is_not_tried_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attempt, "RELEASE_DELAY", 0.0)

    def away(ctx: NodeContext) -> NoReturn:
        raise OperationalError("select", {}, Exception("the database is away"))

    bench.does(work=away)
    run = bench.start("begin -> work")
    bench.play()

    assert (run.status, run.statuses["work"]) == ("running", "running")  # its lease runs out, and that is a strike


def test_a_hint_for_nothing_does_nothing(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    before = run.row

    for activation_id in (run.activation("work").id, uuid4()):
        assert bench.worker.execute(run.id, activation_id)

    assert run.row == before


def test_a_hint_that_comes_twice_at_once_is_carried_out_once(bench: Bench):
    times: list[str] = []
    bench.does(work=lambda ctx: times.append(ctx.node_id) or Finished())
    run = bench.start("begin -> work")
    bench.play(until=lambda: "work" in run.statuses)
    activation = run.activation("work").id

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(bench.worker.execute, run.id, activation) for _ in range(4)]:
            done.result()

    assert times == ["work"]
    assert run.status == "succeeded"


def test_what_may_kill_a_process_shares_it_with_no_other_such_one(bench: Bench):
    at_once, most = [0], [0]
    lock = threading.Lock()

    async def count(ctx: NodeContext) -> Finished:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        await asyncio.sleep(0.02)
        with lock:
            at_once[0] -= 1
        return Finished()

    bench.does(one=count, two=count, three=count)
    run = bench.start("begin -> one, two, three")
    bench.play(until=lambda: "one" in run.statuses)
    struck(bench, run, strikes=2)

    with ThreadPoolExecutor(3) as pool:
        for node in ("one", "two", "three"):
            pool.submit(bench.worker.execute, run.id, run.activation(node).id)

    assert run.status == "succeeded"
    assert most == [1]


# -- in other words --------------------------------------------------------------------------------------------------
def played(bench: Bench, *parts: str, variables: dict[str, Any] | None = None, **work: Callable[..., Any]) -> Run:
    """A run in which nodes do this."""
    bench.does(**work)
    run = bench.start(*(parts or (FORKED,)), **({"variables": variables} if variables else {}))
    bench.play()
    return run


def limited(bench: Bench, seconds: float) -> Any:
    """A worker that gives every node so long."""
    return bench.a_worker(time_limit=lambda *_: seconds, shutdown_grace=timedelta(milliseconds=100))


def is_alive(bench: Bench) -> bool:
    """Whether the worker still carries out a run as if nothing had happened."""
    bench.acts.work.clear()
    run = bench.start("begin -> work, compute -> say", say=says("fine"))
    bench.play()
    return run.status == "succeeded"


def error_of(run: Run, node: str) -> str | None:
    return next(e.body["error"] for e in run.events if e.name == "node_finished" and e.node_id == node)


def struck(bench: Bench, run: Run, *, strikes: int) -> None:
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.run_id == run.id).values(strikes=strikes))
