from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ModelError
from providers.models.chat.catalogue import resolve
from providers.models.vendors.accounts import VendorAccount
from providers.models.vendors.families import ParameterRules, ThinkingSwitch, wire_params

ALL = {
    "temperature": 0.2,
    "top_p": 0.5,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.4,
    "max_tokens": 100,
}
PLAIN = ParameterRules()


def body(
    model: str, rules: ParameterRules = PLAIN, account: dict[str, Any] | None = None, **params: Any
) -> dict[str, Any]:
    return wire_params(model, params or ALL, rules, account or {}).body


def thinking(model: str, chosen: str | None, *switches: ThinkingSwitch) -> dict[str, Any]:
    params = {} if chosen is None else {"thinking": chosen}
    return wire_params(model, params, ParameterRules(switches=frozenset(switches)), {}).extra


def test_model_without_a_family_gets_the_parameters_of_the_author():
    assert body("some-model") == {
        "temperature": 0.2,
        "top_p": 0.5,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "max_completion_tokens": 100,
    }


def test_max_tokens_is_sent_under_the_name_of_the_vendor():
    assert body("m", ParameterRules("max_tokens"), max_tokens=9) == {"max_tokens": 9}
    assert body("m", ParameterRules("max_completion_tokens"), max_tokens=9) == {"max_completion_tokens": 9}


@given(st.dictionaries(st.text().map("x_{}".format), st.integers()))
def test_unknown_parameters_are_never_sent(params: dict[str, int]):
    sent = wire_params("m", {**params, "temperature": 0.5}, PLAIN, {})

    assert (sent.body, sent.extra) == ({"temperature": 0.5}, {})


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "GPT-5.1", "openai/gpt-5"])
def test_gpt_5_gets_no_temperature(model: str):
    assert body(model) == {"presence_penalty": 0.3, "frequency_penalty": 0.4, "max_completion_tokens": 100}


@pytest.mark.parametrize("model", ["gpt-5-chat-latest", "gpt-4o", "claude-opus-4-1", "claude-sonnet-4-5"])
def test_models_that_support_a_temperature_get_it(model: str):
    assert body(model)["temperature"] == 0.2


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-opus-4-7-20260101", "anthropic/claude-opus-5"])
def test_newest_opus_gets_no_temperature(model: str):
    assert not {"temperature", "top_p"} & set(body(model))


def test_hunyuan_gets_no_penalties():
    assert set(body("hunyuan-turbos")) == {"temperature", "top_p", "max_completion_tokens"}


@pytest.mark.parametrize("model", ["kimi-k2.5", "moonshotai/Kimi-K2-6"])
def test_kimi_k2_5_has_fixed_parameters(model: str):
    assert body(model) == {
        "top_p": 0.95,
        "n": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "max_completion_tokens": 100,
    }


@pytest.mark.parametrize(
    ("model", "chosen", "sent"),
    [
        ("qwen3-8b", None, False),
        ("Qwen/Qwen3-8B", "enabled", True),
        ("qwen3-8b", "disabled", False),
        ("qwen3-max-preview", None, True),
        ("qwen3-max-preview", "disabled", True),
        ("qwen3-235b-a22b", "disabled", True),
    ],
)
def test_qwen3_thinking_is_off_by_default_unless_the_model_requires_it(model: str, chosen: str | None, sent: bool):
    assert thinking(model, chosen, ThinkingSwitch.FLAG) == {"enable_thinking": sent}


def test_servers_that_render_prompts_get_the_flag_in_the_template():
    assert thinking("Qwen3-8B", None, ThinkingSwitch.TEMPLATE) == {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("model", "chosen", "sent"),
    [
        ("deepseek-chat", None, {"thinking": {"type": "disabled"}}),
        ("deepseek-chat", "enabled", {"thinking": {"type": "enabled"}}),
        ("deepseek-reasoner", None, {}),
        ("glm-4.6", None, {}),
        ("glm-4.6", "enabled", {"thinking": {"type": "enabled"}}),
        ("kimi-k2.5", "disabled", {"thinking": {"type": "disabled"}}),
        ("some-model", "enabled", {}),
    ],
)
def test_thinking_switch_has_the_form_of_the_model_family(model: str, chosen: str | None, sent: dict[str, Any]):
    assert thinking(model, chosen, ThinkingSwitch.TYPE) == sent


@pytest.mark.parametrize("model", ["qwen3-8b", "deepseek-chat", "glm-4.6"])
def test_vendor_without_a_thinking_switch_gets_none(model: str):
    assert thinking(model, "enabled") == {}


def test_account_parameters_override_all_others():
    account = {
        "drop_params": ["top_p"],
        "set_params": {"temperature": 1, "reasoning_effort": "low", "verbosity": "low"},
    }
    sent = wire_params("m", ALL, PLAIN, account)

    assert "top_p" not in sent.body
    assert (sent.body["temperature"], sent.body["reasoning_effort"]) == (1, "low")
    assert sent.extra == {"verbosity": "low"}


def test_families_of_an_account_come_before_the_built_in_ones():
    own = {
        "families": [
            {"pattern": "gpt-5-tuned", "set": {"temperature": 1}},
            {"pattern": "house-", "drop": ["top_p"], "switch": "flag", "thinks_by_default": True},
        ]
    }
    params = wire_params("house-1", ALL, ParameterRules(switches=frozenset({ThinkingSwitch.FLAG})), own)

    assert body("gpt-5-tuned-2", account=own)["temperature"] == 1
    assert "temperature" not in body("gpt-5", account=own)
    assert "top_p" not in params.body
    assert params.extra == {"enable_thinking": True}


@pytest.mark.parametrize(
    ("families", "complaint"),
    [
        ([{"pattern": "("}], "0.pattern: .* is not a valid regular expression"),
        ([{"pattern": "a", "dorp": []}], "0.dorp: Extra inputs"),
        ({"pattern": "a"}, "families: Input should be a valid list"),
    ],
)
def test_invalid_families_are_refused_before_a_request(families: Any, complaint: str):
    with pytest.raises(ModelError, match=complaint):
        resolve("m@OpenAI", [VendorAccount("OpenAI", extra={"families": families})])
