"""Budgets: a call that nobody pays for is not made, its run waits, and goes on where it was once there is more."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from canvas.budget import EXCEEDED, parse_limits, usage_json
from canvas.errors import BudgetExceeded, NotFound
from canvas.outcome import Finished
from components.context import NodeContext
from providers.models.billing.cost_estimates import CostModel
from providers.models.types.chat import Usage
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import sweep_queries
from store.runs.activations import Claim
from store.tables.budgets import DEFAULT_SCOPE_ID
from store.tenants import budgets
from store.tenants.budgets import BudgetLimits
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run, at_work, carried_out, until
from tests.integration.worker.conftest import Patient
from tests.integration.worker.priced import MODEL, PRICES, Till, till

LOSE = text("update activations set lease_id = null, status = 'closed' where id = :id")
EXPIRE = text("update activations set lease_until = now() - interval '1 minute' where id = :id")
ASKS: Mapping[str, Any] = {"component": "LLM", "llm_id": MODEL}


@pytest.fixture
def model(bench: Bench) -> Iterator[Till]:
    with till() as found:
        bench.accounts = [found.account(PRICES)]
        yield found


def llm(question: str, **more: Any) -> Mapping[str, Any]:
    return {**ASKS, "prompts": [{"role": "user", "content": question}], **more}


def begun(bench: Bench, *parts: str, budget: Mapping[str, Any], **nodes: Any) -> Run:
    return bench.begun(replace(bench.a_start(*parts, **nodes), budget=parse_limits(budget)))


def resumed(bench: Bench, run: Run, **budget: Any) -> None:
    resumed_with(bench, run, **budget)
    bench.play()


def resumed_with(bench: Bench, run: Run, **budget: Any) -> None:
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(), budget=parse_limits(budget))


def standing(bench: Bench, run: Run) -> dict[str, tuple[int, int]]:
    """What is spent and reserved of a run's own budgets."""
    with bench.database.transaction() as tx:
        found = budgets.list_budgets(tx, bench.tenant_id, datetime.now(UTC).date(), [run.id])
    return {each.account.measure: (each.account.spent, each.account.reserved) for each in found}


def test_a_run_stops_before_the_call_that_its_budget_does_not_allow(bench: Bench, model: Till):
    run = begun(
        bench,
        "begin -> one -> two -> three -> say",
        one=llm("1"),
        two=llm("2"),
        three=llm("3"),
        say=says("{one@content} {two@content} {three@content}"),
        budget={"calls": 2},
    )
    bench.play()

    assert run.status == "waiting"
    assert model.asked == ["1", "2"]
    (form,) = run.row["state"]["forms"].values()
    (field,) = form[3].values()
    assert field["budget"] == {
        "code": "budget_exceeded",
        "scope": "run",
        "measure": "calls",
        "limit": 2,
        "spent": 2,
        "asked": 1,
        "model": MODEL,
    }


def test_a_run_goes_on_with_a_higher_budget_and_asks_no_model_twice(bench: Bench, model: Till):
    run = begun(
        bench,
        "begin -> one -> two -> say",
        one=llm("1"),
        two=llm("2"),
        say=says("{one@content} {two@content}"),
        budget={"tokens": 200},
    )
    bench.play()
    assert run.status == "waiting"

    resumed(bench, run, tokens=1000)

    assert (run.status, model.asked) == ("succeeded", ["1", "2"])
    assert run.said == "re: 1 re: 2"
    assert run.row["usage"]["total_tokens"] == 300
    assert run.row["usage"]["calls"] == 2


def test_no_default_and_no_way_out_of_a_failure_stands_for_a_call_that_nobody_pays_for(bench: Bench, model: Till):
    run = begun(
        bench,
        "begin -> one, two; one -> say; two -> say",
        one=llm("1", exception_method="comment", exception_default_value="sorry"),
        two=llm("2", exception_method="goto", exception_goto=["say"]),
        say=says("{one@content} {two@content}"),
        budget={"calls": 0},
    )
    bench.play()

    assert (run.status, model.asked) == ("waiting", [])
    resumed(bench, run, calls=2)
    assert (run.status, run.said) == ("succeeded", "re: 1 re: 2")


