"""Headers that a caller sends for MCP servers: stored sealed in the run's request, and opened by its workers only."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from canvas.ids import TenantId
from store.primitives.encryption import EncryptionKey, seal, unseal

OPTION = "sealed_header"
"""The option of a run's request that has them."""


def seal_headers(key: EncryptionKey, tenant_id: TenantId, headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the option with these headers; {} if there are none."""
    texts = {str(name): str(value) for name, value in headers.items() if value is not None}
    if not texts:
        return {}
    return {OPTION: b64encode(seal(key, json.dumps(texts), _binding(tenant_id))).decode()}


def unseal_headers(key: EncryptionKey, tenant_id: TenantId, request: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that came with a run's request. Raises CannotUnseal."""
    text = (request.get("options") or {}).get(OPTION)
    if not isinstance(text, str):
        return {}
    headers: dict[str, str] = json.loads(unseal(key, b64decode(text), _binding(tenant_id)))
    return headers


def _binding(tenant_id: TenantId) -> str:
    return f"custom_header/{tenant_id}"
