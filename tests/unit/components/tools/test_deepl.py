"""DeepL, with recorded replies."""

from typing import Any

import pytest

from components.tools.deepl import DEEPL
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    by_model,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

KEY = "01234567-89ab"
HELLO = json_reply({"translations": [{"detected_source_language": "ZH", "text": "Hello"}]})


def node(**params: Any) -> dict[str, Any]:
    return {"query": "你好", "auth_key": KEY, "delay_after_error": 0, **params}


def test_a_text_is_translated():
    assert outputs_of(DEEPL, node(), vendor(HELLO)) == {"formalized_content": "Hello"}


def test_auto_source_language_is_left_to_the_vendor():
    automatic, explicit = vendor(HELLO), vendor(HELLO)

    outputs_of(DEEPL, node(source_lang="auto"), automatic)
    outputs_of(DEEPL, node(), explicit)

    assert automatic.calls[0].json == {"text": ["你好"], "target_lang": "EN-GB"}
    assert explicit.calls[0].json["source_lang"] == "ZH"


@pytest.mark.parametrize(("key", "host"), [(KEY, "api.deepl.com"), (f"{KEY}:fx", "api-free.deepl.com")])
def test_key_suffix_selects_the_service(key: str, host: str):
    http = vendor(HELLO)

    outputs_of(DEEPL, node(auth_key=key, target_lang="DE"), http)

    call = http.calls[0]
    assert (call.method, call.url) == ("POST", f"https://{host}/v2/translate")
    assert call.headers == {"Authorization": f"DeepL-Auth-Key {key}"}
    assert call.json == {"text": ["你好"], "source_lang": "ZH", "target_lang": "DE"}


@pytest.mark.parametrize(
    ("answer", "error", "tries"),
    [
        (reply(f"wrong key {KEY}", 403), "DeepL error: HTTP 403: wrong key [REDACTED]", 1),
        (reply("quota", 456), "DeepL error: HTTP 456: quota", 1),
        (reply("slow", 429), "DeepL error: HTTP 429: slow", 3),
        (reply("<html>"), "DeepL error: The answer is not valid JSON: <html>", 1),
        (json_reply({"translations": []}), "DeepL error: the answer has no translation", 1),
    ],
)
def test_transient_error_is_retried_twice_and_others_are_not(answer: Any, error: str, tries: int):
    http = vendor(answer)

    assert error_of(DEEPL, node(max_retries=0), http) == error
    assert len(http.calls) == tries


def test_error_for_a_model_has_the_vendors_label_once():
    assert by_model(DEEPL, {}, {"query": "q"}, vendor(reply("no", 403))).answer == "DeepL error: HTTP 403: no"


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(DEEPL, node(), FakeHttp(refusing))
    assert "12 s" in error_of(DEEPL, node(), FakeHttp(unreachable))


def test_empty_text_sends_no_request():
    assert outputs_of(DEEPL, node(query=""), FakeHttp(no_network)) == {"formalized_content": ""}
