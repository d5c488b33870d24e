"""Budgets: in any order of calls, the amount spent exceeds the limit by at most one call."""

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


# -- authorize -------------------------------------------------------------------------------------------------------
@given(
    limit=st.integers(0, 2000),
    calls=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300), st.integers(0, 100)), max_size=40),
    data=st.data(),
)
def test_budget_is_exceeded_by_at_most_one_call_in_any_order_of_calls(
    limit: int, calls: list[tuple[int, int, int]], data: st.DataObject
):
    spent = largest = 0
    open_calls: list[tuple[int, int]] = []  # what a call has reserved, what it will have used
    largest_possible = max((least + more for least, more, _ in calls), default=0)

    def end(index: int) -> None:
        nonlocal spent, largest
        _, used = open_calls.pop(index)
        spent += used
        largest = max(largest, used)

    for least, more, share in calls:
        estimates = {"tokens": CostEstimate(least, least + more)}
        while isinstance(
            verdict := authorize([account(limit, spent, sum(r for r, _ in open_calls), largest=largest)], estimates),
            Deferred,
        ):
            assert open_calls, "a call is deferred while no other call is open"
            end(data.draw(st.integers(0, len(open_calls) - 1)))
        if isinstance(verdict, Granted):
            open_calls.append((verdict.amounts[0], (least + more) * share // 100))
        while open_calls and data.draw(st.booleans()):
            end(data.draw(st.integers(0, len(open_calls) - 1)))
    while open_calls:
        end(0)

    assert spent <= limit + largest_possible


@given(limit=st.integers(0, 50), call_count=st.integers(0, 100))
def test_budget_of_calls_grants_exactly_as_many_as_its_limit(limit: int, call_count: int):
    granted_count = 0
    for _ in range(call_count):
        verdict = authorize(
            [account(limit, 0, granted_count, measure="calls")], {"calls": CostEstimate(1, 1, is_known=True)}
        )
        granted_count += isinstance(verdict, Granted)

    assert granted_count == min(limit, call_count)


def test_call_that_exceeds_the_budget_is_deferred_only_while_others_hold_reservations():
    estimates = {"tokens": CostEstimate(100, 100)}

    assert authorize([account(1000, 700, 250)], estimates) == Deferred()
    assert authorize([account(1000, 800, 0)], estimates) == Granted((100,))
    assert authorize([account(1000, 901, 0)], estimates) == Denied(account(1000, 901, 0), 100)


def test_single_call_of_unknown_length_reserves_what_is_left():
    estimates = {"tokens": CostEstimate(100, 2000)}

    assert authorize([account(1000, 700, 0)], estimates) == Granted((300,))
    assert authorize([account(1000, 500, 200)], estimates) == Deferred()


def test_reservation_is_raised_to_the_largest_usage_of_earlier_calls():
    assert authorize([account(10_000, 500, 0, largest=500)], {"tokens": CostEstimate(10, 10)}) == Granted((500,))


def test_budget_grants_only_initial_calls_until_the_first_call_ends():
    granted_count = reserved = 0
    while isinstance(
        verdict := authorize([account(8000, 0, reserved, largest=0)], {"tokens": CostEstimate(1, 10)}), Granted
    ):
        granted_count, reserved = granted_count + 1, reserved + verdict.amounts[0]

    assert granted_count == INITIAL_CALLS


def test_call_is_denied_if_one_of_several_budgets_is_used_up():
    run, day = account(1000, 0), Account("day", "tokens", 5000, 4990, 0)

    assert authorize([run, day], {"tokens": CostEstimate(100, 100)}) == Denied(day, 100)


def test_call_of_unknown_price_is_denied_by_a_money_budget():
    money = account(10, measure="USD")

    refused = authorize([money], {"tokens": CostEstimate(1, 1)})

    assert refused == Denied(money, None)
    assert "m@Acme costs in USD is not known" in budget.denial_message(Denied(money, None), "m@Acme")


# -- how limits are written ------------------------------------------------------------------------------------------
def test_limits_are_parsed_into_whole_numbers_of_their_smallest_units():
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
def test_invalid_limit_is_refused_with_the_name_of_its_field(written: Any, field: str):
    with pytest.raises(InvalidRequest) as refused:
        parse_limits(written)

    assert refused.value.details["field"] == field


@given(st.integers(0, 10**15))
def test_money_is_formatted_in_its_currency(amount: int):
    assert budget.format_amount("USD", amount).endswith(" USD")
    assert abs(budget.display_amount("USD", amount) - amount / 1e9) < 1e-6


# -- output ----------------------------------------------------------------------------------------------------------
def test_budget_form_states_which_budget_stopped_the_node():
    refused = Denied(account(100, 90), 20)
    denial = budget.denial_json(refused, "m@Acme")

    inputs, tips = budget.budget_form("LLM:0.outcome", budget.denial_message(refused, "m@Acme"), denial)

    assert budget_stop(inputs) == denial
    assert budget_stop({"LLM:0.outcome": {"type": "options", "value": None}}) is None
    assert "100 tokens is used up. Spent: 90 tokens; needed for the next call of m@Acme: 20 tokens." in tips


def test_usage_of_unknown_price_is_not_shown_as_free():
    assert usage_json({"calls": 2, "unpriced_calls": 2})["cost"] is None
    assert usage_json({"calls": 2, "unpriced_calls": 1, "cost_USD": 500_000_000})["cost"] == {"USD": 0.5}
    assert "cost" not in usage_json({"calls": 2})
