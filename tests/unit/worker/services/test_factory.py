"""The services of a deployment, as its settings describe them."""

from pathlib import Path
from typing import Any

import pytest

from settings import Settings
from worker.services import factory
from worker.services.factory import ServiceConfig, ServiceFactory


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("local", {"must_isolate": True, "allow_root": False}),
        ("self_managed", {"endpoint": "http://sandbox:9385"}),
    ],
)
def test_local_sandbox_gets_the_isolation_settings_and_others_their_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, expected: dict[str, Any]
):
    created: list[tuple[Any, ...]] = []
    monkeypatch.setattr(factory, "create_sandbox", lambda *arguments: created.append(arguments))
    settings = Settings(
        sandbox=name, sandbox_url="http://sandbox:9385", sandbox_must_isolate=True, sandbox_allow_root=False
    )
    unused: Any = None

    ServiceFactory(settings, ServiceConfig(), unused, unused, unused, unused)

    ((kind, _, _, _, options),) = created
    assert (kind, options) == (name, expected)
