"""From claim to report: an error of a component affects only its own node."""

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
from structlog.testing import CapturingLogger, capture_logs

from canvas.errors import NodeFailure
from canvas.outcome import Failed, Finished, Outcome
from components import registry
from components.context import NodeContext
from scheduler.coordinator import run_snapshots
from scheduler.coordinator.coordinator import Coordinator
from scheduler.metrics import Metrics
from store.runs import run_rows
from store.runs.reports import ReportPayload
from store.tables.runs import activations as rows
from tests.builders import content, default, goto
from tests.integration.engine import Bench, Run, new_reporter, until
from worker.execution import attempt
from worker.execution.reporter import Reporter

FORKED = "begin -> work -> after; begin -> other"


# -- errors and outcomes of components -------------------------------------------------------------------------------
def test_exception_of_a_component_fails_only_its_node(bench: Bench):
    def broken(ctx: NodeContext) -> NoReturn:
        raise ZeroDivisionError("division by zero")

    run = play_run(bench, work=broken)

    assert (run.status, run.row["error"]) == ("failed", "Node work (Act): division by zero")
    assert run.statuses == {"begin": "done", "work": "done", "other": "done"}
    assert error_of(run, "work") == "division by zero"
    assert is_alive(bench)


def test_exception_of_a_component_on_a_thread_fails_its_node(bench: Bench):
    def broken(ctx: NodeContext) -> NoReturn:
        raise NodeFailure("The list is empty.")

    run = play_run(bench, "begin -> compute", compute=broken)

    assert (run.status, run.row["error"]) == ("failed", "Node compute: The list is empty.")


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError()])
@pytest.mark.parametrize("node", ["work", "compute"])
def test_process_exit_exception_of_a_component_fails_only_its_node(bench: Bench, error: BaseException, node: str):
    def end(ctx: NodeContext) -> NoReturn:
        raise error

    run = play_run(bench, f"begin -> {node}", **{node: end})

    assert run.status == "failed"
    assert run.activation(node).attempt == 1
    assert is_alive(bench)


def test_non_finite_numbers_and_invalid_texts_are_stored_with_replacements(bench: Bench):
    outputs = {"nan": float("nan"), "inf": [float("inf")], "half": "a\ud800b", "nul": "a\x00b", "set": {2, 1}}

    run = play_run(bench, work=lambda ctx: Finished(outputs={**outputs, "key\ud800": 1, 7: b"bytes"}))

    stored = run.outputs("work")
    assert run.status == "succeeded"
    assert (stored["nan"], stored["inf"], stored["set"]) == (None, [None], [1, 2])
    assert (stored["half"], stored["nul"]) == ("a\ufffdb", "a\ufffdb")
    assert (stored["key\ufffd"], stored["7"]) == (1, "b'bytes'")


def test_error_text_with_invalid_characters_is_stored_with_replacements(bench: Bench):
    run = play_run(bench, work=lambda ctx: Failed("half \ud800, nul \x00"))

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
def test_value_that_cannot_be_stored_fails_its_node_without_a_retry(bench: Bench, what: str, where: str):
    value, message = UNSTORABLE[what]

    def return_value(ctx: NodeContext) -> Finished:
        if where == "an input":
            ctx.note_input("given", value)
        assign = {"env.count": value} if where == "a variable" else {}
        return Finished(outputs={"result": value} if where == "an output" else {}, assign=assign)

    bench.does(work=return_value)
    run = bench.start(FORKED, variables={"count": 0})
    bench.play(bench.a_worker(max_output=1_000_000))

    assert run.status == "failed"
    assert message in run.row["error"]
    assert (run.activation("work").attempt, run.activation("work").outcome["code"]) == (1, "unstorable_output")
    assert run.statuses["other"] == "done"
    assert is_alive(bench)


def test_component_that_returns_no_outcome_fails_its_node(bench: Bench):
    run = play_run(bench, work=lambda ctx: None)

    assert (run.status, run.row["error"]) == (
        "failed",
        "Node work (Act): Act returned NoneType, which is not an outcome.",
    )


def test_message_with_a_nul_character_is_streamed_and_stored_with_a_replacement(bench: Bench):
    run = bench.start("begin -> say", query="a\x00b", say=content("You said {sys.query}."))
    bench.play()

    assert (run.status, run.text) == ("succeeded", "You said a\ufffdb.")
    assert run.outputs("say")["content"] == run.text