def test_a_run_that_goes_on_without_more_stops_again(bench: Bench, model: Till):
    run = begun(bench, "begin -> one -> say", one=llm("1"), say=says("{one@content}"), budget={"calls": 0})
    bench.play()

    resumed(bench, run)

    assert (run.status, model.asked) == ("waiting", [])
    assert run.told.count("user_inputs") == 2


def test_a_hundred_branches_spend_no_more_than_their_budget(bench: Bench, model: Till):
    branches = [f"b{number}" for number in range(100)]
    run = begun(
        bench,
        f"begin -> {', '.join(branches)}; {', '.join(branches)} -> say",
        **{name: llm(name, max_tokens=100, maxTokensEnabled=True) for name in branches},
        say=says(" ".join(f"{{{name}@content}}" for name in branches)),
        budget={"tokens": 10_000},
    )
    model.takes = 0.01
    with at_work(bench, threads=16):
        until(lambda: run.status == "waiting")

    spent, reserved = standing(bench, run)["tokens"]
    assert 9_500 <= spent <= 10_000
    assert (reserved, spent) == (0, 150 * len(model.requests))
    first = set(model.asked)

    model.takes = 0.0
    resumed_with(bench, run, tokens=100_000)
    with at_work(bench, threads=16):
        until(lambda: run.status == "succeeded")

    assert sorted(model.asked) == sorted(branches)
    assert len(first) == spent // 150
    assert run.said == " ".join(f"re: {name}" for name in branches)
    assert run.row["usage"]["total_tokens"] == 15_000


def test_what_a_killed_worker_has_reserved_is_free_again_when_its_lease_is_gone(bench: Bench, model: Till):
    run = begun(
        bench,
        "begin -> one, two; one, two -> say",
        one=llm("1"),
        two=llm("2"),
        say=says("{one@content} {two@content}"),
        budget={"tokens": 400},
    )
    bench.play(until=lambda: run.statuses.get("two") == "ready")
    dead = bench.claim(run, "two")
    with bench.database.transaction() as tx:
        kept = budgets.lock_for_attempt(tx, dead, datetime.now(UTC).date())
        budgets.reserve(tx, uuid4(), dead, kept, [400])
    lost = Event()

    async def lose(seconds: float) -> None:  # whoever waits for the rest sees the worker die
        lost.set()
        with bench.database.transaction() as tx:
            tx.execute(LOSE, id=dead.id)

    bench.play(bench.a_worker(costs=CostModel(sleep=lose)))

    assert lost.is_set()
    assert run.activation("one").status == "done"
    assert standing(bench, run)["tokens"] == (150, 0)


def test_reservation_of_a_lost_attempt_is_freed_while_the_next_attempt_works(bench: Bench, model: Till):
    run = begun(bench, "begin -> one", one=llm("1"), budget={"tokens": 1000})
    bench.play(until=lambda: run.statuses.get("one") == "ready")
    lost = bench.claim(run, "one")
    reserved(bench, lost, 400)
    with bench.database.transaction() as tx:
        tx.execute(EXPIRE, id=lost.id)
        sweep_queries.expire_leases(tx)
    bench.coordinator.advance_run(run.id)  # the activation is ready again
    reserved(bench, bench.claim(run, "one"), 300)

    with bench.database.transaction() as tx:
        budgets.release_orphans(tx)

    assert run.activation("one").status == "running"
    assert standing(bench, run)["tokens"] == (0, 300)


def reserved(bench: Bench, claim: Claim, tokens: int) -> None:
    """Reserve tokens for an attempt."""
    with bench.database.transaction() as tx:
        accounts = budgets.lock_for_attempt(tx, claim, datetime.now(UTC).date())
        budgets.reserve(tx, uuid4(), claim, accounts, [tokens])


