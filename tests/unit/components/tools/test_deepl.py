"""DeepL, by recorded shapes."""

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


def test_the_vendor_finds_the_language_out_where_the_author_says_auto():
    http, told = vendor(HELLO), vendor(HELLO)

    outputs_of(DEEPL, node(source_lang="auto"), http)
    outputs_of(DEEPL, node(), told)

    assert http.calls[0].json == {"text": ["你好"], "target_lang": "EN-GB"}
    assert told.calls[0].json["source_lang"] == "ZH"


@pytest.mark.parametrize(("key", "host"), [(KEY, "api.deepl.com"), (f"{KEY}:fx", "api-free.deepl.com")])
def test_the_key_tells_which_service_it_is_for(key: str, host: str):
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
def test_what_may_pass_is_tried_twice_more_and_the_rest_is_not(answer: Any, error: str, tries: int):
    http = vendor(answer)

    assert error_of(DEEPL, node(max_retries=0), http) == error
    assert len(http.calls) == tries


def test_a_model_reads_the_name_of_the_vendor_once():
    assert by_model(DEEPL, {}, {"query": "q"}, vendor(reply("no", 403))).answer == "DeepL error: HTTP 403: no"


def test_trouble_on_the_way_is_an_error():
    assert "non-public" in error_of(DEEPL, node(), FakeHttp(refusing))
    assert "12 s" in error_of(DEEPL, node(), FakeHttp(unreachable))


def test_without_a_text_nobody_is_asked():
    assert outputs_of(DEEPL, node(query=""), FakeHttp(no_network)) == {"formalized_content": ""}
