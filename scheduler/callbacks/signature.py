"""Signatures of callbacks, as the Standard Webhooks specification has them: `v1`, HMAC-SHA256 of id, time and body."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from store.tenants.callbacks import key_of


def message_id(delivery_id: UUID) -> str:
    """Return the id of a delivery on the wire: the same for every attempt, so that receivers recognise repeats."""
    return f"msg_{delivery_id.hex}"


def signed_headers(delivery_id: UUID, at: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of an attempt; one signature for each secret."""
    written_id, timestamp = message_id(delivery_id), str(int(at.timestamp()))
    content = f"{written_id}.{timestamp}.".encode() + body
    signatures = (hmac.new(key_of(secret), content, hashlib.sha256).digest() for secret in secrets)
    return {
        "content-type": "application/json",
        "webhook-id": written_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(each).decode()}" for each in signatures),
    }
