"""The fake servers and data that a case is played with."""

import asyncio
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from canvas.errors import ToolError
from cli.conformance.cases import HttpRoute
from cli.conformance.play.fixtures import HttpFixture, SqliteDatabases, find_chunks, find_results


def call(
    server: HttpFixture, method: str, target: str, body: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(server.base).netloc, timeout=5)
    connection.request(method, target, body, headers or {})
    reply = connection.getresponse()
    answer = reply.status, reply.read().decode(), dict(reply.getheaders())
    connection.close()
    return answer


def test_first_matching_route_answers_until_its_uses_are_exhausted():
    routes = [HttpRoute(path="/a", times=1, body="one"), HttpRoute(path="/a", method="get", status=500, body="two")]

    with HttpFixture(routes) as server:
        answers = [call(server, method, "/a?x=1")[:2] for method in ("GET", "GET", "POST")]

    assert answers == [(200, "one"), (500, "two"), (404, "no route")]
    assert server.calls == [("GET", "/a?x=1"), ("GET", "/a?x=1"), ("POST", "/a?x=1")]


def test_a_route_sets_headers_and_content_type():
    route = HttpRoute(path="/r", status=302, headers={"Location": "/a"}, content_type="text/html", body="moved")

    with HttpFixture([route]) as server:
        status, body, headers = call(server, "GET", "/r")

    assert (status, body, headers["Location"], headers["Content-Type"]) == (302, "moved", "/a", "text/html")


def test_closed_connection_gives_no_reply_and_is_recorded():
    with HttpFixture([HttpRoute(path="/c", close=True)]) as server:
        with pytest.raises(http.client.HTTPException):
            call(server, "GET", "/c")

        assert server.calls == [("GET", "/c")]


def test_fixture_exit_does_not_wait_for_a_delayed_answer():
    with HttpFixture([HttpRoute(path="/slow", delay_ms=600_000)]) as server:
        connection = http.client.HTTPConnection(urlsplit(server.base).netloc, timeout=60)
        connection.request("GET", "/slow")
        began = time.monotonic()
        while not server.calls:
            assert time.monotonic() - began < 60
            time.sleep(0.001)

    assert time.monotonic() - began < 300
    connection.close()


@pytest.mark.parametrize(
    ("content_type", "sent", "shown"),
    [
        ("application/json", '{"a": "q"}', {"json": {"a": "q"}}),
        ("application/json; charset=utf-8", "no json", {"body": "no json"}),
        ("application/x-www-form-urlencoded", "b=x+y%26z&a=", {"form": [["a", ""], ["b", "x y&z"]]}),
        ("text/plain", "text", {"body": "text"}),
    ],
)
def test_echo_route_describes_the_request(content_type: str, sent: str, shown: dict[str, Any]):
    route = HttpRoute(path="/echo", echo=True, echo_headers=["X-Token", "Authorization"])

    with HttpFixture([route]) as server:
        headers = {"Content-Type": content_type, "X-Token": "t"}
        _, reply, _ = call(server, "PUT", "/echo?q=b&q=a", sent, headers)

    described = {"content_type": content_type, "headers": {"Authorization": None, "X-Token": "t"}, "method": "PUT"}
    expected = {**described, "path": "/echo", "query": [["q", "a"], ["q", "b"]], **shown}
    assert reply == json.dumps(expected, sort_keys=True)


def test_echo_route_describes_a_request_without_a_body():
    with HttpFixture([HttpRoute(path="/echo", echo=True)]) as server:
        _, reply, _ = call(server, "GET", "/echo")

    assert reply == '{"body": "", "content_type": "", "headers": {}, "method": "GET", "path": "/echo", "query": []}'


def test_dataset_search_returns_the_chunks_of_the_first_matching_entry():
    tea = {"docnm_kwd": "tea.txt", "doc_id": "d1"}
    mint = {"docnm_kwd": "mint.txt", "doc_id": "d2"}
    entries = [{"contains": "tea", "chunks": [mint, tea, tea]}, {"contains": "", "chunks": [mint]}]

    assert find_chunks(entries, "green tea")["doc_aggs"] == [
        {"doc_name": "tea.txt", "doc_id": "d1", "count": 2},
        {"doc_name": "mint.txt", "doc_id": "d2", "count": 1},
    ]
    assert find_chunks(entries, "coffee")["chunks"] == [mint]
    assert find_chunks(entries[:1], "coffee") == {"chunks": [], "doc_aggs": []}


def test_web_search_fills_in_missing_fields_of_a_result():
    entries = [{"contains": "broken", "error": "no quota"}, {"contains": "tea", "results": [{"url": "u", "score": 1}]}]

    assert find_results(entries, "tea") == [{"url": "u", "score": 1, "raw_content": None}]
    assert find_results(entries, "coffee") == []
    with pytest.raises(ToolError, match="no quota"):
        find_results(entries, "broken")


def test_every_session_gets_a_fresh_database():
    statements = ["CREATE TABLE items(name TEXT)", "INSERT INTO items VALUES ('apple')"]

    async def twice() -> list[list[Any]]:
        seen: list[list[Any]] = []
        for _ in range(2):
            async with SqliteDatabases(statements).connect({}) as session:
                seen.append(list((await session.execute("SELECT * FROM items", 10)).rows))
                await session.execute("DELETE FROM items", 0)
        return seen

    assert asyncio.run(twice()) == [[("apple",)], [("apple",)]]