def test_calls_of_a_lost_attempt_count_once_beside_those_of_an_attempt_that_told_its_own(bench: Bench):
    once = Usage(prompt_tokens=1, total_tokens=1, calls=1)

    async def calls(ctx: NodeContext, key: str) -> None:
        if await ctx.journal_get(key) is None:
            await ctx.journal_put(key, {"usage": [1, 0, 1, 1]})
        ctx.add_usage(once)

    async def work(ctx: NodeContext) -> Finished:
        attempt = run.activation("work").attempt
        await calls(ctx, "first")
        if attempt == 1:
            raise BudgetExceeded("No call is left.")
        await calls(ctx, "second")
        if attempt == 2:
            with bench.database.transaction() as tx:
                tx.execute(EXPIRE, id=run.activation("work").id)
                sweep_queries.expire_leases(tx)
        return Finished(outputs={"result": "done"})

    bench.does(work=work)
    run = begun(bench, "begin -> work", budget={"calls": 1})
    bench.play()
    assert (run.status, run.row["usage"]["calls"]) == ("waiting", 1)
    resumed(bench, run, calls=5)
    bench.coordinator.advance_run(run.id)
    bench.play()

    assert (run.status, run.activation("work").attempt) == ("succeeded", 3)
    assert run.row["usage"]["calls"] == 2


def test_recorded_call_counts_once_however_often_its_node_stops_for_a_budget(bench: Bench):
    async def work(ctx: NodeContext) -> Finished:
        if await ctx.journal_get("first") is None:
            await ctx.journal_put("first", {"usage": [1, 0, 1, 1]})
        ctx.add_usage(Usage(prompt_tokens=1, total_tokens=1, calls=1))
        if run.activation("work").attempt < 3:
            raise BudgetExceeded("No call is left.")
        return Finished(outputs={"result": "done"})

    bench.does(work=work)
    run = begun(bench, "begin -> work", budget={"calls": 1})
    bench.play()
    resumed(bench, run)
    resumed(bench, run)

    assert (run.status, run.activation("work").attempt) == ("succeeded", 3)
    assert run.row["usage"]["calls"] == 1


def test_a_budget_of_the_day_begins_anew_at_midnight_in_utc(bench: Bench, model: Till):
    clock = [datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)]
    worker = bench.a_worker(costs=CostModel(now=lambda: clock[0]))
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("day", bench.tenant_id, {"calls": 1}))
    first = bench.start("begin -> one -> say", one=llm("1"), say=says("{one@content}"))
    second = bench.start("begin -> one -> say", one=llm("2"), say=says("{one@content}"))
    bench.play(worker)
    assert (first.status, second.status) == ("succeeded", "waiting")

    clock[0] += timedelta(seconds=1)
    resumed_with(bench, second)
    bench.play(worker)

    assert second.status == "succeeded"
    assert model.asked == ["1", "2"]


def test_a_budget_of_one_tenant_says_nothing_about_another(bench: Bench, model: Till):
    other = bench.a_tenant()
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("tenant", bench.tenant_id, {"calls": 0}))
    mine = bench.start("begin -> one -> say", one=llm("mine"), say=says("{one@content}"))
    theirs = bench.start("begin -> one -> say", one=llm("theirs"), say=says("{one@content}"), tenant_id=other)
    bench.play()

    assert (mine.status, theirs.status, model.asked) == ("waiting", "succeeded", ["theirs"])
    with pytest.raises(NotFound):
        bench.lifecycle.set_budget(other, BudgetLimits("run", mine.id, {"calls": 5}))
    with pytest.raises(NotFound):
        bench.lifecycle.resume_run(other, mine.id, RunRequest(), budget={"calls": 5})


def test_all_runs_of_a_session_share_its_budget(bench: Bench, model: Till):
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("session", DEFAULT_SCOPE_ID, {"calls": 1}))
    drawn = bench.draw("begin -> one -> say", one=llm("q"), say=says("{one@content}"))
    first = bench.start(drawn=drawn)
    bench.play()
    again = bench.start(drawn=drawn, conversation_id=first.conversation_id)
    elsewhere = bench.start(drawn=drawn)
    bench.play()

    assert (first.status, again.status, elsewhere.status) == ("succeeded", "waiting", "succeeded")


