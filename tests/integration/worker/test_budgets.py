"""Budgets: a call that exceeds a budget is not made; its run waits, and continues with a higher budget."""

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
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, at_work, execute_with_continuations, until
from tests.integration.worker.conftest import PausedNodes
from tests.integration.worker.metered_vendor import MODEL, PRICES, PricedModel, priced_model

CLOSE_ATTEMPT = text("update activations set lease_id = null, status = 'closed' where id = :id")
EXPIRE = text("update activations set lease_until = now() - interval '1 minute' where id = :id")
LLM_PARAMS: Mapping[str, Any] = {"component": "LLM", "llm_id": MODEL}


@pytest.fixture
def model(bench: Bench) -> Iterator[PricedModel]:
    with priced_model() as model:
        bench.accounts = [model.account(PRICES)]
        yield model


def llm(question: str, **more: Any) -> Mapping[str, Any]:
    return {**LLM_PARAMS, "prompts": [{"role": "user", "content": question}], **more}


def start_with_budget(bench: Bench, *parts: str, budget: Mapping[str, Any], **nodes: Any) -> Run:
    return bench.start_run(replace(bench.a_start(*parts, **nodes), budget=parse_limits(budget)))


def resume_and_play(bench: Bench, run: Run, **budget: Any) -> None:
    resume(bench, run, **budget)
    bench.play()


def resume(bench: Bench, run: Run, **budget: Any) -> None:
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(), budget=parse_limits(budget))


def spent_and_reserved(bench: Bench, run: Run) -> dict[str, tuple[int, int]]:
    """Return the spent and the reserved amount of each budget of a run."""
    with bench.database.transaction() as tx:
        found = budgets.list_budgets(tx, bench.tenant_id, datetime.now(UTC).date(), [run.id])
    return {each.account.measure: (each.account.spent, each.account.reserved) for each in found}


def test_run_waits_before_a_call_that_exceeds_its_budget(bench: Bench, model: PricedModel):
    run = start_with_budget(
        bench,
        "begin -> one -> two -> three -> say",
        one=llm("1"),
        two=llm("2"),
        three=llm("3"),
        say=content("{one@content} {two@content} {three@content}"),
        budget={"calls": 2},
    )
    bench.play()

    assert run.status == "waiting"
    assert model.questions == ["1", "2"]
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


def test_run_continues_with_a_higher_budget_and_repeats_no_model_call(bench: Bench, model: PricedModel):
    run = start_with_budget(
        bench,
        "begin -> one -> two -> say",
        one=llm("1"),
        two=llm("2"),
        say=content("{one@content} {two@content}"),
        budget={"tokens": 200},
    )
    bench.play()
    assert run.status == "waiting"

    resume_and_play(bench, run, tokens=1000)

    assert (run.status, model.questions) == ("succeeded", ["1", "2"])
    assert run.text == "re: 1 re: 2"
    assert run.row["usage"]["total_tokens"] == 300
    assert run.row["usage"]["calls"] == 2


def test_failure_policies_do_not_apply_to_a_call_that_exceeds_the_budget(bench: Bench, model: PricedModel):
    run = start_with_budget(
        bench,
        "begin -> one, two; one -> say; two -> say",
        one=llm("1", exception_method="comment", exception_default_value="sorry"),
        two=llm("2", exception_method="goto", exception_goto=["say"]),
        say=content("{one@content} {two@content}"),
        budget={"calls": 0},
    )
    bench.play()

    assert (run.status, model.questions) == ("waiting", [])
    resume_and_play(bench, run, calls=2)
    assert (run.status, run.text) == ("succeeded", "re: 1 re: 2")


def test_run_resumed_without_a_higher_budget_waits_again(bench: Bench, model: PricedModel):
    run = start_with_budget(
        bench, "begin -> one -> say", one=llm("1"), say=content("{one@content}"), budget={"calls": 0}
    )
    bench.play()

    resume_and_play(bench, run)

    assert (run.status, model.questions) == ("waiting", [])
    assert run.event_names.count("user_inputs") == 2


