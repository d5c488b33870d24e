"""Which model reads answers aloud."""

from types import SimpleNamespace
from typing import Any

from providers.models.vendors.accounts import AccountModel, VendorAccount
from worker.services.tts import TtsModels


def models_of(*accounts: VendorAccount) -> Any:
    models: Any = SimpleNamespace(accounts=lambda tenant_id: accounts)
    return TtsModels(models, cache=None)  # pyright: ignore[reportArgumentType]


def account_with(**models: AccountModel) -> VendorAccount:
    return VendorAccount("OpenAI", api_key="sk", models=models)


def test_first_active_speech_model_is_used():
    off = AccountModel(kinds=frozenset({"tts"}), status="inactive")
    chat = AccountModel(kinds=frozenset({"chat"}))
    on = AccountModel(kinds=frozenset({"tts"}))

    spec = models_of(account_with(off=off, chat=chat, on=on))._spec("tenant")

    assert spec is not None
    assert spec.name == "on"


def test_tenant_without_an_active_speech_model_has_none():
    off = AccountModel(kinds=frozenset({"tts"}), status="inactive")

    assert models_of(account_with(off=off))._spec("tenant") is None