def test_who_starts_a_run_may_lower_what_each_run_may_spend_and_not_raise_it(bench: Bench, model: Till):
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", DEFAULT_SCOPE_ID, {"calls": 1}))
    nodes = {"one": llm("1"), "two": llm("2"), "say": says("{one@content} {two@content}")}
    wants_more = begun(bench, "begin -> one -> two -> say", **nodes, budget={"calls": 100})
    bench.play()

    assert (wants_more.status, len(model.asked)) == ("waiting", 1)


def test_a_budget_that_is_set_while_runs_go_on_counts_from_their_next_call(bench: Bench, model: Till):
    nodes = {"one": llm("1"), "two": llm("2"), "say": says("{one@content} {two@content}")}
    run = bench.start("begin -> one -> two -> say", **nodes)
    bench.play(until=lambda: run.statuses.get("two") == "ready")

    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"tokens": 160}))
    bench.play()

    assert (run.status, model.asked) == ("waiting", ["1"])
    assert standing(bench, run)["tokens"] == (150, 0)  # what was spent before counts


def test_a_budget_that_is_set_while_a_thread_goes_on_with_its_run_counts_from_the_next_node(bench: Bench, model: Till):
    def limit(ctx: Any) -> Finished:
        bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"calls": 1}))
        return Finished({})

    bench.does(work=limit)
    nodes = {name: llm(name) for name in ("one", "two", "three")}
    run = bench.start("begin -> one -> work -> two -> three -> say", **nodes, say=says("{three@content}"))
    going_on = bench.a_worker(continue_locally_for=timedelta(seconds=60))

    carried_out(going_on, run.id, run.activation("begin").id)

    assert (run.status, model.asked) == ("waiting", ["one"])
    resumed(bench, run, calls=10)
    assert (run.status, model.asked) == ("succeeded", ["one", "two", "three"])


def test_a_budget_that_is_set_while_an_agent_works_counts_from_its_next_round(bench: Bench):
    rounds = 0

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"calls": 0}))
        name = str(request["tools"][0]["function"]["name"])
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]}

    with till(answer) as model:
        bench.accounts = [model.account(PRICES)]
        tool = {"component_name": "Wikipedia", "name": "Wikipedia", "params": {}}
        agent = {**llm("How many?"), "component": "Agent", "tools": [tool]}
        run = bench.start("begin -> agent -> say", agent=agent, say=says("{agent@content}"))
        bench.play()

        assert (run.status, len(model.requests)) == ("waiting", 1)


def test_money_is_counted_by_the_price_of_the_account(bench: Bench, model: Till):
    nodes = {"one": llm("1"), "two": llm("2"), "say": says("{one@content} {two@content}")}
    run = begun(bench, "begin -> one -> two -> say", **nodes, budget={"money": 0.002})
    bench.play()

    assert run.status == "succeeded"  # the last call may go beyond by what it uses above what was left
    assert run.row["usage"]["cost_USD"] == 2_100_000
    assert standing(bench, run)["USD"] == (2_100_000, 0)


def test_a_budget_of_money_refuses_a_model_whose_price_nobody_knows(bench: Bench, model: Till):
    bench.accounts = [model.account()]
    run = begun(bench, "begin -> one -> say", one=llm("1"), say=says("{one@content}"), budget={"money": 5})
    bench.play()

    (form,) = run.row["state"]["forms"].values()
    assert (run.status, model.asked) == ("waiting", [])
    assert MODEL in form[4]
    assert "EASEL_PRICES_FILE" in form[4]


def test_calls_whose_price_nobody_knows_are_told_and_not_free(bench: Bench, model: Till):
    bench.accounts = [model.account()]
    run = bench.start("begin -> one -> say", one=llm("1"), say=says("{one@content}"))
    bench.play()

    assert usage_json(run.row["usage"])["cost"] is None
    assert run.row["usage"]["unpriced_calls"] == 1