def test_hundred_parallel_branches_spend_no_more_than_their_budget(bench: Bench, model: PricedModel):
    branches = [f"b{number}" for number in range(100)]
    run = start_with_budget(
        bench,
        f"begin -> {', '.join(branches)}; {', '.join(branches)} -> say",
        **{name: llm(name, max_tokens=100, maxTokensEnabled=True) for name in branches},
        say=content(" ".join(f"{{{name}@content}}" for name in branches)),
        budget={"tokens": 10_000},
    )
    model.delay = 0.01
    with at_work(bench, threads=16):
        until(lambda: run.status == "waiting")

    spent, reserved = spent_and_reserved(bench, run)["tokens"]
    assert 9_500 <= spent <= 10_000
    assert (reserved, spent) == (0, 150 * len(model.requests))
    first = set(model.questions)

    model.delay = 0.0
    resume(bench, run, tokens=100_000)
    with at_work(bench, threads=16):
        until(lambda: run.status == "succeeded")

    assert sorted(model.questions) == sorted(branches)
    assert len(first) == spent // 150
    assert run.text == " ".join(f"re: {name}" for name in branches)
    assert run.row["usage"]["total_tokens"] == 15_000


def test_reservation_of_a_killed_worker_is_released_when_its_lease_is_gone(bench: Bench, model: PricedModel):
    run = start_with_budget(
        bench,
        "begin -> one, two; one, two -> say",
        one=llm("1"),
        two=llm("2"),
        say=content("{one@content} {two@content}"),
        budget={"tokens": 400},
    )
    bench.play(until=lambda: run.statuses.get("two") == "ready")
    dead = bench.claim(run, "two")
    with bench.database.transaction() as tx:
        accounts = budgets.lock_for_attempt(tx, dead, datetime.now(UTC).date())
        budgets.reserve(tx, uuid4(), dead, accounts, [400])
    lost = Event()

    async def lose_lease(seconds: float) -> None:  # the lease is lost while another call waits for the budget
        lost.set()
        with bench.database.transaction() as tx:
            tx.execute(CLOSE_ATTEMPT, id=dead.id)

    bench.play(bench.a_worker(costs=CostModel(sleep=lose_lease)))

    assert lost.is_set()
    assert run.activation("one").status == "done"
    assert spent_and_reserved(bench, run)["tokens"] == (150, 0)


def test_reservation_of_a_lost_attempt_is_freed_while_the_next_attempt_works(bench: Bench, model: PricedModel):
    run = start_with_budget(bench, "begin -> one", one=llm("1"), budget={"tokens": 1000})
    bench.play(until=lambda: run.statuses.get("one") == "ready")
    lost = bench.claim(run, "one")
    reserve(bench, lost, 400)
    with bench.database.transaction() as tx:
        tx.execute(EXPIRE, id=lost.id)
        sweep_queries.expire_leases(tx)
    bench.coordinator.advance_run(run.id)  # the activation is ready again
    reserve(bench, bench.claim(run, "one"), 300)

    with bench.database.transaction() as tx:
        budgets.release_orphans(tx)

    assert run.activation("one").status == "running"
    assert spent_and_reserved(bench, run)["tokens"] == (0, 300)


def reserve(bench: Bench, claim: Claim, tokens: int) -> None:
    """Reserve tokens for an attempt."""
    with bench.database.transaction() as tx:
        accounts = budgets.lock_for_attempt(tx, claim, datetime.now(UTC).date())
        budgets.reserve(tx, uuid4(), claim, accounts, [tokens])


def test_calls_of_a_lost_attempt_and_of_a_reported_attempt_are_counted_once(bench: Bench):
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
    run = start_with_budget(bench, "begin -> work", budget={"calls": 1})
    bench.play()
    assert (run.status, run.row["usage"]["calls"]) == ("waiting", 1)
    resume_and_play(bench, run, calls=5)
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
    run = start_with_budget(bench, "begin -> work", budget={"calls": 1})
    bench.play()
    resume_and_play(bench, run)
    resume_and_play(bench, run)

    assert (run.status, run.activation("work").attempt) == ("succeeded", 3)
    assert run.row["usage"]["calls"] == 1


