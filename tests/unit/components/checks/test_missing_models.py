"""Models that a tenant lacks are reported by node and field before a run."""

from typing import Any

from canvas.document.document import Document, Entry
from components.checks import missing_models
from providers.models.vendors.accounts import AccountModel, VendorAccount


def missing(params: dict[str, Any], *accounts: VendorAccount) -> list[tuple[str | None, str]]:
    """Return (field, message) of every missing model."""
    document = Document(entries={"x": Entry("x", "Agent", params, name="Ask")}, raw={})
    return [(found.field, found.message) for found in missing_models.find_missing(document, accounts)]


def test_model_without_an_account_is_a_warning_with_a_remedy():
    assert missing({"llm_id": "gpt-5@OpenAI"}) == [
        ("llm_id", 'Node "Ask" (x): Provider OpenAI not found for model gpt-5. Add an account for OpenAI.')
    ]


def test_account_without_a_model_list_has_every_model():
    assert missing({"llm_id": "gpt-5@OpenAI"}, VendorAccount("OpenAI")) == []
    assert missing({"llm_id": "gpt-5@OpenAI"}, VendorAccount("OpenAI", models={"gpt-4": AccountModel()})) == [
        ("llm_id", 'Node "Ask" (x): Model gpt-5 is not enabled for provider OpenAI. Enable it or pick another.')
    ]


def test_missing_model_of_an_agents_tool_is_reported():
    tools = [{"component_name": "Agent", "params": {"llm_id": "m@Nobody"}}]

    assert [field for field, _ in missing({"llm_id": "scripted", "tools": tools})] == ["tools[0].params.llm_id"]


def test_built_in_models_are_available_and_an_empty_choice_is_not_a_missing_model():
    assert missing({"llm_id": "scripted@Easel", "tools": [{"params": {"llm_id": ""}}]}) == []


def test_agent_whose_model_is_declared_to_call_no_tools_is_a_warning_at_its_tools():
    gpu = VendorAccount("VLLM", base_url="http://gpu:8000", models={"m": AccountModel(is_tools=False)})
    inner = {"component_name": "Agent", "params": {"llm_id": "m@VLLM", "mcp": [{"mcp_id": "x"}]}}
    agent = {"llm_id": "m@VLLM", "tools": [{"component_name": "TavilySearch", "params": {}}, inner]}

    found = missing(agent, gpu)

    assert [field for field, _ in found] == ["tools", "tools[1].params.mcp"]
    assert 'The account of model "m@VLLM" declares that the model calls no tools.' in found[0][1]
    assert missing({**agent, "tool_mode": "prompt", "tools": agent["tools"][:1]}, gpu) == []
    assert missing({"llm_id": "m@VLLM"}, gpu) == []


def test_self_hosted_model_may_call_tools_unless_its_account_declares_otherwise():
    agent = {"llm_id": "m@Ollama", "tools": [{"component_name": "TavilySearch", "params": {}}]}
    without = VendorAccount("Ollama", base_url="http://lab:11434", extra={"is_tools": False})

    assert missing(agent, VendorAccount("Ollama", base_url="http://lab:11434")) == []
    assert [field for field, _ in missing(agent, without)] == ["tools"]
