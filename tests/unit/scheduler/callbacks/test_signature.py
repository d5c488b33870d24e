"""Signatures of callbacks."""

from datetime import UTC, datetime
from uuid import UUID

from scheduler.callbacks.signature import signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_signature_is_the_hmac_that_openssl_computes_of_id_time_and_body() -> None:
    at = datetime.fromtimestamp(1614265330, UTC)

    headers = signed_headers(UUID(int=1), at, b'{"test": 2432232314}', [SECRET])

    assert headers["webhook-id"] == "msg_00000000000000000000000000000001"
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"] == "v1,NyW9oZPSHg5mmO2Gb2gaur+Lsb+byJZMKU/F0Cn6ZkA="


def test_each_secret_signs_and_signatures_are_separated_by_blanks() -> None:
    at = datetime.fromtimestamp(1614265330, UTC)
    other = "whsec_" + "QUJD" * 8

    both = signed_headers(UUID(int=1), at, b"{}", [SECRET, other])["webhook-signature"].split(" ")

    assert both == [signed_headers(UUID(int=1), at, b"{}", [each])["webhook-signature"] for each in (SECRET, other)]
