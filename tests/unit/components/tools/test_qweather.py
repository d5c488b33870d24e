"""QWeather, with recorded replies; the live vendor is not tested here."""

from typing import Any

import pytest

from components.tools.qweather import QWEATHER, QWeatherParams
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    by_model,
    by_path,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    vendor,
)

KEY = "qw-0123456789"
LOCATION = json_reply({"code": "200", "location": [{"id": "101"}, {"id": "102"}]})
NOW = json_reply({"code": "200", "now": {"temp": "21", "text": "晴"}})
DAYS = json_reply({"code": "200", "daily": [{"fxDate": "2026-05-01"}, None, {"fxDate": "2026-05-02"}]})
INDICES = json_reply(
    {
        "code": "200",
        "daily": [
            {"date": "2026-05-01", "name": "Sport", "category": "Good", "text": "Go"},
            {"date": "2026-05-01", "name": "UV", "category": "Low", "text": None},
        ],
    }
)


def run_node(data: Any, location: Any = LOCATION, **params: Any) -> tuple[str, FakeHttp]:
    """Run the node for Beijing; return its text and the HTTP client."""
    http = by_path({"city/lookup": location, "/v7/": data})
    outputs = outputs_of(QWEATHER, {"query": "Beijing", "web_apikey": KEY, "delay_after_error": 0, **params}, http)
    assert list(outputs) == ["formalized_content"]
    return outputs["formalized_content"], http


@pytest.mark.parametrize(
    ("params", "data", "text"),
    [
        ({}, NOW, '{"temp": "21", "text": "晴"}'),
        ({"type": "airquality"}, NOW, '{"temp": "21", "text": "晴"}'),
        ({"time_period": "3d"}, DAYS, '{"fxDate": "2026-05-01"}\n{"fxDate": "2026-05-02"}'),
        ({"time_period": "7d"}, json_reply({"code": "200", "daily": []}), ""),
        ({"type": "indices"}, INDICES, "2026-05-01\nSport: Good, Go\nUV: Low, "),
        ({"type": "indices"}, json_reply({"code": 200, "daily": None}), ""),
    ],
)
def test_data_of_the_location_is_the_text(params: dict[str, Any], data: Any, text: str):
    assert run_node(data, **params)[0] == text


@pytest.mark.parametrize(
    ("params", "url", "more"),
    [
        ({}, "https://devapi.qweather.com/v7/weather/now", {}),
        ({"user_type": "paid"}, "https://api.qweather.com/v7/weather/now", {}),
        ({"time_period": "30d", "user_type": "paid"}, "https://api.qweather.com/v7/weather/30d", {}),
        ({"type": "indices", "time_period": "3d"}, "https://devapi.qweather.com/v7/indices/1d", {"type": 0}),
        ({"type": "airquality"}, "https://devapi.qweather.com/v7/air/now", {}),
    ],
)
def test_location_is_looked_up_before_its_data_is_requested(params: dict[str, Any], url: str, more: dict[str, Any]):
    _, http = run_node(by_path_of(url), lang="en", **params)

    lookup, data = http.calls
    assert lookup.url == "https://geoapi.qweather.com/v2/city/lookup"
    assert lookup.params == {"location": "Beijing", "key": KEY}
    assert data.url == url
    assert data.params == {"location": "101", "lang": "en", "key": KEY, **more}


def by_path_of(url: str) -> Any:
    return NOW if url.endswith("now") else DAYS


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("abc.qweatherapi.com", "https://abc.qweatherapi.com"),
        (" https://abc.qweatherapi.com:444/ ", "https://abc.qweatherapi.com:444"),
    ],
)
def test_own_api_host_is_checked_and_gets_the_key_in_a_header(host: str, base: str):
    _, http = run_node(NOW, api_host=host)

    assert [call.url for call in http.calls] == [f"{base}/geo/v2/city/lookup", f"{base}/v7/weather/now"]
    assert [call.trusted for call in http.calls] == [False, False]
    assert all(call.headers == {"X-QW-Api-Key": KEY} and "key" not in dict(call.params or {}) for call in http.calls)


def test_jwt_is_sent_as_bearer_token():
    _, http = run_node(NOW, api_host="abc.qweatherapi.com", web_apikey="eyJhbGciOi.eyJzdWIi.c2ln")

    assert http.calls[0].headers == {"Authorization": "Bearer eyJhbGciOi.eyJzdWIi.c2ln"}


@pytest.mark.parametrize(
    "host", ["ftp://a.test", "https://a.test/v7", "a.test?x=1", "u:p@a.test", "https://", "http://["]
)
def test_invalid_api_host_is_refused_when_the_canvas_is_loaded(host: str):
    with pytest.raises(ValueError, match="QWeather API host should be a host alone"):
        QWeatherParams(api_host=host)