def test_unknown_component_fails_its_node(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work", work={"component": "Teleporter"})
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", "Node work (Teleporter): Can't import Teleporter")


def test_failed_node_continues_with_its_default_value_or_goto_target(bench: Bench):
    bench.does(work=lambda ctx: Failed("broken"), work2=lambda ctx: Failed("broken"))

    sorry = bench.start("begin -> work -> say", work=default("Sorry."), say=content("{work@result}"))
    elsewhere = bench.start(
        "begin -> work2 -> never; begin -> x; rescue -> say", work2=goto("rescue"), say=content("ok")
    )
    bench.play()

    assert (sorry.status, elsewhere.status) == ("succeeded", "succeeded")
    assert sorry.text == "Sorry."
    assert "never" not in elsewhere.statuses
    assert elsewhere.text == "ok"


def test_missing_file_fails_the_node_that_reads_it_without_a_retry(bench: Bench):
    def gone(*_: Any) -> NoReturn:
        raise NodeFailure('The file "a.txt" is not there. Upload it again.')

    run = bench.start("begin -> work", files=({"id": "a"},), work={"script": "{sys.files}"})
    bench.play(bench.a_worker(read_file=gone))

    assert (run.status, run.activation("work").attempt) == ("failed", 1)
    assert "a.txt" in run.row["error"]


def test_reading_files_holds_no_database_connection(bench: Bench):
    connections: list[int] = []

    def read(*_: Any) -> str:
        connections.append(bench.database._engine.pool.checkedout())  # type: ignore[attr-defined]
        return "text"

    run = bench.start("begin -> work", files=({"id": "a"},), work={"script": "{sys.files}"})
    bench.does(work=lambda ctx: Finished(outputs={"result": ctx.lookup("sys.files")}))
    bench.play(bench.a_worker(read_file=read))

    assert run.outputs("work") == {"result": ["text"]}
    assert connections == [0]


# -- time limits -----------------------------------------------------------------------------------------------------
def test_component_that_exceeds_its_time_limit_is_stopped_and_the_error_names_the_setting(bench: Bench):
    ended: list[str] = []

    async def wait(ctx: NodeContext) -> NoReturn:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(ctx.node_id)

    bench.does(work=wait)
    run = bench.start("begin -> work")
    bench.play(worker_with_time_limit(bench, 0.1))

    assert ended == ["work"]
    assert run.row["error"] == "Node work (Act): Act: timeout after 0.1s. Raise COMPONENT_EXEC_TIMEOUT_ACT."
    assert run.activation("work").outcome["code"] == "node_timeout"


def test_outcome_of_a_component_that_ignores_its_cancellation_is_discarded(bench: Bench):
    async def stubborn(ctx: NodeContext) -> Finished:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return Finished(outputs={"result": "late"})

    bench.does(work=stubborn)
    run = bench.start("begin -> work")
    bench.play(worker_with_time_limit(bench, 0.1))

    assert "timeout after 0.1s" in run.row["error"]
    assert run.outputs("work") == {}


@pytest.mark.parametrize("node", ["compute", "work"])
def test_component_that_does_not_stop_is_reported_as_timed_out_and_its_late_report_is_refused(bench: Bench, node: str):
    may_end, has_ended = threading.Event(), threading.Event()

    async def ignore_cancel(ctx: NodeContext) -> Finished:
        while not may_end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return Finished(outputs={"result": "much too late"})

    def spin(ctx: NodeContext) -> Finished:
        may_end.wait(20)
        return Finished(outputs={"result": "much too late"})

    bench.does(work=ignore_cancel, compute=spin)
    run = bench.start(f"begin -> {node}")
    worker = worker_with_time_limit(bench, 0.1)
    bench.play(until=lambda: node in run.statuses)

    def work() -> None:
        bench.play(worker)
        has_ended.set()

    threading.Thread(target=work, daemon=True).start()
    until(lambda: run.status == "failed")
    may_end.set()
    assert has_ended.wait(30)

    assert "timeout after 0.1s" in run.row["error"]
    assert run.outputs(node) == {}
    assert run.event_names.count("node_finished") == 2


def test_other_runs_continue_while_a_component_does_not_stop(bench: Bench):
    may_end = threading.Event()
    bench.does(compute=lambda ctx: may_end.wait(20) and Finished())
    stuck, other = bench.start("begin -> compute"), bench.start("begin -> work")
    worker = worker_with_time_limit(bench, 0.1)
    bench.play(until=lambda: "compute" in stuck.statuses)
    activation = stuck.activation("compute")
    executing = threading.Thread(target=worker.execute, args=(stuck.id, activation.id), daemon=True)
    executing.start()
    until(lambda: stuck.statuses["compute"] == "running")
    bench.outbox.sent = [message for message in bench.outbox.sent if str(activation.id) not in message.args]

    bench.play(worker)

    assert other.status == "succeeded"
    assert executing.is_alive()
    until(lambda: stuck.status == "failed")
    may_end.set()


# -- reporting -------------------------------------------------------------------------------------------------------
def test_report_is_retried_while_the_database_is_unavailable(bench: Bench, monkeypatch: pytest.MonkeyPatch):
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


def test_report_with_a_lost_commit_response_is_stored_once_and_its_run_continues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    is_first = [True]

    class Unlucky(Coordinator):
        """The response to the first commit is lost, and with it the messages after the commit."""

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

    assert run.event_names.count("node_finished") == 1
    assert run.statuses == {"begin": "done", "work": "ready"}
    assert run.activation("begin").attempt == 1


def test_report_to_a_run_that_stays_locked_is_stored_without_an_advance(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_snapshots, "LOCK_TIMEOUT", timedelta(milliseconds=30))
    run = bench.start("begin -> work")
    reporting = new_reporter(bench.coordinator, bench.claim(run, "begin"))

    with capture_logs() as logs, bench.database.transaction() as tx:
        assert run_rows.try_lock(tx, run.id)()
        reporting.report(Finished(), None, {})
        assert run.statuses == {"begin": "reported"}

    assert logs == []


def test_report_under_a_lost_lease_stores_nothing(bench: Bench):
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
def test_model_error_in_an_answer_is_counted_only_if_its_report_is_stored(
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


def test_late_report_of_a_finished_item_is_refused_without_an_advance_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    logged = CapturingLogger()
    monkeypatch.setattr("worker.execution.reporter.log", logged)  # whatever level another test has set
    bench.does(list=lambda ctx: Finished(outputs={"result": [1]}))
    each = {"items_ref": "list@result", "outputs": {}}
    run = bench.start("begin -> list -> each -> after", "each: item -> work", each=each)
    bench.play(until=lambda: run.statuses.get("work") == "ready")
    late_claim = bench.claim(run, "work")
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.id == late_claim.id).values(status="ready", lease_id=None))
    bench.play(until=lambda: run.statuses.get("after") == "ready")  # so the iteration item of the attempt has ended

    new_reporter(bench.coordinator, late_claim).report(Finished(outputs={"result": "late"}), None, {})

    assert [line.args[0] for line in logged.calls] == ["report_refused"]
    bench.play()
    assert run.status == "succeeded"


