"""The input that `easel runs` shows for a run."""

from cli.runs.runs import describe_input


def test_run_shows_its_query() -> None:
    assert describe_input({"query": "What is new?", "inputs": {"city": "Rome"}}) == "What is new?"


def test_run_with_form_answers_shows_the_answers() -> None:
    answers = {"name": "Ada", "city": {"value": "Rome", "type": "line"}}

    assert describe_input({"query": "", "inputs": answers}) == "name: Ada, city: Rome"


def test_run_without_input_describes_nothing() -> None:
    assert describe_input({}) == ""
    assert describe_input({"query": "", "inputs": None}) == ""