def test_refused_api_host_is_not_retried():
    http = FakeHttp(refusing)

    error = error_of(QWEATHER, {"query": "Beijing", "api_host": "inner.test", "max_retries": 3}, http)

    assert "non-public address" in error
    assert len(http.calls) == 1


@pytest.mark.parametrize("code", ["204", "400", "401", "402", "403", "404", "429", "500"])
def test_error_code_becomes_the_text_and_not_a_failure(code: str):
    text, http = run_node(NOW, location=json_reply({"code": code}))

    assert text.startswith("**Error** ")
    assert code not in text
    assert len(http.calls) == 1


def test_unknown_error_code_is_shown():
    assert run_node(json_reply({"code": "999"}))[0] == "**Error** QWeather API returned code 999."


def test_error_code_in_the_body_is_used_with_any_status():
    assert run_node(json_reply({"code": "401"}, 401))[0].startswith("**Error** ")


def test_model_gets_the_meaning_of_the_error_code():
    done = by_model(QWEATHER, {}, {"query": "Beijing"}, vendor(json_reply({"code": "402"})))

    assert (done.answer, done.error) == (done.outputs["formalized_content"], None)
    assert done.answer.startswith("**Error** ")


@pytest.mark.parametrize(
    ("location", "data", "error"),
    [
        (json_reply({"code": "200", "location": []}), NOW, "QWeather does not know this place."),
        (json_reply({"code": "200", "location": [{"id": {}}]}), NOW, "QWeather does not know this place."),
        (
            json_reply({"code": "200", "location": {}}),
            NOW,
            'The answer\'s "location" is not a list: it is of type dict.',
        ),
        (LOCATION, json_reply({"code": "200", "now": []}), 'The answer has no "now".'),
        (LOCATION, json_reply({}), 'The answer has no "code".'),
        (LOCATION, json_reply({"code": []}), 'The answer has no "code".'),
        (LOCATION, reply("<html>"), "The answer is not valid JSON: <html>"),
        (LOCATION, json_reply([1]), "The answer is not a JSON object: it is of type list."),
        (reply("no", 403), NOW, "HTTP 403: no"),
        (json_reply({"code": "200"}, 403), NOW, 'HTTP 403: {"code": "200"}'),
        (json_reply({"error": {"status": 400, "detail": "No such place."}}, 400), NOW, "HTTP 400: No such place."),
        (json_reply({"error": {"title": "Unauthorized"}}, 401), NOW, "HTTP 401: Unauthorized"),
        (json_reply({"error": "odd"}, 401), NOW, 'HTTP 401: {"error": "odd"}'),
    ],
)
def test_unreadable_answer_is_an_error(location: Any, data: Any, error: str):
    http = by_path({"city/lookup": location, "/v7/": data})

    assert error_of(QWEATHER, {"query": "Beijing", "max_retries": 2, "delay_after_error": 0}, http) == error
    assert len(http.calls) <= 2


def test_rate_limited_request_with_an_error_code_is_retried():
    http = vendor(json_reply({"code": "429"}, 429), LOCATION, NOW)

    outputs_of(QWEATHER, {"query": "Beijing", "max_retries": 1, "delay_after_error": 0}, http)

    assert len(http.calls) == 3


@pytest.mark.parametrize(("code", "meaning"), [("429", "more often in a minute"), ("500", "failed, or did not answer")])
def test_rate_limit_after_all_retries_becomes_the_meaning_of_its_code(code: str, meaning: str):
    http = vendor(json_reply({"code": code}, int(code)))

    outputs = outputs_of(QWEATHER, {"query": "Beijing", "max_retries": 2, "delay_after_error": 0}, http)
    by_a_model = by_model(QWEATHER, {}, {"query": "Beijing"}, http)

    assert list(outputs) == ["formalized_content"]
    assert outputs["formalized_content"].startswith("**Error** ")
    assert meaning in outputs["formalized_content"]
    assert (by_a_model.answer, by_a_model.error) == (outputs["formalized_content"], None)
    assert len(http.calls) == 3 + 1


@pytest.mark.parametrize("query", ["", " ", None])
def test_empty_location_sends_no_request(query: Any):
    assert outputs_of(QWEATHER, {"query": query}, FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize(
    ("field", "value"),
    [("lang", "xx"), ("type", "tides"), ("user_type", "rich"), ("time_period", "1d"), ("lang", "")],
)
def test_unknown_option_is_refused_when_the_canvas_is_loaded(field: str, value: Any):
    with pytest.raises(ValueError, match="is not supported, it should be in"):
        QWeatherParams.model_validate({field: value})
