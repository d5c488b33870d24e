"""Which fields are passwords, and where their masks stand."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.document.single_node import NodeInputs, isolate
from canvas.graph.canvas import compile_canvas
from canvas.graph.passwords import MASK, MIN_QUOTED_CHARS, NO_PASSWORDS, PasswordMask
from scheduler.coordinator.version_cache import MISSING_VERSION
from tests.builders import canvas_of, document_of

FORM = {"inputs": {"login": {"type": "password"}, "name": {"type": "line"}, "pin": {"type": " Password "}}}
FIELDS = {"begin": frozenset({"login"}), "form": frozenset({"pin"})}


def test_password_fields_are_those_of_forms_by_type() -> None:
    canvas = canvas_of("begin -> form -> say", begin=FORM, form={"inputs": {"note": {"type": "line"}}}, say=FORM)

    assert canvas.password_fields == {"begin": {"login", "pin"}}
    assert canvas_of("begin -> say").password_fields == {}
    assert canvas_of("begin -> say", begin={"inputs": {"x": "password", "y": None}}).password_fields == {}


def test_canvas_of_a_version_that_is_gone_has_no_password_fields() -> None:
    assert MISSING_VERSION.canvas.password_fields == {}


def test_node_that_runs_alone_knows_the_password_fields_of_the_values_that_it_reads() -> None:
    document = document_of(
        "begin -> form -> other", begin=FORM, form=FORM, other={"query": "{begin@login} {form@pin} {form@name}"}
    )

    alone = isolate(document, "other", NodeInputs(outputs={"begin": {"login": "x"}, "NodeInput": {"q": "y"}}))

    both = {"login", "pin"}
    assert compile_canvas(parsing.parse(alone)).password_fields == {"begin": both, "form": both}


def test_field_itself_is_masked_whatever_was_entered() -> None:
    mask = PasswordMask.of(FIELDS, ["abc"])

    assert mask.node_values("begin", {"login": "abc", "name": "abc"}) == {"login": MASK, "name": "abc"}
    assert mask.node_values("begin", {"login": 7}) == {"login": MASK}
    assert mask.node_values("begin", {"login": None}) == {"login": None}
    assert mask.node_values("other", {"login": "abc"}) == {"login": "abc"}
    assert mask.answers({"pin": {"type": "password", "value": "abc"}, "name": "Ada", "login": ""}) == {
        "pin": {"type": "password", "value": MASK},
        "name": "Ada",
        "login": "",
    }
    assert mask.answers(None) is None


@pytest.mark.parametrize(
    "entered",
    ["secret", {"value": "secret"}, {"type": "password", "value": "secret"}, ["secret"], {"deep": ["secret"]}],
)
def test_password_is_masked_wherever_it_is_quoted(entered: Any) -> None:
    mask = PasswordMask.of(FIELDS, [entered])

    assert mask.value({"a": ["my secret!", {"b": "secret"}], "secret": 1}) == {
        "a": [f"my {MASK}!", {"b": MASK}],
        MASK: 1,
    }
    assert mask.text("type password") == "type password"


def test_number_is_masked_as_number_and_in_texts() -> None:
    mask = PasswordMask.of(FIELDS, [123456])

    assert mask.value([123456, 12345, True, "pin 123456"]) == [MASK, 12345, True, f"pin {MASK}"]


def test_longer_password_is_masked_before_one_that_it_contains() -> None:
    mask = PasswordMask.of(FIELDS, ["secret", "secret and more"])

    assert mask.text("secret and more, secret") == f"{MASK}, {MASK}"


def test_join_masks_the_passwords_of_both() -> None:
    mask = PasswordMask.of({"a": frozenset({"x"})}, ["first"]).join(PasswordMask.of(FIELDS, ["second"]))

    assert mask.text("first, second") == f"{MASK}, {MASK}"
    assert mask.fields == {"a": {"x"}, **FIELDS}


def test_run_without_password_fields_is_shown_as_it_is() -> None:
    values = {"login": "abc", "n": [1, None]}

    assert not NO_PASSWORDS
    assert NO_PASSWORDS.value(values) is values
    assert NO_PASSWORDS.answers(values) is values


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=MIN_QUOTED_CHARS, max_size=20).filter(
        lambda text: text not in MASK * 10
    ),
    json_values,
    st.text(max_size=5),
)
def test_no_text_of_a_masked_value_has_the_password_however_it_is_written(
    password: str, value: Any, around: str
) -> None:
    mask = PasswordMask.of(FIELDS, [password])
    written = json.dumps({"a": password})
    quoted = {"plain": around + password + around, "json": written, "twice": json.dumps(written), "other": value}

    shown = mask.value(quoted)

    for text in texts_of({name: each for name, each in shown.items() if name != "other"}):
        assert password not in text
        assert json.dumps(password)[1:-1] not in text
    assert set(map(type, texts_of(shown))) <= {str}


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name, member in value.items() for text in (name, *texts_of(member))]
    return [text for item in value for text in texts_of(item)] if isinstance(value, list) else []
