import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import ModelError
from providers.models.chat.catalogue import AccountModel, VendorAccount, open_chat, resolve, vendors, with_version
from providers.models.chat.dialects import Dialect, dialect_of_spec
from providers.models.chat.scripted import Script, scripted_spec
from providers.models.types.chat import ChatRequest, ModelSpec
from providers.models.wires import aws

ASK = ChatRequest([{"role": "user", "content": "hi"}])


def account(factory: str = "OpenAI", *names: str, **fields: Any) -> VendorAccount:
    models = {name: AccountModel() for name in names}
    return VendorAccount(factory, **{"models": models, "api_key": "sk-secret", **fields})


def name_and_factory(llm_id: str, *accounts: VendorAccount) -> tuple[str, str]:
    spec = resolve(llm_id, accounts)
    return spec.name, spec.factory


def refusal(llm_id: str, *accounts: VendorAccount, kind: str = "chat") -> str:
    with pytest.raises(ModelError) as raised:
        resolve(llm_id, accounts, kind=kind)
    return raised.value.message


def test_model_id_resolves_to_the_account_of_its_factory():
    spec = resolve("gpt-5@OpenAI", [account("OpenAI", "gpt-5")])

    assert (spec.id, spec.name, spec.factory) == ("gpt-5@OpenAI", "gpt-5", "OpenAI")
    assert (spec.base_url, spec.api_key, spec.is_builtin) == ("https://api.openai.com/v1", "sk-secret", False)
    assert spec.context_tokens == 400_000
    assert spec.is_tools


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-5.3@OpenAI", 128_000),  # of the public list
        ("claude-opus-4-6@Anthropic", 1_000_000),
        ("gemini-2.5-pro@Gemini", 1_048_576),  # of the vendor's table: the list has none
        ("acme@OpenAI", 8192),
    ],
)
def test_context_comes_from_the_public_list_then_from_the_vendors_table(model: str, tokens: int):
    assert resolve(model, [account(model.partition("@")[2])]).context_tokens == tokens


def test_model_name_may_contain_any_character():
    lab = account("LM-Studio", "nomic@q8_0", instance="studio", base_url="http://lab:1234")

    assert name_and_factory("nomic@q8_0@studio@LM-Studio", lab) == ("nomic@q8_0", "LM-Studio")
    assert name_and_factory("org/m:7b@OpenAI", account("OpenAI", "org/m:7b")) == ("org/m:7b", "OpenAI")


def test_named_instance_is_used_or_else_the_default_instance():
    a, b = account("OpenAI", "m", instance="default", api_key="a"), account("OpenAI", "m", instance="b", api_key="b")

    assert resolve("m@b@OpenAI", [a, b]).api_key == "b"
    assert resolve("m@OpenAI", [b, a]).api_key == "a"


def test_only_active_instance_is_used_as_the_default():
    a = account("OpenAI", "m", instance="a", api_key="a")
    b = account("OpenAI", "m", instance="b", status="inactive")

    assert resolve("m@OpenAI", [b, a]).api_key == "a"
    assert resolve("m@default@OpenAI", [b, a]).api_key == "a"


def test_several_instances_without_a_default_are_ambiguous():
    message = refusal("m@OpenAI", account("OpenAI", "m", instance="a"), account("OpenAI", "m", instance="b"))

    assert message == (
        "Instance default of provider OpenAI not found for model m. Use one of these: a, b; or add an "
        "account with this instance."
    )


@pytest.mark.parametrize(
    ("llm_id", "factory"),
    [
        ("m___VLLM@VLLM", "VLLM"),
        ("m___OpenAI-API@OpenAI-API-Compatible", "OpenAI-API-Compatible"),
        ("m___LocalAI@LocalAI", "LocalAI"),
        ("org/m___HuggingFace@HuggingFace", "HuggingFace"),
    ],
)
def test_suffix_of_a_stored_name_is_cut_whether_or_not_the_account_lists_the_model_with_it(llm_id: str, factory: str):
    stored = llm_id.split("@")[0]
    plain = stored.split("___")[0]

    for names in ((), (stored,), (plain,)):
        own = account(factory, *names, base_url="http://gpu:8000")
        assert name_and_factory(llm_id, own) == (plain, factory)
        assert name_and_factory(f"{plain}@{factory}", own) == (plain, factory)


def test_suffix_is_cut_from_a_bare_name_that_an_account_lists():
    assert name_and_factory("m___VLLM", account("VLLM", "m", base_url="http://gpu:8000")) == ("m", "VLLM")