def test_daily_budget_is_reset_at_midnight_in_utc(bench: Bench, model: PricedModel):
    clock = [datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)]
    worker = bench.a_worker(costs=CostModel(now=lambda: clock[0]))
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("day", bench.tenant_id, {"calls": 1}))
    first = bench.start("begin -> one -> say", one=llm("1"), say=content("{one@content}"))
    second = bench.start("begin -> one -> say", one=llm("2"), say=content("{one@content}"))
    bench.play(worker)
    assert (first.status, second.status) == ("succeeded", "waiting")

    clock[0] += timedelta(seconds=1)
    resume(bench, second)
    bench.play(worker)

    assert second.status == "succeeded"
    assert model.questions == ["1", "2"]


def test_budget_of_one_tenant_does_not_limit_another_tenant(bench: Bench, model: PricedModel):
    other = bench.a_tenant()
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("tenant", bench.tenant_id, {"calls": 0}))
    mine = bench.start("begin -> one -> say", one=llm("mine"), say=content("{one@content}"))
    theirs = bench.start("begin -> one -> say", one=llm("theirs"), say=content("{one@content}"), tenant_id=other)
    bench.play()

    assert (mine.status, theirs.status, model.questions) == ("waiting", "succeeded", ["theirs"])
    with pytest.raises(NotFound):
        bench.lifecycle.set_budget(other, BudgetLimits("run", mine.id, {"calls": 5}))
    with pytest.raises(NotFound):
        bench.lifecycle.resume_run(other, mine.id, RunRequest(), budget={"calls": 5})


def test_all_runs_of_a_session_share_its_budget(bench: Bench, model: PricedModel):
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("session", DEFAULT_SCOPE_ID, {"calls": 1}))
    drawn = bench.draw("begin -> one -> say", one=llm("q"), say=content("{one@content}"))
    first = bench.start(drawn=drawn)
    bench.play()
    again = bench.start(drawn=drawn, conversation_id=first.conversation_id)
    elsewhere = bench.start(drawn=drawn)
    bench.play()

    assert (first.status, again.status, elsewhere.status) == ("succeeded", "waiting", "succeeded")


@pytest.mark.parametrize("measure", ["calls", "tokens"])
def test_each_run_of_a_tenant_has_a_budget_of_its_own(bench: Bench, model: PricedModel, measure: str):
    nodes = {"one": llm("1"), "two": llm("2"), "say": content("{one@content} {two@content}")}
    limit = {"calls": 1, "tokens": 150}[measure]

    first = start_with_budget(bench, "begin -> one -> two -> say", **nodes, budget={"calls": 1})
    bench.play()
    second = start_with_budget(bench, "begin -> one -> two -> say", **nodes, budget={measure: limit})
    bench.play()

    assert (first.status, second.status) == ("waiting", "waiting")
    assert model.questions == ["1", "1"]


def test_budget_of_a_start_request_cannot_raise_the_default_run_budget(bench: Bench, model: PricedModel):
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", DEFAULT_SCOPE_ID, {"calls": 1}))
    nodes = {"one": llm("1"), "two": llm("2"), "say": content("{one@content} {two@content}")}
    run = start_with_budget(bench, "begin -> one -> two -> say", **nodes, budget={"calls": 100})
    bench.play()

    assert (run.status, len(model.questions)) == ("waiting", 1)


def test_other_budgets_than_the_default_run_budget_do_not_lower_that_of_a_start_request(bench: Bench):
    bench.lifecycle.set_budget(bench.a_tenant(), BudgetLimits("run", DEFAULT_SCOPE_ID, {"calls": 1}))
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", DEFAULT_SCOPE_ID, {"tokens": 1}))
    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("session", DEFAULT_SCOPE_ID, {"calls": 1}))
    start_with_budget(bench, "begin -> say", say=content("Hi"), budget={"calls": 1})

    run = start_with_budget(bench, "begin -> say", say=content("Hi"), budget={"calls": 5})

    with bench.database.transaction() as tx:
        (budget,) = budgets.list_budgets(tx, bench.tenant_id, datetime.now(UTC).date(), [run.id])
    assert (budget.account.measure, budget.account.limit) == ("calls", 5)


