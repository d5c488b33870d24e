"""How the request of a webhook's caller becomes the payload of a run or is refused."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.webhooks import payload as webhook_payload
from api.webhooks.payload import MAX_FILES, WebhookRequest, build_payload, check_content_type, parse_body
from canvas.errors import InvalidRequest
from components.text.extraction.file_texts import UnparsedFile

BOUNDARY = "multipart/form-data; boundary=x"


def schema(section: str, required: Any = (), **types: Any) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return {section: {"type": "object", "properties": properties, "required": list(required)}}


def payload(schema: Any, *, query: Any = None, headers: Any = None, body: Any = None, **options: Any) -> dict[str, Any]:
    return build_payload(
        schema, WebhookRequest(query or {}, headers or {}, {} if body is None else body, ""), **options
    )


def refusal(schema: Any, **sent: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        payload(schema, **sent)
    return caught.value.message


def body(content_type: str, data: bytes) -> Any:
    return asyncio.run(parse_body(content_type.partition(";")[0], content_type, data))


def part(name: str, data: bytes, filename: str | None = None, kind: str = "") -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    typed = f"\r\nContent-Type: {kind}" if kind else ""
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{named}{typed}\r\n\r\n'.encode() + data + b"\r\n"


# -- content types and bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("text/plain", None),
        ("", ""),
        ("text/plain", ["application/json", "text/plain"]),
    ],
)
def test_body_of_the_expected_type_is_accepted(header: str, accepted: Any) -> None:
    assert check_content_type(header, accepted) == header.partition(";")[0].lower()


@pytest.mark.parametrize(("header", "got"), [("text/plain; a=b", "text/plain"), ("", ""), (";", "")])
def test_a_body_of_another_type_or_of_none_is_refused(header: str, got: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_content_type(header, "application/json")

    assert caught.value.message == f"Invalid Content-Type: expect 'application/json', got '{got}'"


@pytest.mark.parametrize(
    ("content_type", "data", "expected"),
    [
        ("application/json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("application/json", b"[1]", [1]),
        ("application/json", b"{", {}),
        ("application/json", b"", {}),
        ("application/json", b'{"a": NaN}', {}),
        ("application/json", b"[" * 100_000, {}),
        ("application/json", b"9" * 10_000, {}),
        ("application/json", b"\xff\xfe\xfa", {}),
        ("application/x-www-form-urlencoded", b"a=1&b=%C3%A4+c&a=2&c=", {"a": "1", "b": "ä c", "c": ""}),
        ("application/x-www-form-urlencoded", b"a=1&" * 2000, {}),
        ("text/plain", b'{"a": 1}', {"a": 1}),
        ("text/plain", b"hello", {}),
        ("", b'{"a": 1}', {"a": 1}),
    ],
)
def test_body_is_parsed_as_json_or_form_or_is_empty(content_type: str, data: bytes, expected: Any) -> None:
    assert body(content_type, data) == expected


def test_files_that_take_too_long_to_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(self: UnparsedFile) -> str:
        await asyncio.sleep(3600)
        return ""

    monkeypatch.setattr(UnparsedFile, "text", hang)
    monkeypatch.setattr(webhook_payload, "MAX_FILE_SECONDS", 0.05)

    with pytest.raises(InvalidRequest, match=r"take longer than 0.05 s to read"):
        body(BOUNDARY, part("a", b"<p>", "a.html", "text/html") + b"--x--\r\n")


def test_files_of_a_multipart_body_are_lists_of_their_texts() -> None:
    sent = (
        part("note", "grüß".encode())
        + part("doc", b"one", "a.txt", "text/plain")
        + part("doc", b"<p>two</p>", "b.html", "text/html")
        + b"--x--\r\n"
    )

    fields = body(BOUNDARY, sent)

    assert fields["note"] == "grüß"
    assert [("File: a.txt" in fields["doc"][0], "one" in fields["doc"][0])] == [(True, True)]
    assert "two" in fields["doc"][1]
    assert "<p>" not in fields["doc"][1]


def test_more_files_than_ten_are_refused() -> None:
    sent = b"".join(part("f", b"x", "a.txt") for _ in range(MAX_FILES + 1)) + b"--x--\r\n"

    with pytest.raises(InvalidRequest) as caught:
        body(BOUNDARY, sent)

    assert "Maximum number of files is 10" in caught.value.message


def test_unreadable_file_is_refused_with_its_name() -> None:
    sent = part("f", b"PK\x03\x04 broken", "a.docx") + b"--x--\r\n"

    with pytest.raises(InvalidRequest) as caught:
        body(BOUNDARY, sent)

    assert "a.docx" in caught.value.message


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(
        st.binary(max_size=20)
        | st.sampled_from([b"--x\r\n", b"--x--", b'Content-Disposition: form-data; name="a"\r\n\r\n', b"\r\n"]),
        max_size=8,
    ),
    charset=st.sampled_from(["", "; charset=utf-16", "; charset=idna", "; charset=\x00", "; charset=hex"]),
)
def test_any_bytes_become_fields_or_are_refused(parts: list[bytes], charset: str) -> None:
    with suppress(InvalidRequest):  # any other exception fails the test
        assert isinstance(body(BOUNDARY + charset, b"".join(parts)), dict)


# -- the schema -------------------------------------------------------------------------------------------------------


def test_only_declared_fields_pass_and_input_has_the_whole_request() -> None:
    declared = {
        **schema("query", n="number"),
        **schema("headers", **{"X-Id": "string"}),
        **schema("body", a="object"),
    }

    made = payload(
        declared, query={"n": "1", "m": "2"}, headers={"x-id": "7", "x-other": "8"}, body={"a": {"b": 1}, "c": 2}
    )

    assert made == {
        "query": {"n": 1},
        "headers": {"X-Id": "7"},
        "body": {"a": {"b": 1}},
        "input": {
            "query": {"n": "1", "m": "2"},
            "headers": {"x-id": "7", "x-other": "8"},
            "body": {"a": {"b": 1}, "c": 2},
            "content_type": "",
        },
    }


def test_headers_with_credentials_pass_only_where_they_are_declared() -> None:
    headers = {"authorization": "Bearer x", "x-id": "7"}

    made = payload(schema("headers", Authorization="string"), headers=headers, hidden={"authorization"})

    assert made["headers"] == {"Authorization": "Bearer x"}
    assert made["input"]["headers"] == {"x-id": "7"}
    assert "Bearer x" not in repr(WebhookRequest({}, headers, {}, ""))


@pytest.mark.parametrize("section", ["query", "headers", "body"])
def test_missing_required_field_is_refused_with_its_name(section: str) -> None:
    assert refusal(schema(section, ["k"], k="string")) == f"{section} missing required field: k"
    assert refusal(schema(section, ["k"])) == f"{section} missing required field: k"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("file", []),
        ("object", {}),
        ("boolean", False),
        ("number", 0),
        ("string", ""),
        ("array<string>", []),
        ("array", []),
        ("date", None),
        (None, None),
    ],
)
def test_an_optional_field_that_is_missing_has_the_empty_value_of_its_type(kind: Any, expected: Any) -> None:
    made = payload(schema("body", k=kind))["body"]["k"]

    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", " TRUE ", True),
        ("boolean", "1", True),
        ("boolean", "false", False),
        ("boolean", "0", False),
        ("number", "12", 12),
        ("number", " -3 ", -3),
        ("number", "1.5", 1.5),
        ("number", "1e3", 1000.0),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("array<number>", "[1, 2.5, true]", [1, 2.5, True]),
        ("array", '["a", 1]', ["a", 1]),
        ("string", " 12 ", " 12 "),
        ("date", "12", "12"),
    ],
)
def test_texts_are_cast_to_the_declared_type(kind: str, text: str, expected: Any) -> None:
    for section in ("query", "headers", "body"):
        made = payload(schema(section, k=kind), **{section: {"k": text}})[section]["k"]

        assert made == expected
        assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "yes"),
        ("boolean", ""),
        ("number", ""),
        ("number", "1,5"),
        ("number", "nan"),
        ("number", "-inf"),
        ("number", "1e999"),
        ("number", "9" * 30),
        ("number", "9" * 5000),
        ("object", "[]"),
        ("object", "{"),
        ("object", '{"a": NaN}'),
        ("object", '{"a": ' * 5000),
        ("array<string>", "{}"),
        ("array", "[" * 100_000),
        ("array", "[" * 200 + "]" * 200),
        ("array", '["\\ud800"]'),
    ],
)
def test_text_that_cannot_be_cast_is_refused(kind: str, text: str) -> None:
    refused = refusal(schema("query", k=kind), query={"k": text})

    assert refused == f"query.k auto-cast failed: Cannot convert '{text[:100]}' to {kind}"


@pytest.mark.parametrize(
    ("kind", "value", "got"),
    [
        ("string", 1, "number"),
        ("string", None, "null"),
        ("number", None, "null"),
        ("number", [], "array"),
        ("boolean", 1, "number"),
        ("object", [], "array"),
        ("array<number>", [1, "2"], "array"),
        ("array<array<string>>", [["a"], [1]], "array"),
        ("array<string>", {}, "object"),
        ("file", "text", "string"),
        ("file", True, "boolean"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, value: Any, got: str) -> None:
    assert refusal(schema("body", k=kind), body={"k": value}) == f"body.k type mismatch: expected {kind}, got {got}"


@pytest.mark.parametrize(
    ("kind", "value"),
    [("number", True), ("file", ["text"]), ("array<array<string>>", [["a"], []]), ("array", [1, {}]), ("date", {})],
)
def test_values_of_the_declared_type_pass_unchanged(kind: str, value: Any) -> None:
    assert payload(schema("body", k=kind), body={"k": value})["body"] == {"k": value}


@pytest.mark.parametrize("value", [[1], "text", 5, None])
def test_body_that_is_not_an_object_has_no_fields(value: Any) -> None:
    made = build_payload(schema("body", k="string"), WebhookRequest({}, {}, value, ""))

    assert made["body"] == {"k": ""}
    assert made["input"]["body"] == value


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", 2**70, float("inf")])
def test_value_that_cannot_be_stored_is_refused_with_its_path(value: Any) -> None:
    assert refusal({}, body={"a": [value]}).startswith("The request cannot be stored. Field body.a.0: ")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["1", "true", "[]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["string", "number", "boolean", "object", "file", "array", "array<number>", "array<array<string>>", "array<"]
)
SECTION = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from("abc"), JSON | st.fixed_dictionaries({"type": KINDS | JSON}))
        | JSON,
        "required": st.lists(st.sampled_from("abc"), max_size=1) | JSON,
    },
)
TEXTS: st.SearchStrategy[Mapping[str, str]] = st.dictionaries(st.sampled_from("abc"), st.text(max_size=6))


@settings(max_examples=30, deadline=None)
@given(
    schema=JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(("query", "headers", "body"), SECTION | JSON)),
    query=TEXTS,
    headers=TEXTS,
    body=JSON,
)
def test_any_schema_and_request_is_a_payload_or_refused(
    schema: Any, query: Mapping[str, str], headers: Mapping[str, str], body: Any
) -> None:
    with suppress(InvalidRequest):  # any other exception fails the test
        made = build_payload(schema, WebhookRequest(query, headers, body, "application/json"))
        assert list(made) == ["query", "headers", "body", "input"]
        json.dumps(made, allow_nan=False, ensure_ascii=False).encode()