def test_suffix_of_another_factory_is_a_part_of_the_name():
    assert name_and_factory("m___VLLM@OpenAI", account("OpenAI")) == ("m___VLLM", "OpenAI")
    assert name_and_factory("m___OpenAI-API@VLLM", account("VLLM", base_url="http://gpu:8000")) == (
        "m___OpenAI-API",
        "VLLM",
    )


def test_instance_after_the_factory_selects_the_account():
    a = account("OpenAI-API-Compatible", "m", api_key="a", base_url="http://a:1")
    b = account("OpenAI-API-Compatible", "m", instance="admin", api_key="b", base_url="http://b:1")

    assert resolve("m___OpenAI-API@OpenAI-API-Compatible#admin", [a, b]).api_key == "b"
    assert resolve("m@OpenAI-API-Compatible#default", [b, a]).api_key == "a"
    assert resolve("nomic@q8_0@LM-Studio#x", [account("LM-Studio", instance="x", base_url="http://a:1")]).name == (
        "nomic@q8_0"
    )
    assert (
        "Instance other of provider OpenAI-API-Compatible not found for model m. Use one of these: default, admin;"
        in (refusal("m@OpenAI-API-Compatible#other", a, b))
    )


def test_factory_with_a_number_sign_in_its_own_name_is_found():
    assert name_and_factory("m@Acme#2", account("Acme#2", "m", base_url="http://a:1")) == ("m", "Acme#2")


def test_a_bare_name_is_searched_in_all_accounts():
    assert name_and_factory("m", account("OpenAI", "n"), account("Groq", "m")) == ("m", "Groq")
    assert name_and_factory("gpt-4o", account("Groq", "x"), account("OpenAI")) == ("gpt-4o", "OpenAI")


def test_bare_name_prefers_an_account_where_the_model_is_enabled():
    disabled = VendorAccount("OpenAI", models={"m": AccountModel(status="inactive")})

    assert name_and_factory("m", disabled, account("Groq", "m")) == ("m", "Groq")
    assert "disabled" in refusal("m", disabled)


def test_stored_id_resolves_to_its_model():
    stored = VendorAccount("OpenAI", models={"gpt-5": AccountModel(id="0123456789abcdef0123456789abcdef")})

    assert name_and_factory("0123456789abcdef0123456789abcdef", stored) == ("gpt-5", "OpenAI")


def test_account_without_a_model_list_accepts_every_model():
    assert name_and_factory("brand-new@OpenAI", account("OpenAI")) == ("brand-new", "OpenAI")


@pytest.mark.parametrize(
    ("llm_id", "complaint"),
    [
        ("m@Acme", "Provider Acme not found for model m. Add an account for Acme."),
        (
            "m@x@OpenAI",
            "Instance x of provider OpenAI not found for model m. Use one of these: default; or add an "
            "account with this instance.",
        ),
        ("o@OpenAI", "Model o is not enabled for provider OpenAI. Enable it or pick another."),
        ("lost", "Provider not found for model lost. Write it as lost@Factory, or add an account with it."),
        ("", '"" is not a valid model id. Write it as model@Factory.'),
        ("@OpenAI", '"@OpenAI" is not a valid model id. Write it as model@Factory.'),
    ],
)
def test_missing_model_is_reported_with_a_remedy(llm_id: str, complaint: str):
    assert refusal(llm_id, account("OpenAI", "m")) == complaint


def test_model_that_is_not_usable_is_refused_with_the_reason():
    models = {
        "off": AccountModel(status="inactive"),
        "odd": AccountModel(status="unsupported"),
        "embed": AccountModel(kinds=frozenset({"embedding"})),
    }
    openai = VendorAccount("OpenAI", models=models)

    assert "off of provider OpenAI is disabled" in refusal("off@OpenAI", openai)
    assert "odd of provider OpenAI cannot be used as chat" in refusal("odd@OpenAI", openai)
    assert "embed of provider OpenAI cannot be used as chat" in refusal("embed@OpenAI", openai)
    assert "Provider OpenAI is disabled" in refusal("m@OpenAI", account("OpenAI", "m", status="inactive"))


def test_vision_model_can_chat_and_other_kinds_must_be_requested():
    models = {
        "eye": AccountModel(kinds=frozenset({"vision"})),
        "embed": AccountModel(kinds=frozenset({"embedding"})),
    }
    openai = VendorAccount("OpenAI", models=models)

    assert resolve("eye@OpenAI", [openai]).kinds == {"vision"}
    assert resolve("embed@OpenAI", [openai], kind="embedding").name == "embed"
    assert "cannot be used as embedding" in refusal("eye@OpenAI", openai, kind="embedding")


