"""The globals with which a new conversation starts."""

from typing import Any

import pytest

from canvas.document import defaults, parsing


@pytest.mark.parametrize(
    ("stored", "expected"),
    [("text", ""), (5, 0), (1.5, 0), (True, False), ([1], []), ({"a": 1}, {}), (None, None)],
)
def test_sys_globals_start_with_the_empty_value_of_their_type(stored: Any, expected: Any):
    document = parsing.parse({"components": {}, "globals": {"sys.custom": stored}})

    fresh = defaults.initial_globals(document)["sys.custom"]

    assert fresh == expected
    assert type(fresh) is type(expected)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ({"type": "string", "value": "set"}, "set"),
        ({"type": "number", "value": 0}, 0),
        ({"type": "number", "value": None}, 0),
        ({"type": "boolean"}, False),
        ({"type": "object"}, {}),
        ({"type": "array<string>"}, []),
        ({"type": "string"}, ""),
        ({}, ""),
    ],
)
def test_conversation_variables_start_as_declared(variable: dict[str, Any], expected: Any):
    document = parsing.parse({"components": {}, "variables": {"v": variable}, "globals": {"env.v": "used"}})

    assert defaults.initial_globals(document)["env.v"] == expected


def test_undeclared_variables_become_empty_text_and_other_names_stay():
    document = parsing.parse({"components": {}, "globals": {"env.old": 4, "other": "kept"}})

    fresh = defaults.initial_globals(document)

    assert (fresh["env.old"], fresh["other"]) == ("", "kept")


def test_initial_globals_of_an_empty_document_contain_all_six_sys_globals():
    fresh = defaults.initial_globals(parsing.parse({}))

    assert fresh == {
        "sys.query": "",
        "sys.user_id": "",
        "sys.conversation_turns": 0,
        "sys.files": [],
        "sys.history": [],
        "sys.date": "",
    }


def test_reset_by_type_clears_values_and_history_but_not_the_canvas():
    params = {
        "inputs": {"name": {"type": "line", "value": "Bob"}},
        "outputs": {"o": {"type": "string", "value": "x"}, "r": {"ref": "a@b"}},
        "mode": "conversational",
    }
    document = parsing.parse(
        {
            "components": {"begin": {"obj": {"component_name": "Begin", "params": params}}},
            "history": [["user", "hi"]],
            "memory": [["u", "a", "s"]],
            "retrieval": {"chunks": {}},
            "path": ["begin"],
        }
    )

    fresh = defaults.reset_by_type(document)

    assert fresh.entries["begin"].params == {
        "inputs": {"name": {"type": "line", "value": None}},
        "outputs": {"o": {"type": "string", "value": None}, "r": {"ref": "a@b"}},
        "mode": "conversational",
    }
    assert (fresh.history, fresh.memory, fresh.retrieval) == ((), (), ())
    assert parsing.dump(fresh)["path"] == []
    assert parsing.parse(parsing.dump(fresh)) == fresh
    assert document.entries["begin"].params == params