def test_database_outage_in_a_node_counts_no_crash(bench: Bench, monkeypatch: pytest.MonkeyPatch):
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

    assert (run.status, run.activation("work").attempt, run.activation("work").crash_count) == ("succeeded", 3, 0)


def test_node_with_a_database_outage_in_every_attempt_is_not_retried_without_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attempt, "RELEASE_DELAY", 0.0)

    def away(ctx: NodeContext) -> NoReturn:
        raise OperationalError("select", {}, Exception("the database is away"))

    bench.does(work=away)
    run = bench.start("begin -> work")
    bench.play()

    assert (run.status, run.statuses["work"]) == ("running", "running")  # its lease expires, which counts a crash


def test_task_message_for_a_done_or_unknown_activation_is_ignored(bench: Bench):
    run = bench.start("begin -> work")
    bench.play()
    before = run.row

    for activation_id in (run.activation("work").id, uuid4()):
        assert bench.worker.execute(run.id, activation_id)

    assert run.row == before


def test_concurrent_duplicates_of_a_task_message_execute_its_activation_once(bench: Bench):
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


def test_activations_with_two_crashes_run_one_at_a_time_in_a_process(bench: Bench):
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
    set_crash_count(bench, run, 2)

    with ThreadPoolExecutor(3) as pool:
        for node in ("one", "two", "three"):
            pool.submit(bench.worker.execute, run.id, run.activation(node).id)

    assert run.status == "succeeded"
    assert most == [1]


# -- helpers ---------------------------------------------------------------------------------------------------------
def play_run(bench: Bench, *parts: str, variables: dict[str, Any] | None = None, **work: Callable[..., Any]) -> Run:
    """Play a run whose nodes run these functions."""
    bench.does(**work)
    run = bench.start(*(parts or (FORKED,)), **({"variables": variables} if variables else {}))
    bench.play()
    return run


def worker_with_time_limit(bench: Bench, seconds: float) -> Any:
    """Create a worker with this time limit for every node."""
    return bench.a_worker(time_limit=lambda *_: seconds, shutdown_grace=timedelta(milliseconds=100))


def is_alive(bench: Bench) -> bool:
    """Return whether the worker still executes a run."""
    bench.node_functions.by_node.clear()
    run = bench.start("begin -> work, compute -> say", say=content("fine"))
    bench.play()
    return run.status == "succeeded"


def error_of(run: Run, node: str) -> str | None:
    return next(e.body["error"] for e in run.events if e.name == "node_finished" and e.node_id == node)


def set_crash_count(bench: Bench, run: Run, crashes: int) -> None:
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.run_id == run.id).values(crash_count=crashes))