@pytest.mark.parametrize(
    ("configured", "used"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("http://host/v1", "http://host/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("http://host/api/paas/v4", "http://host/api/paas/v4"),
        ("http://host/v3/openai", "http://host/v3/openai"),
        ("http://host/v1beta/openai/", "http://host/v1beta/openai"),
        ("http://host/vendor", "http://host/vendor/v1"),
        ("http://v1.host/api", "http://v1.host/api/v1"),
    ],
)
def test_a_base_url_gets_a_version_unless_it_has_one(configured: str, used: str):
    assert with_version(configured) == used


@given(st.lists(st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True), max_size=4))
def test_a_version_is_added_once_at_most(segments: list[str]):
    once = with_version("/".join(["http://host", *segments]))

    assert with_version(once) == once


def test_self_hosted_factory_without_a_base_url_is_refused():
    assert resolve("m@Ollama", [account("Ollama", "m", base_url="http://localhost:11434")]).base_url == (
        "http://localhost:11434/v1"
    )
    assert refusal("m@Ollama", account("Ollama", "m")).endswith("Set `base_url` of its account.")


@pytest.mark.parametrize("url", ["host:8000", "ftp://host/v1", "http:///v1", "/v1"])
def test_a_base_url_must_name_a_web_server(url: str):
    assert "must be http(s)://host/" in refusal("m@VLLM", account("VLLM", "m", base_url=url))


def test_unknown_factory_with_a_base_url_is_openai_compatible():
    spec = resolve("m@Mine", [account("Mine", "m", base_url="http://mine/v2")])

    assert (spec.base_url, spec.is_tools, spec.context_tokens) == ("http://mine/v2", True, 8192)


def test_tool_support_comes_from_the_model_then_the_key_then_the_vendor():
    wrapped = '{"api_key": "sk-1", "is_tools": false}'
    vllm = {"base_url": "http://gpu"}

    assert resolve("m@VLLM", [account("VLLM", "m", **vllm)]).is_tools
    assert not resolve("m@VLLM", [account("VLLM", "m", api_key=wrapped, **vllm)]).is_tools
    assert not resolve("m@VLLM", [account("VLLM", "m", extra={"is_tools": False}, **vllm)]).is_tools
    own = VendorAccount("VLLM", models={"m": AccountModel(is_tools=True)}, api_key=wrapped, **vllm)
    assert resolve("m@VLLM", [own]).is_tools


def test_context_comes_from_the_account_then_the_vendor_then_8192():
    own = VendorAccount("OpenAI", models={"gpt-5": AccountModel(context_tokens=5), "gpt-4o": AccountModel()})

    assert resolve("gpt-5@OpenAI", [own]).context_tokens == 5
    assert resolve("gpt-4o@OpenAI", [own]).context_tokens == 128_000
    assert resolve("m@OpenAI", [account("OpenAI")]).context_tokens == 8192


def test_fields_stored_beside_an_api_key_are_available_but_not_in_the_repr():
    wrapped = '{"api_key": "sk-1", "provider_order": "a,b", "token": "sk-2"}'
    spec = resolve("m@OpenRouter", [account("OpenRouter", "m", api_key=wrapped)])

    assert (spec.api_key, spec.extra["provider_order"]) == ("sk-1", "a,b")
    assert "sk-1" not in repr(spec)
    assert "sk-2" not in repr(spec)


@pytest.mark.parametrize("llm_id", ["echo", "echo@Easel", "scripted", "scripted@Easel"])
def test_built_in_model_is_chosen_by_name_and_labelled(llm_id: str):
    spec = resolve(llm_id, [])

    assert (spec.id, spec.factory, spec.is_builtin) == (llm_id, "Easel", True)


def test_unknown_model_never_falls_back_to_a_built_in_model():
    assert "not found" in refusal("gpt-5@OpenAI")
    assert "not found" in refusal("echo@OpenAI")


def test_echo_model_needs_no_account():
    answer = asyncio.run(open_chat(resolve("echo", [])).complete(ASK))

    assert answer.text == "hi"


def test_the_scripted_model_replays_the_rules_of_its_account(tmp_path: Path):
    rules = tmp_path / "rules.json"
    rules.write_text('[{"user": "hi", "reply": "hello"}]')
    spec = resolve("scripted", [VendorAccount("Easel", extra={"rules": str(rules)})])

    assert asyncio.run(open_chat(spec).complete(ASK)).text == "hello"


def test_scripted_model_without_rules_names_the_missing_setting():
    with pytest.raises(ModelError, match="has no rules"):
        open_chat(resolve("scripted", []))


