"""Which globals a turn sets, and which it keeps."""

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.coordinator.run_start import RunRequest, turn_globals

NOON = datetime(2025, 1, 2, 12, 0, 0)
JSON = st.none() | st.text(max_size=5) | st.integers() | st.lists(st.integers(), max_size=2)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=3)


def test_turn_sets_its_date_and_number():
    assert changed_globals({"sys.conversation_turns": 4}) == {
        "sys.date": "2025-01-02 12:00:00",
        "sys.conversation_turns": 5,
    }


def test_turn_counter_that_is_not_a_number_restarts():
    assert changed_globals({"sys.conversation_turns": "many"})["sys.conversation_turns"] == 1
    assert changed_globals({})["sys.conversation_turns"] == 1


def test_arguments_of_a_turn_replace_earlier_globals():
    globals_of_turn = changed_globals({}, query="Hi", user_id="ann", chat_template_kwargs={"thinking": True})

    assert globals_of_turn["sys.query"] == "Hi"
    assert globals_of_turn["sys.user_id"] == "ann"
    assert globals_of_turn["sys.chat_template_kwargs"] == {"thinking": True}


def test_globals_that_a_turn_does_not_set_are_kept():
    globals_of_turn = changed_globals(
        {"sys.query": "before", "sys.user_id": "ann"}, query="", user_id="", chat_template_kwargs={}
    )

    assert not globals_of_turn.keys() & {"sys.query", "sys.user_id", "sys.chat_template_kwargs"}


def test_query_may_be_an_object():
    assert changed_globals({}, query={"content": "Hi"})["sys.query"] == {"content": "Hi"}


@given(
    st.builds(
        RunRequest,
        query=JSON | OBJECTS,
        inputs=st.none() | OBJECTS,
        files=st.lists(OBJECTS, max_size=2).map(tuple),
        user_id=st.text(max_size=3),
        webhook_payload=st.none() | OBJECTS,
        chat_template_kwargs=st.none() | OBJECTS,
        options=OBJECTS,
    )
)
def test_request_is_restored_from_its_column(request: RunRequest):
    assert RunRequest.from_json(request.to_json()) == request


def changed_globals(globals_: dict[str, Any], **request: Any) -> dict[str, Any]:
    return turn_globals({"globals": globals_}, RunRequest(**request), NOON)