def test_budget_set_during_a_run_applies_from_its_next_call(bench: Bench, model: PricedModel):
    nodes = {"one": llm("1"), "two": llm("2"), "say": content("{one@content} {two@content}")}
    run = bench.start("begin -> one -> two -> say", **nodes)
    bench.play(until=lambda: run.statuses.get("two") == "ready")

    bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"tokens": 160}))
    bench.play()

    assert (run.status, model.questions) == ("waiting", ["1"])
    assert spent_and_reserved(bench, run)["tokens"] == (150, 0)  # the amount spent before counts


def test_budget_set_during_local_continuation_applies_from_the_next_node(bench: Bench, model: PricedModel):
    def limit(ctx: Any) -> Finished:
        bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"calls": 1}))
        return Finished({})

    bench.does(work=limit)
    nodes = {name: llm(name) for name in ("one", "two", "three")}
    run = bench.start("begin -> one -> work -> two -> three -> say", **nodes, say=content("{three@content}"))
    worker = bench.a_worker(continue_locally_for=timedelta(seconds=60))

    execute_with_continuations(worker, run.id, run.activation("begin").id)

    assert (run.status, model.questions) == ("waiting", ["one"])
    resume_and_play(bench, run, calls=10)
    assert (run.status, model.questions) == ("succeeded", ["one", "two", "three"])


def test_budget_set_while_an_agent_runs_applies_from_its_next_round(bench: Bench):
    rounds = 0

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            bench.lifecycle.set_budget(bench.tenant_id, BudgetLimits("run", run.id, {"calls": 0}))
        name = str(request["tools"][0]["function"]["name"])
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]}

    with priced_model(answer) as model:
        bench.accounts = [model.account(PRICES)]
        tool = {"component_name": "Wikipedia", "name": "Wikipedia", "params": {}}
        agent = {**llm("How many?"), "component": "Agent", "tools": [tool]}
        run = bench.start("begin -> agent -> say", agent=agent, say=content("{agent@content}"))
        bench.play()

        assert (run.status, len(model.requests)) == ("waiting", 1)


def test_cost_is_computed_from_the_prices_of_the_account(bench: Bench, model: PricedModel):
    nodes = {"one": llm("1"), "two": llm("2"), "say": content("{one@content} {two@content}")}
    run = start_with_budget(bench, "begin -> one -> two -> say", **nodes, budget={"money": 0.002})
    bench.play()

    assert run.status == "succeeded"  # the last call may exceed the budget by its own cost
    assert run.row["usage"]["cost_USD"] == 2_100_000
    assert spent_and_reserved(bench, run)["USD"] == (2_100_000, 0)


def test_money_budget_refuses_a_model_with_an_unknown_price(bench: Bench, model: PricedModel):
    bench.accounts = [model.account()]
    run = start_with_budget(
        bench, "begin -> one -> say", one=llm("1"), say=content("{one@content}"), budget={"money": 5}
    )
    bench.play()

    (form,) = run.row["state"]["forms"].values()
    assert (run.status, model.questions) == ("waiting", [])
    assert MODEL in form[4]
    assert "EASEL_PRICES_FILE" in form[4]


def test_usage_counts_calls_with_an_unknown_price_and_gives_no_cost(bench: Bench, model: PricedModel):
    bench.accounts = [model.account()]
    run = bench.start("begin -> one -> say", one=llm("1"), say=content("{one@content}"))
    bench.play()

    assert usage_json(run.row["usage"])["cost"] is None
    assert run.row["usage"]["unpriced_calls"] == 1


