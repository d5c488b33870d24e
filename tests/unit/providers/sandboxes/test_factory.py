"""Which sandbox the settings of a deployment create, and how invalid settings are reported."""

import asyncio
import json
import sys
from typing import Any

import pytest

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Program, Sandbox
from providers.sandboxes.aliyun import AliyunSandbox
from providers.sandboxes.e2b import E2BSandbox
from providers.sandboxes.factory import create_sandbox
from providers.sandboxes.local import LocalSandbox
from providers.sandboxes.managed import ManagedSandbox
from providers.sandboxes.ssh import SshSandbox

HTTP = HttpClient(Guard())
ALIYUN = {"access_key_id": "LTAI", "access_key_secret": "s3cret", "account_id": "1", "template_name": "t"}
SSH = {"host": "h", "username": "u", "password": "s3cret"}


def create(provider: str, config: Any = None, **options: Any) -> Sandbox | None:
    text = config if isinstance(config, str) else json.dumps(config or {})
    return create_sandbox(provider, text, HTTP, Guard(), options)


def refusal(provider: str, config: Any) -> str:
    sandbox = create(provider, config)
    assert sandbox is not None
    with pytest.raises(ToolError) as refused:
        asyncio.run(sandbox.run(Program("python", "def main(): return 1", {}, 1, "key")))
    return str(refused.value)


@pytest.mark.parametrize(
    ("provider", "config", "kind", "repeatable"),
    [
        ("local", {}, LocalSandbox, False),
        ("local", {"must_isolate": True, "timeout": 5, "max_memory_mb": 64}, LocalSandbox, True),
        ("self_managed", {"endpoint": "http://m:1", "max_retries": 0}, ManagedSandbox, False),
        ("ssh", SSH, SshSandbox, False),
        ("e2b", {"api_key": "s3cret"}, E2BSandbox, True),
        ("e2b", {"api_key": "s3cret", "allow_internet_access": True}, E2BSandbox, False),
        ("aliyun_codeinterpreter", ALIYUN, AliyunSandbox, False),
    ],
)
def test_each_provider_is_created_from_its_settings(provider: str, config: Any, kind: type, repeatable: bool):
    sandbox = create(provider, config)

    assert isinstance(sandbox, kind)
    assert sandbox.is_repeatable is repeatable


def test_without_a_provider_there_is_no_sandbox():
    assert create("none") is None


def test_config_object_overrides_single_settings():
    assert create("local", {"must_isolate": False}, must_isolate=True).is_repeatable is False  # pyright: ignore[reportOptionalMemberAccess]
    assert create("local", {}, must_isolate=True).is_repeatable is True  # pyright: ignore[reportOptionalMemberAccess]


def test_missing_library_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    monkeypatch.delitem(sys.modules, "providers.sandboxes.ssh_execution", raising=False)

    assert refusal("ssh", SSH | {"host": "127.0.0.1"}) == (
        'The ssh sandbox needs the extra "ssh" on every worker: pip install easel[ssh]'
    )


@pytest.mark.parametrize(
    ("provider", "config", "message"),
    [
        ("ssh", {"host": "h", "username": "u"}, "set a password or a private_key"),
        ("ssh", SSH | {"port": 70000}, "port"),
        ("ssh", SSH | {"known_host": "x"}, "known_host: Extra inputs are not permitted"),
        ("e2b", {}, "api_key: Field required"),
        ("e2b", {"api_key": ""}, "api_key"),
        ("aliyun_codeinterpreter", ALIYUN | {"timeout": 60}, "timeout"),
        ("aliyun_codeinterpreter", ALIYUN | {"region": "us-east-1"}, "region"),
        ("local", {"timeout": 0}, "timeout"),
        ("local", "{", "they are not valid JSON."),
        ("self_managed", "[1]", "they are not a JSON object."),
    ],
)
def test_invalid_provider_settings_are_reported_without_secrets(provider: str, config: Any, message: str):
    text = refusal(provider, config)

    assert text.startswith(f"The sandbox provider {provider} refuses its settings: ")
    assert message in text
    assert "s3cret" not in text
