"""What visitors of a share see: rules by field, and fields without a rule are left out."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.requests.auth import RequestPrincipal
from api.visitors import redaction
from api.visitors.redaction import ALL, Redaction
from canvas.budget import Account, Denied, denial_message, time_budget_error
from canvas.ids import CanvasId, RunId, TenantId
from store.tenants.run_shares import Hide, SharedRun, to_hide

RULES = [
    redaction.RUN, redaction.ACTIVATION, redaction.STEP, redaction.ATTEMPT, redaction.MODEL_CALL, redaction.TOOL_CALL,
    redaction.ENVELOPE, *redaction.EVENT_DATA.values(),
]  # fmt: skip
HIDES = st.frozensets(st.sampled_from(Hide))
MARK = "the mark"


def visitor(*hide: Hide) -> RequestPrincipal:
    share = SharedRun(uuid4(), RunId(uuid4()), CanvasId(uuid4()), frozenset(hide), False, datetime.now(UTC))
    return RequestPrincipal(TenantId(uuid4()), "", "share", None, share=share)


def event(name: str, **data: Any) -> dict[str, Any]:
    return {"event": name, "run_id": "r", "session_id": MARK, "task_id": MARK, "data": data}


def test_caller_of_the_tenant_sees_everything() -> None:
    owner = RequestPrincipal(TenantId(uuid4()), "", "api", uuid4())
    body = {"anything": MARK}

    assert Redaction.of(owner) is ALL
    assert ALL.run(body) is ALL.event(body) is ALL.activation(body) is body


@given(hide=HIDES, field=st.text(min_size=1))
def test_field_without_a_rule_is_left_out_for_visitors(hide: frozenset[Hide], field: str) -> None:
    shown = Redaction.of(visitor(*hide)).attempt({"id": "a", f"new {field}": MARK})

    assert shown == {"id": "a"}


@given(hide=HIDES, more=HIDES)
def test_share_that_hides_more_shows_less(hide: frozenset[Hide], more: frozenset[Hide]) -> None:
    some, fewer = Redaction.of(visitor(*hide)), Redaction.of(visitor(*hide | more))

    for rules in RULES:
        assert {name for name, rule in rules.items() if some.hides(rule)} <= {
            name for name, rule in rules.items() if fewer.hides(rule)
        }


@pytest.mark.parametrize("hide", Hide)
def test_every_kind_that_can_be_hidden_hides_a_field(hide: Hide) -> None:
    nothing, one = Redaction.of(visitor()), Redaction.of(visitor(hide))

    assert any(one.hides(rule) and not nothing.hides(rule) for rules in RULES for rule in rules.values())


def test_unknown_event_has_no_data_and_no_ids_of_the_session() -> None:
    shown = Redaction.of(visitor()).event(event("of_a_later_release", content=MARK))

    assert MARK not in str(shown)
    assert shown["event"] == "of_a_later_release"


def test_text_of_a_models_error_is_hidden_before_the_run_is_known_to_have_one() -> None:
    quiet, open_ = Redaction.of(visitor(Hide.ERRORS)), Redaction.of(visitor())
    message = event("message", content="**ERROR**: HTTP 500")
    harmless = event("message", content="Hello")
    ended = event("node_finished", outputs={"content": "x", "_ERROR": "x"}, component_type="LLM")

    assert quiet.event(message)["data"]["content"] == ""
    assert (quiet.event(harmless)["data"], open_.event(message)["data"]) == (harmless["data"], message["data"])
    assert quiet.after(ended).event(harmless)["data"]["content"] == ""
    assert quiet.after(harmless) is quiet
    assert quiet.event(ended)["data"]["outputs"] == {}


def test_outputs_of_a_form_are_what_a_person_entered() -> None:
    entered = event("node_finished", inputs={}, outputs={"name": MARK}, component_type="UserFillUp")
    made = event("node_finished", inputs={}, outputs={"name": MARK}, component_type="Code")
    hiding = Redaction.of(visitor(Hide.INPUTS))

    assert MARK not in str(hiding.event(entered))
    assert hiding.event(made)["data"]["outputs"] == {"name": MARK}


def test_share_of_a_later_release_that_hides_more_hides_everything() -> None:
    assert to_hide(["cost", "faces"]) == frozenset(Hide)
    assert to_hide(["cost"]) == {Hide.COST}


@pytest.mark.parametrize("is_stopped_by_budget", [True, False])
def test_form_of_a_budget_is_not_shown(is_stopped_by_budget: bool) -> None:
    field = {"budget": {"code": "budget_exceeded", "limit": MARK}} if is_stopped_by_budget else {"value": MARK}
    shown = Redaction.of(visitor()).event(
        event("user_inputs", inputs={"a": field}, tips=MARK, forms={"A": {"inputs": {"a": field}, "tips": MARK}})
    )

    assert (MARK in str(shown)) == (not is_stopped_by_budget)


def test_errors_of_budgets_are_hidden_with_costs() -> None:
    account = Account("run", "tokens", 10, 4, 0)
    errors = [
        denial_message(Denied(account, 7), "m"),
        denial_message(Denied(account, None), "m"),
        time_budget_error(5000),
    ]
    hiding, other = Redaction.of(visitor(Hide.COST)), Redaction.of(visitor())

    for error in errors:
        frame = {"code": 500, "message": error, "data": False, "failure": {"code": "x", "error": error}}
        assert error not in str(hiding.event(frame))
        assert other.event(frame)["message"] == error
        assert hiding.attempt({"error": error})["error"] is None
        assert other.attempt({"error": error})["error"] == error
    assert hiding.attempt({"error": "HTTP 500"})["error"] == "HTTP 500"
