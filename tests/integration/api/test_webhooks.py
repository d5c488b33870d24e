"""Webhook calls: authentication, the inputs of the run, the reply, rate limits, and tests by the owner."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from uuid import UUID

import httpx2
import jwt
import pytest
import redis
from structlog.testing import capture_logs

from api.requests.token_bucket import BucketsUnavailable, TokenBuckets
from store.agents.canvas_secrets import CanvasSecrets
from store.primitives.encryption import CannotUnseal
from store.primitives.ids import new_id
from tests.attacks.files import evasive_html
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, canvas, eventually

NO_AUTHENTICATION = {"auth_type": "none", "allow_anonymous": True}
SCHEMA = {
    "query": {"type": "object", "properties": {"n": {"type": "number"}}, "required": []},
    "headers": {"type": "object", "properties": {"X-Id": {"type": "string"}}, "required": []},
    "body": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array<string>"}, "doc": {"type": "file"}},
        "required": ["name"],
    },
}
TEXT = "{begin@query.n} {begin@headers.X-Id} {begin@body.name} {begin@body.tags} {begin@body.doc}"
SECRET = "a secret of at least thirty-two characters"


def webhook_canvas(text: str = TEXT, *, status: Any = None, **params: Any) -> dict[str, Any]:
    """Return a canvas whose message shows the request that its webhook received."""
    settings = {
        "mode": "Webhook",
        "security": NO_AUTHENTICATION,
        "schema": SCHEMA,
        "execution_mode": "Streaming",
        **params,
    }
    return canvas(
        ("begin", "Begin", settings, ["Message:0"]), ("Message:0", "Message", {"content": [text], "status": status}, [])
    )


def failing_canvas() -> dict[str, Any]:
    assigner = {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]}
    return canvas(
        (
            "begin",
            "Begin",
            {"mode": "Webhook", "security": NO_AUTHENTICATION, "execution_mode": "Streaming"},
            ["Assign:0"],
        ),
        ("Assign:0", "VariableAssigner", assigner, ["Message:0"]),
        ("Message:0", "Message", {"content": ["never"]}, []),
    )


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx2.Client]:
    """A client without a token."""
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=30) as stranger:
        yield stranger


def create_published_agent(client: Client, dsl: Mapping[str, Any]) -> str:
    agent = client.agent(dsl, f"agent {new_id()}")
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
    return agent


def read_refusal(reply: httpx2.Response) -> str:
    assert reply.status_code == 400, reply.text
    body = reply.json()
    assert body == {"code": 400, "message": body["message"]}
    return body["message"]


# -- the inputs of the run, and the reply -----------------------------------------------------------------------------


def test_call_runs_the_published_version_and_returns_its_answer(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(client, webhook_canvas(status=201))
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": webhook_canvas("the draft")})

    reply = stranger.post(
        f"/agents/{agent}/webhook",
        params={"n": "5", "other": "x"},
        headers={"X-Id": "77", "Authorization": "Bearer nobody's business"},
        json={"name": "Ada", "tags": ["a"], "secret": "x"},
    )

    body = reply.json()
    run = client.run(body["run_id"])
    assert reply.status_code == 201
    assert body == {
        "message": '5 77 Ada ["a"] []',
        "success": True,
        "code": 201,
        "run_id": run["id"],
        "session_id": run["session_id"],
    }
    assert reply.headers["x-run-id"] == run["id"]
    assert run["request"]["user_id"] == client.tenant_id.hex
    assert run["origin"] == {"kind": "webhook", "run_id": None, "from": None, "edits": None}
    listed = client.http.get("/api/v1/runs", params={"origin": "webhook"}).json()["runs"]
    assert [(each["id"], each["origin"]) for each in listed] == [(run["id"], run["origin"])]
    events = client.http.get(f"/api/v1/runs/{run['id']}/events").text
    assert '"other":"x"' in events
    assert "business" not in events


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"])
def test_webhook_accepts_every_http_method(client: Client, stranger: httpx2.Client, method: str) -> None:
    agent = create_published_agent(client, webhook_canvas("done", schema={}))

    reply = stranger.request(method, f"/agents/{agent}/webhook")

    assert reply.status_code == 200
    assert reply.headers["x-run-id"]
    if method != "HEAD":
        assert reply.json()["message"] == "done"


def test_form_fields_and_files_are_accepted_as_a_body(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(client, webhook_canvas())

    form = stranger.post(f"/agents/{agent}/webhook", data={"name": "Ada", "tags": '["b"]'})
    files = stranger.post(
        f"/agents/{agent}/webhook", data={"name": "Ada"}, files={"doc": ("a.txt", b"in the file", "text/plain")}
    )

    assert form.json()["message"] == '0  Ada ["b"] []'
    assert "in the file" in files.json()["message"]


def test_slow_files_of_one_caller_do_not_delay_other_callers(
    client: Client, server: Server, stranger: httpx2.Client
) -> None:
    attacked, other = (
        create_published_agent(client, webhook_canvas()),
        create_published_agent(server.client(), webhook_canvas()),
    )
    files = [("doc", (f"{number}.html", evasive_html(351 * 1024), "text/html")) for number in range(7)]
    statuses: list[int] = []

    def attack() -> None:
        with httpx2.Client(base_url=stranger.base_url, timeout=120) as attacker:
            statuses.append(attacker.post(f"/agents/{attacked}/webhook", data={"name": "x"}, files=files).status_code)

    attacker = threading.Thread(target=attack)
    attacker.start()
    served_calls = 0
    while not statuses:
        page = b"<p>" + b"honest " * 10_000
        json = stranger.post(f"/agents/{other}/webhook", json={"name": "Ada"})
        html = stranger.post(
            f"/agents/{other}/webhook", data={"name": "Ada"}, files={"doc": ("a.html", page, "text/html")}
        )
        assert json.status_code == html.status_code == 200
        served_calls += not statuses
    attacker.join()

    assert served_calls


def test_immediate_webhook_returns_its_configured_reply(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(
        client,
        webhook_canvas(
            "done",
            schema={},
            execution_mode="Immediately",
            response={"status": 202, "body_template": '{"taken": true}'},
        ),
    )

    reply = stranger.post(f"/agents/{agent}/webhook", json={})

    assert reply.status_code == 202
    assert reply.json()["taken"] is True
    run = client.wait_for(reply.json()["run_id"], "succeeded")
    assert run["answer"] == "done"


def test_failed_run_is_a_bad_request(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(client, failing_canvas())

    reply = stranger.post(f"/agents/{agent}/webhook", json={})

    body = reply.json()
    assert reply.status_code == 400
    assert body["code"] == 400
    assert body["success"] is False
    assert body["message"]
    assert client.run(body["run_id"])["status"] == "failed"


def test_call_repeated_with_its_idempotency_key_returns_the_same_run(client: Client, stranger: httpx2.Client) -> None:
    agent, other = create_published_agent(client, webhook_canvas()), create_published_agent(client, webhook_canvas())

    def call(agent: str, name: str, **headers: str) -> httpx2.Response:
        sent = {"Idempotency-Key": "once", **headers}
        return stranger.post(f"/agents/{agent}/webhook", json={"name": name}, headers=sent)

    first, again = call(agent, "Ada"), call(agent, "Ada", traceparent="another")

    assert again.json() == first.json()
    assert call(other, "Ada").json()["run_id"] != first.json()["run_id"]
    assert call(agent, "Bob").status_code == 409
    assert call(agent, "Bob").json()["code"] == 409


# -- refused calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "call", "message"),
    [
        ({"methods": ["GET", "PUT"]}, {}, "HTTP method 'POST' not allowed for this webhook."),
        (
            {"security": None},
            {},
            "Webhook security is required. Set allow_anonymous to true to permit unauthenticated webhooks.",
        ),
        (
            {"content_types": "text/plain"},
            {"json": {}},
            "Invalid Content-Type: expect 'text/plain', got 'application/json'",
        ),
        ({}, {"json": {"name": 5}}, "body.name type mismatch: expected string, got number"),
        ({}, {"json": {}}, "body missing required field: name"),
        ({}, {"content": b"{"}, "body missing required field: name"),
        ({}, {"json": {"name": "x"}, "params": {"n": "x"}}, "query.n auto-cast failed: Cannot convert 'x' to number"),
        (
            {"execution_mode": "Immediately", "response": {"status": 404}},
            {"json": {"name": "x"}},
            "Invalid response status code: 404",
        ),
    ],
)
def test_invalid_call_is_refused_with_the_reason_and_starts_no_run(
    client: Client, stranger: httpx2.Client, params: Any, call: Any, message: str
) -> None:
    agent = create_published_agent(client, webhook_canvas(**params))

    assert read_refusal(stranger.post(f"/agents/{agent}/webhook", **call)) == message
    assert client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


def test_agent_without_a_webhook_gets_the_same_reply_as_an_unknown_agent(
    client: Client, stranger: httpx2.Client
) -> None:
    draft, chat = client.agent(webhook_canvas(), "draft"), create_published_agent(client, ECHO)
    flow = client.http.post(
        "/api/v1/agents", json={"title": "flow", "dsl": webhook_canvas(), "canvas_category": "dataflow_canvas"}
    ).json()["data"]["id"]

    def call(agent: str) -> httpx2.Response:
        return stranger.post(f"/agents/{agent}/webhook", json={})

    for agent in ("0" * 32, "nonsense", draft, chat, flow):
        assert read_refusal(call(agent)) == "Canvas not found."
        assert call(agent).headers.keys() == call("0" * 32).headers.keys()
    tested = client.http.post(f"/api/v1/agents/{chat}/webhook/test", json={})
    assert read_refusal(tested) == "Webhook not configured for this agent."


def test_body_is_read_only_up_to_its_limit(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(client, webhook_canvas(security={**NO_AUTHENTICATION, "max_body_size": "1kb"}))

    def endless() -> Iterator[bytes]:  # chunked: no header contains the length
        yield from (b" " * 512 for _ in range(8))

    assert (
        read_refusal(stranger.post(f"/agents/{agent}/webhook", content=b" " * 1025))
        == "Request body too large: 1025 > 1024"
    )
    message = read_refusal(stranger.post(f"/agents/{agent}/webhook", content=endless()))
    assert message.startswith("Request body too large: ")
    assert message.endswith("> 1024")


def test_webhook_with_jwt_security_requires_a_valid_token(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(
        client, webhook_canvas("in", schema={}, security={"auth_type": "jwt", "jwt": {"secret": SECRET}})
    )
    token = jwt.encode({"exp": time.time() + 60}, SECRET, "HS256")

    accepted = stranger.post(f"/agents/{agent}/webhook", headers={"Authorization": f"Bearer {token}"})

    assert accepted.json()["message"] == "in"
    assert read_refusal(stranger.post(f"/agents/{agent}/webhook")) == "Missing Bearer token"


def test_server_error_during_a_call_returns_status_500(
    client: Client, stranger: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = create_published_agent(
        client, webhook_canvas("in", schema={}, security={"auth_type": "jwt", "jwt": {"secret": SECRET}})
    )

    def fail_to_unseal(*_: Any) -> None:
        raise CannotUnseal("The secret was sealed with another key.")

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    for replacement in (fail_to_unseal, fail):
        monkeypatch.setattr(CanvasSecrets, "open_params", replacement)
        with capture_logs():  # a traceback with all locals takes longer to render than the client waits
            reply = stranger.post(f"/agents/{agent}/webhook")
        assert reply.status_code == 500
        assert reply.json()["code"] == 100


def test_ip_whitelist_checks_the_address_that_the_trusted_proxy_added(client: Client, stranger: httpx2.Client) -> None:
    security = {
        **NO_AUTHENTICATION,
        "ip_whitelist": ["203.0.113.9"],
    }  # the server trusts 127.0.0.1, where the test calls from
    agent = create_published_agent(client, webhook_canvas("in", schema={}, security=security))

    def call(hops: str) -> httpx2.Response:
        return stranger.post(f"/agents/{agent}/webhook", headers={"X-Forwarded-For": hops})

    assert call("198.51.100.1, 203.0.113.9").json()["message"] == "in"
    assert read_refusal(call("203.0.113.9, 198.51.100.1")) == "IP 198.51.100.1 is not allowed by whitelist"
    assert read_refusal(stranger.post(f"/agents/{agent}/webhook")) == "IP 127.0.0.1 is not allowed by whitelist"


def test_callers_of_an_agent_share_its_rate_limit(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(
        client,
        webhook_canvas("in", schema={}, security={**NO_AUTHENTICATION, "rate_limit": {"limit": 2, "per": "day"}}),
    )

    replies = [stranger.post(f"/agents/{agent}/webhook") for _ in range(3)]

    assert [reply.status_code for reply in replies] == [200, 200, 400]
    assert read_refusal(replies[2]) == "Rate limit error: Too many requests (rate limit exceeded)"


# -- rate limits ------------------------------------------------------------------------------------------------------


def test_token_bucket_allows_its_limit_and_refills_with_time(redis_url: str) -> None:
    agent, other = new_id(), new_id()
    key = f"rl:tb:{agent.hex}"
    with closing(TokenBuckets(redis_url)) as buckets, closing(redis.Redis.from_url(redis_url)) as server:
        assert [buckets.take(agent, 2, 60) for _ in range(3)] == [True, True, False]
        assert buckets.take(other, 1, 60)

        server.hincrbyfloat(key, "timestamp", -30)  # half a minute passes: one token of two
        assert [buckets.take(agent, 2, 60) for _ in range(2)] == [True, False]
        server.hincrbyfloat(key, "timestamp", -86400)
        assert [buckets.take(agent, 2, 60) for _ in range(3)] == [True, True, False]

        assert 0 < server.ttl(key) <= 61
        assert set(server.hgetall(key)) == {b"tokens", b"timestamp"}


def test_token_bucket_with_invalid_values_counts_as_full(redis_url: str) -> None:
    agent = new_id()
    with closing(TokenBuckets(redis_url)) as buckets, closing(redis.Redis.from_url(redis_url)) as server:
        server.hset(f"rl:tb:{agent.hex}", mapping={"tokens": "many", "timestamp": "noon"})

        assert [buckets.take(agent, 1, 60) for _ in range(2)] == [True, False]


def test_token_bucket_without_redis_raises_buckets_unavailable() -> None:
    with closing(TokenBuckets("redis://127.0.0.1:1/0")) as buckets, pytest.raises(BucketsUnavailable):
        buckets.take(UUID(int=1), 1, 60)


# -- tests by the owner -----------------------------------------------------------------------------------------------


def poll(client: Client, agent: str, **params: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/agents/{agent}/webhook/logs", params=params).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def test_owner_tests_the_draft_and_polls_its_events(client: Client) -> None:
    agent = client.agent(webhook_canvas())
    url = f"/api/v1/agents/{agent}/webhook"

    first_page = poll(client, agent)
    assert poll(client, agent, since_ts=first_page["next_since_ts"]) == first_page
    reply = client.http.post(f"{url}/test", json={"name": "Ada"})
    test_page = poll(client, agent, since_ts=first_page["next_since_ts"])
    trace = eventually(
        lambda: poll(client, agent, since_ts=0, webhook_id=test_page["webhook_id"]), lambda page: page["finished"]
    )

    assert first_page["webhook_id"] is None
    assert (first_page["events"], first_page["finished"]) == ([], False)
    assert reply.json()["message"] == "0  Ada [] []"
    assert (test_page["events"], test_page["finished"]) == ([], False)
    assert test_page["next_since_ts"] > first_page["next_since_ts"]
    names = [event["event"] for event in trace["events"]]
    assert names[0] == "workflow_started"
    assert names[-2:] == ["workflow_finished", "finished"]
    assert "message" in names
    assert trace["events"][-1]["success"] is True
    times = [event["ts"] for event in trace["events"]]
    assert times == sorted(times)
    assert trace["next_since_ts"] == times[-1]
    rest = poll(client, agent, since_ts=times[0], webhook_id=test_page["webhook_id"])
    assert rest["events"] == trace["events"][1:]
    assert poll(client, agent, since_ts=test_page["next_since_ts"])["webhook_id"] is None
    assert client.token not in str(trace)


def test_calls_of_other_callers_are_not_shown_as_tests(client: Client, stranger: httpx2.Client) -> None:
    agent = create_published_agent(client, webhook_canvas("in", schema={}))

    assert stranger.post(f"/agents/{agent}/webhook").status_code == 200
    assert poll(client, agent, since_ts=0)["webhook_id"] is None


def test_unknown_test_is_finished_and_since_ts_must_be_a_number(client: Client) -> None:
    agent = client.agent(webhook_canvas())

    unknown = poll(client, agent, since_ts=5, webhook_id="x")
    assert unknown == {"webhook_id": "x", "events": [], "next_since_ts": 5.0, "finished": True}
    for text in ("noon", "nan", "-1", "inf"):
        reply = client.http.get(f"/api/v1/agents/{agent}/webhook/logs", params={"since_ts": text}).json()
        assert reply["code"] == 101


def test_failed_test_ends_with_an_error_event(client: Client) -> None:
    agent = client.agent(failing_canvas())

    client.http.post(f"/api/v1/agents/{agent}/webhook/test", json={})
    test_page = poll(client, agent, since_ts=0)
    trace = poll(client, agent, since_ts=0, webhook_id=test_page["webhook_id"])

    assert [event["event"] for event in trace["events"]][-2:] == ["error", "finished"]
    assert trace["events"][-1]["success"] is False


def test_only_the_owner_can_test_and_poll_a_webhook(client: Client, server: Server) -> None:
    agent = create_published_agent(client, webhook_canvas())
    with closing(server.client().http) as other:
        tested = other.post(f"/api/v1/agents/{agent}/webhook/test", json={"name": "x"})
        polled = other.get(f"/api/v1/agents/{agent}/webhook/logs")

    assert read_refusal(tested) == "Canvas not found."
    assert polled.json() == {"code": 102, "message": "Canvas not found."}
