"""Headers that a caller sends along for MCP servers: sealed in the run's request, read by its workers only (E15)."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from store.primitives.encryption import EncryptionKey, seal, unseal

OPTION = "sealed_header"
"""Under this name they lie among the options of a run's request."""


def sealed(key: EncryptionKey, tenant_id: UUID, headers: Mapping[str, Any]) -> dict[str, str]:
    """The option that holds these headers; none for none."""
    texts = {str(name): str(value) for name, value in headers.items() if value is not None}
    if not texts:
        return {}
    return {OPTION: b64encode(seal(key, json.dumps(texts), _place(tenant_id))).decode()}


def unsealed(key: EncryptionKey, tenant_id: UUID, request: Mapping[str, Any]) -> dict[str, str]:
    """The headers that came with a run's request. Raises CannotUnseal."""
    text = (request.get("options") or {}).get(OPTION)
    if not isinstance(text, str):
        return {}
    found: dict[str, str] = json.loads(unseal(key, b64decode(text), _place(tenant_id)))
    return found


def _place(tenant_id: UUID) -> str:
    return f"custom_header/{tenant_id}"
