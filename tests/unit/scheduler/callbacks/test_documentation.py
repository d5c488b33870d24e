"""The program in docs/callbacks.md that verifies signatures."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scheduler.callbacks.signature import signed_headers
from store.tenants.callbacks import new_secret

PAGE = Path(__file__).resolve().parents[4] / "docs" / "callbacks.md"
ID = UUID(int=1)


@pytest.fixture
def verify() -> Any:
    """The function of the page."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    return names["verify"]


def test_documented_program_accepts_what_easel_signs_also_after_a_secret_was_replaced(verify: Any) -> None:
    former, secret = new_secret(), new_secret()

    headers = signed_headers(ID, datetime.now(UTC), b'{"a": 1}', [secret, former])

    verify(secret, headers, b'{"a": 1}')
    verify(former, headers, b'{"a": 1}')


def test_documented_program_refuses_other_secrets_other_bodies_and_old_requests(verify: Any) -> None:
    secret, now = new_secret(), datetime.now(UTC)
    headers = signed_headers(ID, now, b"{}", [secret])

    with pytest.raises(ValueError, match="not valid"):
        verify(new_secret(), headers, b"{}")
    with pytest.raises(ValueError, match="not valid"):
        verify(secret, headers, b"{ }")
    with pytest.raises(ValueError, match="too old"):
        verify(secret, signed_headers(ID, now - timedelta(minutes=10), b"{}", [secret]), b"{}")