def test_injected_script_answers_for_any_model():
    script = Script([{"model": "gpt-5@OpenAI", "reply": "scripted"}])
    scripted = open_chat(scripted_spec("gpt-5@OpenAI"), scripted=script)
    substitute = open_chat(resolve("gpt-5@OpenAI", [account("OpenAI")]), scripted=script)

    for model in (scripted, substitute):
        assert asyncio.run(model.complete(ASK)).text == "scripted"
        assert model.spec.is_builtin


@pytest.mark.parametrize(
    ("factory", "extra", "base_url", "dialect", "used"),
    [
        ("OpenAI", {}, None, Dialect.OPENAI, "https://api.openai.com/v1"),
        ("Anthropic", {}, None, Dialect.ANTHROPIC, "https://api.anthropic.com/v1"),
        ("Anthropic", {}, "http://proxy", Dialect.ANTHROPIC, "http://proxy/v1"),
        ("Anthropic", {"dialect": "openai"}, None, Dialect.OPENAI, "https://api.anthropic.com/v1"),
        ("Gemini", {}, None, Dialect.GEMINI, "https://generativelanguage.googleapis.com/v1beta"),
        ("Gemini", {}, "http://proxy", Dialect.GEMINI, "http://proxy/v1beta"),
        ("Gemini", {}, "http://proxy/v1beta/openai/", Dialect.OPENAI, "http://proxy/v1beta/openai"),
        (
            "Gemini",
            {"dialect": "openai"},
            None,
            Dialect.OPENAI,
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("Bedrock", {}, None, Dialect.BEDROCK, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        (
            "Bedrock",
            {"bedrock_region": "eu-west-1"},
            None,
            Dialect.BEDROCK,
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
        ),
        ("Bedrock", {}, "http://vpc/", Dialect.BEDROCK, "http://vpc"),
        ("MiniMax", {"dialect": "anthropic"}, "http://mini/anthropic", Dialect.ANTHROPIC, "http://mini/anthropic/v1"),
        ("Mine", {}, "http://mine/openai", Dialect.OPENAI, "http://mine/openai/v1"),
    ],
)
def test_dialect_and_base_url_come_from_the_account_or_the_vendor(
    factory: str, extra: dict[str, str], base_url: str | None, dialect: Dialect, used: str
):
    spec = resolve(f"m@{factory}", [VendorAccount(factory, base_url=base_url, extra=extra)])

    assert (dialect_of_spec(spec), spec.base_url) == (dialect, used)
    assert open_chat(spec).spec == spec


def test_unknown_dialect_is_refused():
    with pytest.raises(
        ModelError, match=r'The dialect "latin" in the account of .* is not known\. Use one of: openai, azure'
    ):
        resolve("m@OpenAI", [VendorAccount("OpenAI", extra={"dialect": "latin"})])


def test_bedrock_without_its_package_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(aws, "find_spec", lambda name: None)

    with pytest.raises(ModelError, match=r"Install easel\[bedrock\]"):
        open_chat(resolve("claude@Bedrock", [VendorAccount("Bedrock")]))


def test_kinds_of_a_model_come_from_the_vendor_if_the_account_has_none():
    assert resolve("gpt-4o@OpenAI", [account("OpenAI")]).kinds == {"chat", "vision"}
    assert "cannot be used as chat" in refusal("text-embedding-3-small@OpenAI", account("OpenAI"))
    assert resolve("anything@OpenAI", [account("OpenAI")], kind="rerank").kinds == {"rerank"}


def test_every_secret_in_an_account_key_is_listed_as_a_secret():
    key = '{"auth_mode": "access_key_secret", "bedrock_ak": "AKIA-ME", "bedrock_sk": "shh", "bedrock_region": "eu"}'
    spec = resolve("claude@Bedrock", [account("Bedrock", "claude", api_key=key)])

    assert {"AKIA-ME", "shh"} <= set(spec.secrets)
    assert "eu" not in spec.secrets


def test_azure_base_url_gets_no_version():
    spec = resolve("gpt-4o@Azure-OpenAI", [account("Azure-OpenAI", "gpt-4o", base_url="https://me.azure.example/")])

    assert spec.base_url == "https://me.azure.example"
    assert open_chat(spec).spec == spec


def test_every_vendor_has_an_https_base_url_or_none():
    for factory, vendor in vendors().items():
        assert vendor.base_url is None or vendor.base_url.startswith("https://"), factory


def test_a_spec_does_not_show_its_key():
    assert "sk-secret" not in repr(ModelSpec("m", "m", "A", None, api_key="sk-secret"))
