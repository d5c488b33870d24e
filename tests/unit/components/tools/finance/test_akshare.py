"""AkShare, with replies in the form of the vendor's search."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from components.tools.finance.akshare import AKSHARE
from providers.interfaces import HttpResponse
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, outputs_of, refusing, reply, unreachable, vendor

ROW = {
    "title": "(<em>Acme</em>) grows",
    "content": "Up\u3000 4%\r\nagain, <em>Acme</em>",
    "date": "2026-05-02 09:00:00",
    "mediaName": "Sina",
    "code": "2026050201",
}
ARTICLE_TEXT = (
    '<a href="http://finance.eastmoney.com/a/2026050201.html">Acme grows</a>\n 新闻内容: Up 4% again, Acme'
    " \n发布时间:2026-05-02 09:00:00 \n文章来源: Sina"
)


def node(**params: Any) -> dict[str, Any]:
    return {"query": "600519", "delay_after_error": 0, **params}


def jsonp(body: Any) -> HttpResponse:
    return reply(f"easel({json.dumps(body)});")


def articles(*rows: Any) -> HttpResponse:
    return jsonp({"code": 0, "result": {"cmsArticleWebOld": list(rows)}})


def test_articles_are_shown_with_their_links_and_without_marks():
    outputs = outputs_of(AKSHARE, node(), vendor(articles(ROW, {**ROW, "title": None, "code": 7})))

    first, second = outputs["formalized_content"].split("\n\n")
    assert first == ARTICLE_TEXT
    assert second.startswith('<a href="http://finance.eastmoney.com/a/7.html"></a>')
    assert outputs["json"][0] == {**ROW, "title": "Acme grows", "content": "Up 4% again, Acme"}


def test_request_is_that_of_the_vendors_own_page():
    http = vendor(articles())

    outputs_of(AKSHARE, node(query=" 贵州 ", top_n="3"), http)

    [call] = http.calls
    assert isinstance(call.params, Mapping)
    search = json.loads(call.params["param"])
    assert (call.method, call.url) == ("GET", "https://search-api-web.eastmoney.com/search/jsonp")
    assert (search["keyword"], search["type"]) == ("贵州", ["cmsArticleWebOld"])
    assert search["param"]["cmsArticleWebOld"]["pageSize"] == 3
    assert call.headers["Referer"] == f"https://so.eastmoney.com/news/s?keyword={quote('贵州')}"
    assert isinstance(call.params["_"], int)


def test_articles_beyond_top_n_are_dropped():
    assert len(outputs_of(AKSHARE, node(top_n=2), vendor(articles(ROW, ROW, ROW)))["json"]) == 2


@pytest.mark.parametrize("body", [{"code": 0, "result": {"cmsArticleWebOld": []}}, {"result": {}}, {"result": None}])
def test_empty_result_is_an_empty_text(body: Any):
    assert outputs_of(AKSHARE, node(), vendor(jsonp(body))) == {"formalized_content": "", "json": []}


def test_empty_code_sends_no_request():
    assert outputs_of(AKSHARE, node(query=" "), FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply("<html>(no)</html>"), "The answer is not valid JSONP: <html>(no)</html>"),
        (reply("easel(<html>)"), "The answer is not valid JSON: <html>"),
        (reply("easel([1])"), "The answer is not a JSON object: it is of type list."),
        (jsonp({"code": 500, "msg": "overloaded"}), "overloaded"),
        (jsonp({"code": 500}), "The vendor returned code 500."),
        (jsonp({"result": [1]}), 'The answer\'s "result" is not an object: it is of type list.'),
        (
            jsonp({"result": {"cmsArticleWebOld": {}}}),
            'The answer\'s "cmsArticleWebOld" is not a list: it is of type dict.',
        ),
        (reply("no", 403), "HTTP 403: no"),
    ],
)
def test_invalid_answer_is_an_error(answer: HttpResponse, error: str):
    assert error_of(AKSHARE, node(), vendor(answer)) == error


def test_rate_limited_request_is_retried_after_the_vendors_delay():
    http = vendor(reply("slow", 429, retry_after="0"), articles(ROW))

    assert outputs_of(AKSHARE, node(max_retries="1"), http)["formalized_content"] == ARTICLE_TEXT


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(AKSHARE, node(), FakeHttp(refusing))
    assert "12 s" in error_of(AKSHARE, node(), FakeHttp(unreachable))


def test_model_gets_the_articles_or_the_error():
    assert by_model(AKSHARE, {}, {"query": "600519"}, vendor(articles(ROW))).answer == ARTICLE_TEXT
    assert by_model(AKSHARE, {}, {"query": "1"}, vendor(reply("no", 403))).answer == "AkShare error: HTTP 403: no"
