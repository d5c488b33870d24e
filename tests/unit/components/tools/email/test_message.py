"""Email messages: their recipients and headers, and protection against header injection."""

from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import ToolError
from components.tools.email.message import OutgoingEmail, encode_message, parse_address, parse_addresses, parse_names

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MESSAGE = OutgoingEmail("me@example.com", "Ann", ["a@x.test"], ["c@x.test"], "Hello", "<p>Hi</p>", "activation-1")
HEADERS = ["MIME-Version", "From", "To", "Cc", "Subject", "Date", "Message-ID", "Content-Type"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a@x.test; b@x.test", ["a@x.test", "b@x.test"]),
        ("a@x.test,\r\n A@X.test\nb@x.test,,", ["a@x.test", "b@x.test"]),
        (["a@x.test", None, "b@x.test, c@x.test"], ["a@x.test", "b@x.test", "c@x.test"]),
        ('"Lee, Ann" <ann@x.test>; Bob <bob@x.test>', ["ann@x.test", "bob@x.test"]),
        ("ann+news@bücher.test", ["ann+news@xn--bcher-kva.test"]),
        ("me@localhost", ["me@localhost"]),
        (" ;,\n", []),
        (None, []),
    ],
)
def test_recipients_are_split_and_deduplicated(value: Any, found: list[str]):
    assert parse_addresses(value) == found


def test_recipient_in_to_is_removed_from_cc():
    assert parse_addresses("c@x.test, a@x.test", exclude=["A@x.test"]) == ["c@x.test"]


@pytest.mark.parametrize(
    "text",
    [
        "ann", "@x.test", "ann@", "a b@x.test", "a@b@x.test", "a@x..test", "a@-x.test", "a@x.test>", "<a@x.test",
        '"a"@x.test', "ä@x.test", "a@[10.0.0.1]", f"{'a' * 65}@x.test", f"a@{'x' * 64}.test", "a@x.test SIZE=1", "\0@x",
        "Ann <a@x.test> b@x.test", 7, {"a": 1}, "a@\ud800",
    ],
)  # fmt: skip
def test_invalid_address_is_an_error_before_connecting(text: Any):
    with pytest.raises(ToolError, match="Invalid email address: "):
        parse_addresses(text)


def test_message_has_sender_recipient_and_subject_headers():
    raw = encode_message(MESSAGE, NOON)
    message = message_from_bytes(raw, policy=policy.default)

    assert message.keys() == HEADERS
    assert (message["From"], message["To"], message["Cc"]) == ("Ann <me@example.com>", "a@x.test", "c@x.test")
    assert (message["Subject"], message["Date"]) == ("Hello", "Fri, 02 Jan 2026 12:00:00 +0000")
    assert message.get_content_type() == "multipart/alternative"
    [part] = message.iter_parts()
    assert (part.get_content_type(), part.get_content_charset()) == ("text/html", "utf-8")
    assert part.get_payload(decode=True) == b"<p>Hi</p>\r\n"


def test_recipients_are_addressed_by_their_names():
    recipients = ['"Lee, Ann" <ann@x.test>; Jörg <joerg@x.test>', "bob@x.test, Robert <bob@x.test>"]
    names = parse_names(recipients)

    addressed = replace(
        MESSAGE, to=parse_addresses(recipients), cc=["cy@x.test"], names=names | {"cy@x.test": "Cy\r\nBcc: x"}
    )
    message = message_from_bytes(encode_message(addressed, NOON), policy=policy.default)

    assert names == {"ann@x.test": "Lee, Ann", "joerg@x.test": "Jörg", "bob@x.test": "Robert"}
    assert [(to.display_name, to.addr_spec) for to in message["To"].addresses] == [
        ("Lee, Ann", "ann@x.test"),
        ("Jörg", "joerg@x.test"),
        ("Robert", "bob@x.test"),
    ]
    assert [to.addr_spec for to in message["Cc"].addresses] == ["cy@x.test"]
    assert message.keys() == HEADERS


def test_message_without_subject_and_content_has_placeholders():
    message = message_from_bytes(
        encode_message(replace(MESSAGE, subject=" \r\n", html="", cc=[]), NOON), policy=policy.default
    )

    assert (message["Subject"], message["Cc"]) == ("No Subject", None)
    [part] = message.iter_parts()
    assert part.get_payload(decode=True) == b"No content provided\r\n"


def test_encoded_word_in_the_input_is_not_decoded():
    tricky = "=?utf-8?q?Bcc=3A_x?="
    message = message_from_bytes(
        encode_message(replace(MESSAGE, subject=tricky, sender_name=tricky), NOON), policy=policy.default
    )

    assert message["Subject"] == "= ?utf-8?q?Bcc=3A_x?="
    assert message["From"].addresses[0].display_name == "= ?utf-8?q?Bcc=3A_x?="


def test_message_id_follows_from_the_activation():
    again, other = replace(MESSAGE, subject="again"), replace(MESSAGE, key="activation-2")

    assert MESSAGE.message_id == again.message_id != other.message_id
    assert MESSAGE.message_id.endswith("@example.com>")
    assert encode_message(MESSAGE, NOON) == encode_message(MESSAGE, NOON)


TRICKY = st.text(st.sampled_from('\r\n\0\x85\u2028 \t:;<>@,"\\=?utf8qBcé\ud800😀'), max_size=60) | st.text(max_size=200)
"""Texts of characters that have a meaning in headers, encoded words and lines."""


@settings(max_examples=50, deadline=None)
@given(subject=TRICKY, name=TRICKY, html=TRICKY)
def test_input_cannot_inject_headers_or_recipients(subject: str, name: str, html: str):
    raw = encode_message(replace(MESSAGE, subject=subject, sender_name=name, html=html), NOON)
    head, _, _ = raw.partition(b"\r\n\r\n")
    message = message_from_bytes(raw)

    assert raw.isascii()
    assert not set(b"\r\n") & set(raw.replace(b"\r\n", b""))
    assert all(len(line) <= 998 for line in raw.split(b"\r\n"))
    assert message.keys() == HEADERS
    assert [line.split(b":")[0].decode() for line in head.split(b"\r\n") if line[:1] not in (b" ", b"\t")] == HEADERS
    assert (message["To"], message["Cc"]) == ("a@x.test", "c@x.test")
    assert message["From"].endswith("me@example.com>") or message["From"] == "me@example.com"
    assert not {"\r", "\n"} & set(str(make_header(decode_header(message["Subject"].replace("\r\n", "")))))


@settings(max_examples=40, deadline=None)
@given(TRICKY)
def test_address_with_control_characters_is_refused(text: str):
    try:
        address = parse_address(text)
    except ToolError:
        return
    assert address.isascii()
    assert not set(' \r\n\0<>",;') & set(address)


@settings(max_examples=25, deadline=None)
@given(
    st.text(max_size=80).filter(
        lambda text: text.isprintable() and text == " ".join(text.split()) and "=?" not in text  # an encoded word
    )
)
def test_subject_is_unchanged_after_encoding(subject: str):
    message = message_from_bytes(encode_message(replace(MESSAGE, subject=subject), NOON))

    decoded = str(make_header(decode_header(message["Subject"].replace("\r\n", ""))))
    assert decoded == (subject or "No Subject")


def test_a_model_may_write_a_list_of_addresses_as_json():
    assert parse_addresses('["Ann <a@x.test>", "b@x.test"]') == ["a@x.test", "b@x.test"]
