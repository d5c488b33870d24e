from pathlib import Path

import pytest

from canvas.errors import ModelError
from providers.models.vendors.accounts import VendorAccount, accounts_from_toml, kinds_of, split_api_key


def write_accounts(folder: Path, text: str) -> Path:
    path = folder / "models.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_accounts_are_read_with_their_models(tmp_path: Path):
    path = write_accounts(
        tmp_path,
        """
        [[account]]
        factory = "VLLM"
        instance = "lab"
        base_url = "http://gpu:8000"
        [account.models."qwen3:8b"]
        kinds = ["chat", "image2text"]
        context_tokens = 32768
        is_tools = true
        [account.extra]
        drop_params = ["top_p"]
        """,
    )

    (account,) = accounts_from_toml(path, {})

    assert (account.factory, account.instance, account.base_url) == ("VLLM", "lab", "http://gpu:8000")
    assert account.models["qwen3:8b"].kinds == {"chat", "vision"}
    assert account.models["qwen3:8b"].context_tokens == 32768
    assert account.extra == {"drop_params": ["top_p"]}


def test_api_key_is_read_from_the_environment(tmp_path: Path):
    path = write_accounts(tmp_path, '[[account]]\nfactory = "OpenAI"\napi_key = "${env:MY_KEY}"\n')

    (account,) = accounts_from_toml(path, {"MY_KEY": "sk-1"})

    assert account.api_key == "sk-1"


def test_api_key_missing_from_the_environment_is_reported_by_name(tmp_path: Path):
    path = write_accounts(tmp_path, '[[account]]\nfactory = "OpenAI"\napi_key = "${env:MY_KEY}"\n')

    with pytest.raises(ModelError, match="MY_KEY, which is not set"):
        accounts_from_toml(path, {})


def test_a_file_without_accounts_has_none(tmp_path: Path):
    assert accounts_from_toml(write_accounts(tmp_path, ""), {}) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[account]]\nfactory =", "cannot be read"),
        ('account = "OpenAI"', "must be written as"),
        ('[[account]]\ninstance = "a"', "Account 1 in .*, field factory"),
        ('[[account]]\nfactory = "A"\napi_kye = "sk-secret"', "field api_kye"),
        ('[[account]]\nfactory = "A"\n[account.models.m]\ncontext_tokens = 0', "field models.m.context_tokens"),
    ],
)
def test_invalid_accounts_file_is_reported_without_its_values(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(ModelError, match=complaint) as raised:
        accounts_from_toml(write_accounts(tmp_path, text), {})

    assert "sk-secret" not in raised.value.message
    assert raised.value.__cause__ is None or "sk-secret" not in str(raised.value.__cause__)


def test_missing_accounts_file_is_reported_with_its_name(tmp_path: Path):
    with pytest.raises(ModelError, match=r"nowhere\.toml"):
        accounts_from_toml(tmp_path / "nowhere.toml", {})


def test_an_account_does_not_show_its_key():
    assert "sk-secret" not in repr(VendorAccount("OpenAI", api_key="sk-secret", extra={"secret": "sk-secret"}))


@pytest.mark.parametrize(
    ("stored", "kinds"),
    [
        (1, {"chat"}),
        (9, {"chat", "vision"}),
        (127, {"chat", "embedding", "asr", "vision", "rerank", "tts", "ocr"}),
        (0, set[str]()),
        ("image2text", {"vision"}),
        (["chat", "speech2text"], {"chat", "asr"}),
    ],
)
def test_kinds_are_read_from_every_stored_form(stored: int | str | list[str], kinds: set[str]):
    assert kinds_of(stored) == kinds


@pytest.mark.parametrize(
    ("stored", "key", "payload"),
    [
        ("sk-1", "sk-1", {}),
        ('{"api_key": "sk-1", "is_tools": true}', "sk-1", {"is_tools": True}),
        ('{"api_key": "sk-1", "api_version": "2024-02-01"}', "sk-1", {"api_version": "2024-02-01"}),
        ('{"auth_mode": "iam_role"}', "", {"auth_mode": "iam_role"}),
        ("{not json", "{not json", {}),
        (" sk-1\n", "sk-1", {}),
    ],
)
def test_a_key_stored_as_json_is_unwrapped(stored: str, key: str, payload: dict[str, object]):
    assert split_api_key(stored) == (key, payload)