def test_built_in_models_cost_nothing_in_any_currency(bench: Bench):
    run = start_with_budget(
        bench,
        "begin -> one -> say",
        one=llm("1", llm_id="echo"),
        say=content("{one@content}"),
        budget={"money": 0, "currency": "EUR"},
    )
    bench.play()

    assert run.status == "succeeded"


def test_waiting_run_fails_when_its_time_budget_is_used_up(bench: Bench):
    run = start_with_budget(bench, "begin -> form -> say", form=FORM, say=content("done"), budget={"seconds": 0})
    bench.play()
    assert run.status == "waiting"

    Sweeper(bench.coordinator).tick()

    assert run.status == "failed"
    assert run.events[-1].body["code"] == EXCEEDED
    assert "time of 0 seconds" in run.row["error"]


def test_run_with_an_active_node_fails_when_its_time_budget_is_used_up(bench: Bench, paused_nodes: PausedNodes):
    run = bench.start_run(
        replace(bench.a_start("begin -> work -> say", say=content("done")), budget=parse_limits({"seconds": 0}))
    )
    bench.does(work=paused_nodes._work)
    with at_work(bench):
        paused_nodes.wait_for("work")
        Sweeper(bench.coordinator).tick()
        until(lambda: run.status == "failed")

    assert paused_nodes.stopped == ["work"]
    assert run.events[-1].body["code"] == EXCEEDED


def test_agent_stopped_by_a_budget_continues_after_its_recorded_rounds(bench: Bench):
    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["messages"][-1]["role"] == "tool":
            return {"role": "assistant", "content": "It is 3."}
        call = {"id": "c1", "type": "function", "function": {"name": name_of(request), "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]}

    def name_of(request: Mapping[str, Any]) -> str:
        return str(request["tools"][0]["function"]["name"])

    with priced_model(answer) as model:
        bench.accounts = [model.account(PRICES)]
        tool = {"component_name": "Wikipedia", "name": "Wikipedia", "params": {}}
        run = start_with_budget(
            bench,
            "begin -> agent -> say",
            agent={**llm("How many?"), "component": "Agent", "tools": [tool]},
            say=content("{agent@content}"),
            budget={"calls": 1},
        )
        bench.play()
        assert (run.status, len(model.requests)) == ("waiting", 1)
        assert run.row["usage"]["calls"] == 1

        resume_and_play(bench, run, calls=2)

        assert (run.status, len(model.requests)) == ("succeeded", 2)
        assert run.text.endswith("It is 3.")
        assert run.row["usage"] == {
            "prompt_tokens": 100,
            "completion_tokens": 200,
            "total_tokens": 300,
            "calls": 2,
            "cost_USD": 2_100_000,
        }


def test_run_without_a_budget_does_not_query_budgets(bench: Bench, model: PricedModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(budgets, "lock_for_attempt", lambda *_: pytest.fail("budgets were queried"))
    run = bench.start("begin -> one -> say", one=llm("1"), say=content("{one@content}"))
    bench.play()

    assert (run.status, run.row["budgeted"]) == ("succeeded", False)


@pytest.mark.parametrize("at_once", [1, 3])
def test_iteration_items_stopped_by_a_budget_continue_without_repeated_calls(
    bench: Bench, model: PricedModel, at_once: int
):
    bench.does(list=lambda ctx: Finished(outputs={"result": ["a", "b", "c", "d"]}))
    run = start_with_budget(
        bench,
        "begin -> list -> each -> say",
        "each: item -> one",
        each={"items_ref": "list@result", "outputs": {"all": {"ref": "one@content"}}, "max_concurrency": at_once},
        one=llm("{item@item}"),
        say=content("{each@all}"),
        budget={"calls": 2},
    )
    bench.play()
    assert (run.status, len(model.requests)) == ("waiting", 2)

    resume_and_play(bench, run, calls=4)

    assert run.status == "succeeded"
    assert sorted(model.questions) == ["a", "b", "c", "d"]
    assert run.outputs("each")["all"] == ["re: a", "re: b", "re: c", "re: d"]
