"""What every route has: request ids, limits of tokens, other origins, parts of files."""

from collections.abc import Iterator

import httpx2
import pytest

from api.http.edge import ALLOWED_HEADERS, EXPOSED_HEADERS
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, Client, eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
PAGE = "https://shop.example"


# -- request ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"X-Request-Id": "order-4711"}, "order-4711"),
        ({"traceparent": TRACEPARENT}, TRACE),
        ({"X-Request-Id": "mine", "traceparent": TRACEPARENT}, "mine"),
    ],
)
def test_reply_repeats_the_id_of_its_request(workerless_client: Client, sent: dict[str, str], expected: str) -> None:
    reply = workerless_client.http.get("/api/v1/agents", headers=sent)

    assert reply.headers["x-request-id"] == expected
    assert reply.headers.get("traceparent") == sent.get("traceparent")


@pytest.mark.parametrize(
    "sent",
    [
        {"X-Request-Id": "a b"},
        {"X-Request-Id": "x" * 129},
        {"X-Request-Id": ""},
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
        {"traceparent": "nonsense"},
    ],
)
def test_invalid_id_is_replaced(workerless_client: Client, sent: dict[str, str]) -> None:
    first, second = (workerless_client.http.get("/api/v1/nothing", headers=sent) for _ in range(2))

    ids = {reply.headers["x-request-id"] for reply in (first, second)}
    assert len(ids) == 2
    assert all(len(found) == 32 for found in ids)
    assert "traceparent" not in first.headers


def test_internal_error_names_the_id_of_its_request(workerless_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("api.agents.tags.canvas_list.tags_in_use", fail)

    reply = workerless_client.http.get("/api/v1/agents/tags", headers={"X-Request-Id": "order-4711"}, timeout=60)

    assert "order-4711" in reply.json()["message"]


# -- other origins ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_server(workerless_server: Server) -> Iterator[Server]:
    """A server that pages of another origin may call."""
    with start_server(with_settings(workerless_server.config, cors_origins=PAGE)) as server:
        yield server


def preflight(client: Client, path: str, origin: str) -> httpx2.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return client.http.options(path, headers={**headers, "Access-Control-Request-Headers": ", ".join(ALLOWED_HEADERS)})


def test_page_of_an_allowed_origin_may_call_the_api(open_server: Server) -> None:
    client = open_server.client()

    asked = preflight(client, "/api/v1/agents", PAGE)
    reply = client.http.get("/api/v1/agents", headers={"Origin": PAGE})
    refused = client.http.get("/api/v1/agents", headers={"Origin": PAGE, "Authorization": "Bearer easel_nobody"})

    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert set(reply.headers["access-control-expose-headers"].split(", ")) == set(EXPOSED_HEADERS)
    assert "access-control-allow-credentials" not in reply.headers
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize(("path", "origin"), [("/api/v1/agents", "https://evil.example"), ("/runs", PAGE)])
def test_other_origins_and_pages_are_not_opened(open_server: Server, path: str, origin: str) -> None:
    client = open_server.client()

    assert "access-control-allow-origin" not in preflight(client, path, origin).headers
    assert "access-control-allow-origin" not in client.http.get(path, headers={"Origin": origin}).headers


def test_no_origin_is_allowed_by_default(workerless_client: Client) -> None:
    assert preflight(workerless_client, "/api/v1/agents", PAGE).status_code == 405


# -- limits -----------------------------------------------------------------------------------------------------------


def test_requests_above_the_limit_of_a_token_are_refused(workerless_server: Server) -> None:
    with start_server(with_settings(workerless_server.config, rate_limit=5)) as server:
        busy, other = server.client(), server.client()
        replies = [busy.http.get("/api/v1/runs") for _ in range(6)]
        ragflow = busy.http.get("/api/v1/agents")

        assert [reply.status_code for reply in replies] == [200] * 5 + [429]
        assert [int(reply.headers["ratelimit-remaining"]) for reply in replies] == [4, 3, 2, 1, 0, 0]
        last = replies[-1]
        assert last.json()["code"] == "too_many_requests"
        assert 1 <= int(last.headers["retry-after"]) <= 60
        assert (last.headers["ratelimit-limit"], ragflow.status_code) == ("5", 429)
        assert other.http.get("/api/v1/runs").status_code == 200


def test_streams_above_the_limit_of_a_token_are_refused_and_start_nothing(workerless_server: Server) -> None:
    with start_server(with_settings(workerless_server.config, streams_per_token=1)) as server:
        client, other = server.client(), server.client()
        agent = client.agent(ECHO)
        run = client.start(agent)["run_id"]
        events = f"/api/v1/runs/{run}/events"
        stream = {"Accept": "text/event-stream"}
        with client.http.stream("GET", events, headers=stream) as first:
            assert first.status_code == 200
            for path in (events, f"/api/v1/runs/{run}/live"):
                assert client.http.get(path, headers=stream).status_code == 429
            body = {"agent_id": agent, "query": "x", "stream": True}
            refused = client.http.post("/api/v1/agents/chat/completions", json=body)
            assert refused.status_code == 429
            assert "open streams" in refused.json()["message"]
            openai = client.http.post(
                "/api/v1/openai/chat/completions",
                json={"model": agent, "stream": True, "messages": [{"role": "user", "content": "x"}]},
            )
            assert (openai.status_code, openai.json()["error"]["code"]) == (429, "too_many_requests")
            assert other.http.get("/api/v1/agents").status_code == 200
        assert client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 1

        def open_again() -> int:
            with client.http.stream("GET", events, headers=stream) as again:
                return again.status_code

        assert eventually(open_again, lambda status: status == 200) == 200


# -- parts of files ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file_path(workerless_server: Server) -> tuple[Client, str]:
    client = workerless_server.client()
    agent = client.agent(ECHO)
    stored = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"0123456789")}).json()["data"]
    return client, f"/api/v1/agents/download?id={stored['id']}"


@pytest.mark.parametrize(
    ("asked", "status", "content", "named"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=0-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=5-2", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
    ],
)
def test_part_of_a_file_is_sent(
    file_path: tuple[Client, str], asked: str, status: int, content: bytes, named: str | None
) -> None:
    client, path = file_path

    reply = client.http.get(path, headers={"Range": asked})

    assert (reply.status_code, reply.content, reply.headers.get("content-range")) == (status, content, named)


def test_file_that_the_client_has_is_not_sent_again(file_path: tuple[Client, str]) -> None:
    client, path = file_path
    whole = client.http.get(path)

    again = client.http.get(path, headers={"If-None-Match": whole.headers["etag"]})
    part = client.http.get(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'})

    assert whole.headers["accept-ranges"] == "bytes"
    assert (again.status_code, again.content) == (304, b"")
    assert (part.status_code, part.content) == (200, b"0123456789")


# -- MCP --------------------------------------------------------------------------------------------------------------


def test_mcp_client_without_a_token_finds_out_how_to_sign_in(workerless_client: Client) -> None:
    refused = workerless_client.http.post("/mcp", json={}, headers={"Authorization": ""})
    challenge = refused.headers["www-authenticate"]
    address = challenge.partition('resource_metadata="')[2].rstrip('"')

    described = workerless_client.http.get(address).json()

    assert refused.status_code == 401
    assert described["resource"].endswith("/mcp")
    assert described["bearer_methods_supported"] == ["header"]
