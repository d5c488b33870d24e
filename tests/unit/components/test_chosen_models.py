"""Models that a tenant lacks are told by node and field, before a run asks for them."""

from typing import Any

from canvas.document import Document, Entry
from components import chosen_models
from providers.accounts import Account, AccountModel


def told(params: dict[str, Any], *accounts: Account) -> list[tuple[str | None, str]]:
    """(field, message) of every model that is missing."""
    document = Document(entries={"x": Entry("x", "Agent", params, name="Ask")}, raw={})
    return [(found.field, found.message) for found in chosen_models.missing(document, accounts)]


def test_a_model_of_no_account_is_a_warning_that_says_what_to_do():
    assert told({"llm_id": "gpt-5@OpenAI"}) == [
        ("llm_id", 'Node "Ask" (x): Provider OpenAI not found for model gpt-5. Add an account for OpenAI.')
    ]


def test_models_of_an_account_are_there_unless_it_names_others():
    assert told({"llm_id": "gpt-5@OpenAI"}, Account("OpenAI")) == []
    assert told({"llm_id": "gpt-5@OpenAI"}, Account("OpenAI", models={"gpt-4": AccountModel()})) == [
        ("llm_id", 'Node "Ask" (x): Model gpt-5 is not enabled for provider OpenAI. Enable it or pick another.')
    ]


def test_the_models_of_an_agents_tools_are_looked_up_too():
    tools = [{"component_name": "Agent", "params": {"llm_id": "m@Nobody"}}]

    assert [field for field, _ in told({"llm_id": "echo", "tools": tools})] == ["tools[0].params.llm_id"]


def test_the_stand_ins_are_always_there_and_no_choice_is_no_missing_model():
    assert told({"llm_id": "scripted@Easel", "tools": [{"params": {"llm_id": ""}}]}) == []
