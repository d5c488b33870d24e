"""Encryption of stored secrets: AES-256-GCM under a key that is derived from EASEL_SECRET_KEY.

An encrypted ("sealed") value is bound to the row it belongs to ("model_accounts/<tenant>/..."): copied into another
row, it cannot be decrypted. Its bytes are: format (1), nonce, ciphertext with tag.
"""

import secrets
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from canvas.errors import ExecutorError, InvalidRequest

MIN_SECRET = 16
"""Characters. The key is derived from the secret directly, so a guessable secret makes the encryption useless."""

_FORMAT = b"\x01"
_NONCE_BYTES = 12


class CannotUnseal(ExecutorError):
    """A sealed secret cannot be decrypted: it was sealed with another key, belongs to another row, or was changed."""

    code = "cannot_unseal"


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """The encryption key of a deployment. Its repr does not show it."""

    key: bytes = field(repr=False)

    @classmethod
    def from_secret(cls, secret: str) -> "EncryptionKey":
        """Derive the key from the setting. Raises InvalidRequest for a secret that is too short to protect anything."""
        if len(secret) < MIN_SECRET:
            raise InvalidRequest(
                f"EASEL_SECRET_KEY has {len(secret)} characters. Set it to a random text of {MIN_SECRET} or more."
            )
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"easel: sealed secrets")
        return cls(derived.derive(secret.encode()))

    @lru_cache(maxsize=8)  # noqa: B019 (a process has one key, which lives as long as it does)
    def derive(self, purpose: bytes, length: int) -> bytes:
        """Derive a key of `length` bytes for another purpose."""
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(self.key)


def seal(key: EncryptionKey, plain: str, belongs_to: str) -> bytes:
    """Encrypt a text; sealing the same text twice gives different bytes."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _FORMAT + nonce + AESGCM(key.key).encrypt(nonce, plain.encode(), belongs_to.encode())


def unseal(key: EncryptionKey, sealed: bytes, belongs_to: str) -> str:
    """Decrypt a sealed text. Raises CannotUnseal, whose message says nothing about the content."""
    form, nonce, body = sealed[:1], sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    if form != _FORMAT or not body:
        raise CannotUnseal("This is not a secret that Easel sealed.")
    try:
        return AESGCM(key.key).decrypt(nonce, body, belongs_to.encode()).decode()
    except InvalidTag as error:
        raise CannotUnseal("A sealed secret does not open: is EASEL_SECRET_KEY the one it was sealed with?") from error
