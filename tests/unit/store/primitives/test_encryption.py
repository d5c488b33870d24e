"""Sealed secrets can be opened only with their key and in their row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import InvalidRequest
from store.primitives.encryption import CannotUnseal, EncryptionKey, seal, unseal

KEY = EncryptionKey.from_secret("correct horse battery staple")
ROW = "model_accounts/tenant/OpenAI/default"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_unsealing_returns_the_sealed_text(plain: str):
    assert unseal(KEY, seal(KEY, plain, ROW), ROW) == plain


def test_sealed_secret_does_not_contain_its_text_and_differs_each_time():
    first, second = (seal(KEY, "sk-secret", ROW) for _ in range(2))

    assert b"sk-secret" not in first
    assert first != second


def test_sealed_secret_cannot_be_opened_with_another_key():
    sealed = seal(KEY, "sk-secret", ROW)

    with pytest.raises(CannotUnseal, match="EASEL_SECRET_KEY"):
        unseal(EncryptionKey.from_secret("some other deployment's key"), sealed, ROW)


def test_a_sealed_secret_copied_to_another_row_does_not_open():
    sealed = seal(KEY, "sk-secret", ROW)

    with pytest.raises(CannotUnseal):
        unseal(KEY, sealed, "model_accounts/somebody else/OpenAI/default")


@given(st.data())
def test_a_sealed_secret_that_was_changed_does_not_open(data: st.DataObject):
    sealed = bytearray(seal(KEY, "sk-secret", ROW))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))

    with pytest.raises(CannotUnseal):
        unseal(KEY, bytes(sealed), ROW)


@given(st.binary(max_size=64))
def test_bytes_that_were_not_sealed_cannot_be_opened(noise: bytes):
    with pytest.raises(CannotUnseal):
        unseal(KEY, noise, ROW)


def test_short_encryption_secret_is_refused():
    with pytest.raises(InvalidRequest, match="16"):
        EncryptionKey.from_secret("hunter2")


def test_a_key_never_shows_in_its_repr():
    assert KEY.key.hex() not in repr(KEY)
    assert repr(KEY.key) not in repr(KEY)