def test_the_stand_ins_cost_nothing_in_any_currency(bench: Bench):
    run = begun(
        bench,
        "begin -> one -> say",
        one=llm("1", llm_id="echo"),
        say=says("{one@content}"),
        budget={"money": 0, "currency": "EUR"},
    )
    bench.play()

    assert run.status == "succeeded"


def test_a_run_ends_when_its_time_is_up_though_it_only_waits(bench: Bench):
    run = begun(bench, "begin -> form -> say", form=FORM, say=says("done"), budget={"seconds": 0})
    bench.play()
    assert run.status == "waiting"

    Sweeper(bench.coordinator).tick()

    assert run.status == "failed"
    assert run.events[-1].body["code"] == EXCEEDED
    assert "time of 0 seconds" in run.row["error"]


def test_a_run_ends_when_its_time_is_up_while_a_node_works(bench: Bench, patient: Patient):
    run = bench.begun(
        replace(bench.a_start("begin -> work -> say", say=says("done")), budget=parse_limits({"seconds": 0}))
    )
    bench.does(work=patient._work)
    with at_work(bench):
        patient.wait_for("work")
        Sweeper(bench.coordinator).tick()
        until(lambda: run.status == "failed")

    assert patient.stopped == ["work"]
    assert run.events[-1].body["code"] == EXCEEDED


def test_an_agent_goes_on_from_the_rounds_it_was_paid_for(bench: Bench):
    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["messages"][-1]["role"] == "tool":
            return {"role": "assistant", "content": "It is 3."}
        call = {"id": "c1", "type": "function", "function": {"name": name_of(request), "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]}

    def name_of(request: Mapping[str, Any]) -> str:
        return str(request["tools"][0]["function"]["name"])

    with till(answer) as model:
        bench.accounts = [model.account(PRICES)]
        tool = {"component_name": "Wikipedia", "name": "Wikipedia", "params": {}}
        run = begun(
            bench,
            "begin -> agent -> say",
            agent={**llm("How many?"), "component": "Agent", "tools": [tool]},
            say=says("{agent@content}"),
            budget={"calls": 1},
        )
        bench.play()
        assert (run.status, len(model.requests)) == ("waiting", 1)
        assert run.row["usage"]["calls"] == 1

        resumed(bench, run, calls=2)

        assert (run.status, len(model.requests)) == ("succeeded", 2)
        assert run.said.endswith("It is 3.")
        assert run.row["usage"] == {
            "prompt_tokens": 100,
            "completion_tokens": 200,
            "total_tokens": 300,
            "calls": 2,
            "cost_USD": 2_100_000,
        }


def test_a_run_without_any_budget_asks_the_database_nothing_about_budgets(
    bench: Bench, model: Till, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(budgets, "lock_for_attempt", lambda *_: pytest.fail("it was asked"))
    run = bench.start("begin -> one -> say", one=llm("1"), say=says("{one@content}"))
    bench.play()

    assert (run.status, run.row["budgeted"]) == ("succeeded", False)


@pytest.mark.parametrize("at_once", [1, 3])
def test_items_of_an_iteration_that_stop_go_on_where_they_were(bench: Bench, model: Till, at_once: int):
    bench.does(list=lambda ctx: Finished(outputs={"result": ["a", "b", "c", "d"]}))
    run = begun(
        bench,
        "begin -> list -> each -> say",
        "each: item -> one",
        each={"items_ref": "list@result", "outputs": {"all": {"ref": "one@content"}}, "max_concurrency": at_once},
        one=llm("{item@item}"),
        say=says("{each@all}"),
        budget={"calls": 2},
    )
    bench.play()
    assert (run.status, len(model.requests)) == ("waiting", 2)

    resumed(bench, run, calls=4)

    assert run.status == "succeeded"
    assert sorted(model.asked) == ["a", "b", "c", "d"]
    assert run.outputs("each")["all"] == ["re: a", "re: b", "re: c", "re: d"]
