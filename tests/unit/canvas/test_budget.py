"""Budgets: whatever happens in whatever order, no more is spent than the limit and one call."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas import budget
from canvas.budget import (
    INITIAL_CALLS,
    Account,
    CostEstimate,
    Deferred,
    Denied,
    Granted,
    authorize,
    budget_stop,
    parse_limits,
    usage_json,
)
from canvas.errors import InvalidRequest


def account(limit: int, spent: int = 0, reserved: int = 0, *, measure: str = "tokens", largest: int = 1) -> Account:
    return Account("run", measure, limit, spent, reserved, largest)


# -- the rule --------------------------------------------------------------------------------------------------------
@given(
    limit=st.integers(0, 2000),
    calls=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300), st.integers(0, 100)), max_size=40),
    data=st.data(),
)
def test_in_any_order_of_calls_a_budget_is_overshot_by_one_reservation_at_most(
    limit: int, calls: list[tuple[int, int, int]], data: st.DataObject
):
    spent = largest = 0
    under_way: list[tuple[int, int]] = []  # what a call has reserved, what it will have used
    dearest = max((least + more for least, more, _ in calls), default=0)

    def end(index: int) -> None:
        nonlocal spent, largest
        _, used = under_way.pop(index)
        spent += used
        largest = max(largest, used)

    for least, more, share in calls:
        asks = {"tokens": CostEstimate(least, least + more)}
        while isinstance(
            verdict := authorize([account(limit, spent, sum(r for r, _ in under_way), largest=largest)], asks), Deferred
        ):
            assert under_way, "a call waits for nobody"
            end(data.draw(st.integers(0, len(under_way) - 1)))
        if isinstance(verdict, Granted):
            under_way.append((verdict.amounts[0], (least + more) * share // 100))
        while under_way and data.draw(st.booleans()):
            end(data.draw(st.integers(0, len(under_way) - 1)))
    while under_way:
        end(0)

    assert spent <= limit + dearest


@given(limit=st.integers(0, 50), asked=st.integers(0, 100))
def test_of_calls_that_are_counted_exactly_as_many_begin_as_are_allowed(limit: int, asked: int):
    begun = 0
    for _ in range(asked):
        verdict = authorize([account(limit, 0, begun, measure="calls")], {"calls": CostEstimate(1, 1, is_known=True)})
        begun += isinstance(verdict, Granted)

    assert begun == min(limit, asked)


def test_a_call_that_does_not_fit_waits_while_others_may_leave_something():
    asks = {"tokens": CostEstimate(100, 100)}

    assert authorize([account(1000, 700, 250)], asks) == Deferred()
    assert authorize([account(1000, 800, 0)], asks) == Granted((100,))
    assert authorize([account(1000, 901, 0)], asks) == Denied(account(1000, 901, 0), 100)


def test_single_call_of_unknown_length_reserves_what_is_left():
    asks = {"tokens": CostEstimate(100, 2000)}

    assert authorize([account(1000, 700, 0)], asks) == Granted((300,))
    assert authorize([account(1000, 500, 200)], asks) == Deferred()


def test_what_calls_have_used_counts_more_than_what_they_were_taken_for():
    assert authorize([account(10_000, 500, 0, largest=500)], {"tokens": CostEstimate(10, 10)}) == Granted((500,))


def test_until_the_first_call_has_ended_few_begin():
    begun = reserved = 0
    while isinstance(
        granted := authorize([account(8000, 0, reserved, largest=0)], {"tokens": CostEstimate(1, 10)}), Granted
    ):
        begun, reserved = begun + 1, reserved + granted.amounts[0]

    assert begun == INITIAL_CALLS


def test_every_budget_that_counts_must_have_room():
    run, day = account(1000, 0), Account("day", "tokens", 5000, 4990, 0)

    assert authorize([run, day], {"tokens": CostEstimate(100, 100)}) == Denied(day, 100)


def test_call_of_unknown_price_is_denied_by_a_money_budget():
    money = account(10, measure="USD")

    refused = authorize([money], {"tokens": CostEstimate(1, 1)})

    assert refused == Denied(money, None)
    assert "m@Acme costs in USD is not known" in budget.denial_message(Denied(money, None), "m@Acme")


# -- how limits are written ------------------------------------------------------------------------------------------
def test_limits_are_whole_numbers_of_their_smallest_units():
    written = {"tokens": 10_000, "calls": 5, "seconds": 1.5, "money": 0.1, "currency": "EUR"}

    assert parse_limits(written) == {"tokens": 10_000, "calls": 5, "seconds": 1500, "EUR": 100_000_000}
    assert parse_limits({"tokens": None, "money": 2}) == {"USD": 2_000_000_000}


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ([], "budget"),
        ({"words": 3}, "budget.words"),
        ({"tokens": -1}, "budget.tokens"),
        ({"tokens": 1.5}, "budget.tokens"),
        ({"tokens": True}, "budget.tokens"),
        ({"tokens": "many"}, "budget.tokens"),
        ({"money": float("nan")}, "budget.money"),
        ({"money": 1e300}, "budget.money"),
        ({"money": 1, "currency": "dollars"}, "budget.currency"),
    ],
)
def test_what_is_no_limit_is_refused_naming_its_field(written: Any, field: str):
    with pytest.raises(InvalidRequest) as refused:
        parse_limits(written)

    assert refused.value.details["field"] == field


@given(st.integers(0, 10**15))
def test_money_is_formatted_in_its_currency(amount: int):
    assert budget.format_amount("USD", amount).endswith(" USD")
    assert abs(budget.display_amount("USD", amount) - amount / 1e9) < 1e-6


# -- what is told ----------------------------------------------------------------------------------------------------
def test_a_form_says_what_has_stopped_its_node():
    refused = Denied(account(100, 90), 20)
    told = budget.denial_json(refused, "m@Acme")

    inputs, tips = budget.budget_form("LLM:0.outcome", budget.denial_message(refused, "m@Acme"), told)

    assert budget_stop(inputs) == told
    assert budget_stop({"LLM:0.outcome": {"type": "options", "value": None}}) is None
    assert "100 tokens is used up. Spent: 90 tokens; needed for the next call of m@Acme: 20 tokens." in tips


def test_usage_of_unknown_price_is_not_shown_as_free():
    assert usage_json({"calls": 2, "unpriced_calls": 2})["cost"] is None
    assert usage_json({"calls": 2, "unpriced_calls": 1, "cost_USD": 500_000_000})["cost"] == {"USD": 0.5}
    assert "cost" not in usage_json({"calls": 2})
