"""Webhooks from outside: who is let in, what a run gets, what comes back, and how a test is followed."""

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

from api.webhooks.token_bucket import BucketsUnavailable, TokenBuckets
from store.agents.canvas_secrets import CanvasSecrets
from store.primitives.encryption import CannotUnseal
from store.primitives.ids import new_id
from tests.attacks.files import evasive_html
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client, canvas, eventually

ANYBODY = {"auth_type": "none", "allow_anonymous": True}
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


def webhook(text: str = TEXT, *, status: Any = None, **params: Any) -> dict[str, Any]:
    """A canvas that says what its webhook got."""
    settings = {"mode": "Webhook", "security": ANYBODY, "schema": SCHEMA, "execution_mode": "Streaming", **params}
    return canvas(
        ("begin", "Begin", settings, ["Message:0"]), ("Message:0", "Message", {"content": [text], "status": status}, [])
    )


def failing() -> dict[str, Any]:
    assigner = {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]}
    return canvas(
        ("begin", "Begin", {"mode": "Webhook", "security": ANYBODY, "execution_mode": "Streaming"}, ["Assign:0"]),
        ("Assign:0", "VariableAssigner", assigner, ["Message:0"]),
        ("Message:0", "Message", {"content": ["never"]}, []),
    )


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx2.Client]:
    """Somebody without any token."""
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=30) as stranger:
        yield stranger


def published(client: Client, dsl: Mapping[str, Any]) -> str:
    agent = client.agent(dsl, f"agent {new_id()}")
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
    return agent


def refusal(reply: httpx2.Response) -> str:
    assert reply.status_code == 400, reply.text
    body = reply.json()
    assert body == {"code": 400, "message": body["message"]}
    return body["message"]


# -- what a run gets, and what comes back -----------------------------------------------------------------------------


def test_a_call_runs_the_published_version_and_waits_for_what_it_says(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook(status=201))
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": webhook("the draft")})

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
    told = client.http.get(f"/api/v1/runs/{run['id']}/events").text
    assert '"other":"x"' in told
    assert "business" not in told


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"])
def test_every_method_can_call(client: Client, stranger: httpx2.Client, method: str) -> None:
    agent = published(client, webhook("done", schema={}))

    reply = stranger.request(method, f"/agents/{agent}/webhook")

    assert reply.status_code == 200
    assert reply.headers["x-run-id"]
    if method != "HEAD":
        assert reply.json()["message"] == "done"


def test_forms_and_files_are_bodies_too(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook())

    form = stranger.post(f"/agents/{agent}/webhook", data={"name": "Ada", "tags": '["b"]'})
    files = stranger.post(
        f"/agents/{agent}/webhook", data={"name": "Ada"}, files={"doc": ("a.txt", b"in the file", "text/plain")}
    )

    assert form.json()["message"] == '0  Ada ["b"] []'
    assert "in the file" in files.json()["message"]


def test_files_of_a_stranger_keep_no_other_caller_waiting(
    client: Client, server: Server, stranger: httpx2.Client
) -> None:
    attacked, other = published(client, webhook()), published(server.client(), webhook())
    files = [("doc", (f"{number}.html", evasive_html(351 * 1024), "text/html")) for number in range(7)]
    answers: list[int] = []

    def attack() -> None:
        with httpx2.Client(base_url=stranger.base_url, timeout=120) as attacker:
            answers.append(attacker.post(f"/agents/{attacked}/webhook", data={"name": "x"}, files=files).status_code)

    attacker = threading.Thread(target=attack)
    attacker.start()
    served = 0
    while not answers:
        page = b"<p>" + b"honest " * 10_000
        json = stranger.post(f"/agents/{other}/webhook", json={"name": "Ada"})
        html = stranger.post(
            f"/agents/{other}/webhook", data={"name": "Ada"}, files={"doc": ("a.html", page, "text/html")}
        )
        assert json.status_code == html.status_code == 200
        served += not answers
    attacker.join()

    assert served


def test_a_webhook_that_does_not_wait_answers_what_its_author_wrote(client: Client, stranger: httpx2.Client) -> None:
    agent = published(
        client,
        webhook(
            "done",
            schema={},
            execution_mode="Immediately",
            response={"status": 202, "body_template": '{"taken": true}'},
        ),
    )

    reply = stranger.post(f"/agents/{agent}/webhook", json={})

    assert reply.status_code == 202
    assert reply.json()["taken"] is True
    run = client.until(reply.json()["run_id"], "succeeded")
    assert run["answer"] == "done"


def test_a_run_that_fails_is_a_bad_request(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, failing())

    reply = stranger.post(f"/agents/{agent}/webhook", json={})

    body = reply.json()
    assert reply.status_code == 400
    assert body["code"] == 400
    assert body["success"] is False
    assert body["message"]
    assert client.run(body["run_id"])["status"] == "failed"


def test_a_call_that_is_sent_again_is_the_same_run(client: Client, stranger: httpx2.Client) -> None:
    agent, other = published(client, webhook()), published(client, webhook())

    def call(agent: str, name: str, **headers: str) -> httpx2.Response:
        sent = {"Idempotency-Key": "once", **headers}
        return stranger.post(f"/agents/{agent}/webhook", json={"name": name}, headers=sent)

    first, again = call(agent, "Ada"), call(agent, "Ada", traceparent="another")

    assert again.json() == first.json()
    assert call(other, "Ada").json()["run_id"] != first.json()["run_id"]
    assert call(agent, "Bob").status_code == 409
    assert call(agent, "Bob").json()["code"] == 409


# -- what is refused --------------------------------------------------------------------------------------------------


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
def test_a_call_that_cannot_be_taken_is_told_why_and_starts_nothing(
    client: Client, stranger: httpx2.Client, params: Any, call: Any, message: str
) -> None:
    agent = published(client, webhook(**params))

    assert refusal(stranger.post(f"/agents/{agent}/webhook", **call)) == message
    assert client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


def test_without_a_token_an_agent_without_a_webhook_answers_like_one_that_is_not_there(
    client: Client, stranger: httpx2.Client
) -> None:
    draft, chat = client.agent(webhook(), "draft"), published(client, ECHO)
    flow = client.http.post(
        "/api/v1/agents", json={"title": "flow", "dsl": webhook(), "canvas_category": "dataflow_canvas"}
    ).json()["data"]["id"]

    def answer(agent: str) -> httpx2.Response:
        return stranger.post(f"/agents/{agent}/webhook", json={})

    for agent in ("0" * 32, "nonsense", draft, chat, flow):
        assert refusal(answer(agent)) == "Canvas not found."
        assert answer(agent).headers.keys() == answer("0" * 32).headers.keys()
    tested = client.http.post(f"/api/v1/agents/{chat}/webhook/test", json={})
    assert refusal(tested) == "Webhook not configured for this agent."


def test_a_body_is_read_no_further_than_it_may_go(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook(security={**ANYBODY, "max_body_size": "1kb"}))

    def endless() -> Iterator[bytes]:  # of no length that its head could tell
        yield from (b" " * 512 for _ in range(8))

    assert (
        refusal(stranger.post(f"/agents/{agent}/webhook", content=b" " * 1025)) == "Request body too large: 1025 > 1024"
    )
    told = refusal(stranger.post(f"/agents/{agent}/webhook", content=endless()))
    assert told.startswith("Request body too large: ")
    assert told.endswith("> 1024")


def test_credentials_are_asked_for(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook("in", schema={}, security={"auth_type": "jwt", "jwt": {"secret": SECRET}}))
    token = jwt.encode({"exp": time.time() + 60}, SECRET, "HS256")

    with_it = stranger.post(f"/agents/{agent}/webhook", headers={"Authorization": f"Bearer {token}"})

    assert with_it.json()["message"] == "in"
    assert refusal(stranger.post(f"/agents/{agent}/webhook")) == "Missing Bearer token"


def test_a_call_that_fails_here_is_not_told_to_be_delivered(
    client: Client, stranger: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = published(client, webhook("in", schema={}, security={"auth_type": "jwt", "jwt": {"secret": SECRET}}))

    def sealed_by_another(*_: Any) -> None:
        raise CannotUnseal("The secret was sealed with another key.")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    for fails in (sealed_by_another, broken):
        monkeypatch.setattr(CanvasSecrets, "open_params", fails)
        with capture_logs():  # a traceback with all locals takes longer to draw than a client waits
            reply = stranger.post(f"/agents/{agent}/webhook")
        assert reply.status_code == 500
        assert reply.json()["code"] == 100


def test_of_the_hops_behind_a_proxy_only_those_count_that_are_trusted(client: Client, stranger: httpx2.Client) -> None:
    security = {**ANYBODY, "ip_whitelist": ["203.0.113.9"]}  # the server trusts 127.0.0.1, where the test calls from
    agent = published(client, webhook("in", schema={}, security=security))

    def call(hops: str) -> httpx2.Response:
        return stranger.post(f"/agents/{agent}/webhook", headers={"X-Forwarded-For": hops})

    assert call("198.51.100.1, 203.0.113.9").json()["message"] == "in"
    assert refusal(call("203.0.113.9, 198.51.100.1")) == "IP 198.51.100.1 is not allowed by whitelist"
    assert refusal(stranger.post(f"/agents/{agent}/webhook")) == "IP 127.0.0.1 is not allowed by whitelist"


def test_callers_share_the_agents_bucket(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook("in", schema={}, security={**ANYBODY, "rate_limit": {"limit": 2, "per": "day"}}))

    replies = [stranger.post(f"/agents/{agent}/webhook") for _ in range(3)]

    assert [reply.status_code for reply in replies] == [200, 200, 400]
    assert refusal(replies[2]) == "Rate limit error: Too many requests (rate limit exceeded)"


# -- buckets ----------------------------------------------------------------------------------------------------------


def test_a_bucket_gives_what_it_holds_and_fills_up_again(redis_url: str) -> None:
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


def test_a_bucket_that_somebody_has_spoilt_is_full(redis_url: str) -> None:
    agent = new_id()
    with closing(TokenBuckets(redis_url)) as buckets, closing(redis.Redis.from_url(redis_url)) as server:
        server.hset(f"rl:tb:{agent.hex}", mapping={"tokens": "many", "timestamp": "noon"})

        assert [buckets.take(agent, 1, 60) for _ in range(2)] == [True, False]


def test_without_redis_nobody_knows_what_a_bucket_holds() -> None:
    with closing(TokenBuckets("redis://127.0.0.1:1/0")) as buckets, pytest.raises(BucketsUnavailable):
        buckets.take(UUID(int=1), 1, 60)


# -- tests by the owner -----------------------------------------------------------------------------------------------


def poll(client: Client, agent: str, **params: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/agents/{agent}/webhook/logs", params=params).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def test_an_owner_tests_the_draft_and_follows_it(client: Client) -> None:
    agent = client.agent(webhook())
    url = f"/api/v1/agents/{agent}/webhook"

    watching = poll(client, agent)
    assert poll(client, agent, since_ts=watching["next_since_ts"]) == watching
    reply = client.http.post(f"{url}/test", json={"name": "Ada"})
    found = poll(client, agent, since_ts=watching["next_since_ts"])
    trace = eventually(
        lambda: poll(client, agent, since_ts=0, webhook_id=found["webhook_id"]), lambda page: page["finished"]
    )

    assert watching["webhook_id"] is None
    assert (watching["events"], watching["finished"]) == ([], False)
    assert reply.json()["message"] == "0  Ada [] []"
    assert (found["events"], found["finished"]) == ([], False)
    assert found["next_since_ts"] > watching["next_since_ts"]
    names = [event["event"] for event in trace["events"]]
    assert names[0] == "workflow_started"
    assert names[-2:] == ["workflow_finished", "finished"]
    assert "message" in names
    assert trace["events"][-1]["success"] is True
    times = [event["ts"] for event in trace["events"]]
    assert times == sorted(times)
    assert trace["next_since_ts"] == times[-1]
    rest = poll(client, agent, since_ts=times[0], webhook_id=found["webhook_id"])
    assert rest["events"] == trace["events"][1:]
    assert poll(client, agent, since_ts=found["next_since_ts"])["webhook_id"] is None
    assert client.token not in str(trace)


def test_calls_of_others_are_no_tests(client: Client, stranger: httpx2.Client) -> None:
    agent = published(client, webhook("in", schema={}))

    assert stranger.post(f"/agents/{agent}/webhook").status_code == 200
    assert poll(client, agent, since_ts=0)["webhook_id"] is None


def test_an_unknown_test_is_over_and_a_moment_is_a_number(client: Client) -> None:
    agent = client.agent(webhook())

    unknown = poll(client, agent, since_ts=5, webhook_id="x")
    assert unknown == {"webhook_id": "x", "events": [], "next_since_ts": 5.0, "finished": True}
    for text in ("noon", "nan", "-1", "inf"):
        reply = client.http.get(f"/api/v1/agents/{agent}/webhook/logs", params={"since_ts": text}).json()
        assert reply["code"] == 101


def test_a_failed_test_says_so(client: Client) -> None:
    agent = client.agent(failing())

    client.http.post(f"/api/v1/agents/{agent}/webhook/test", json={})
    found = poll(client, agent, since_ts=0)
    trace = poll(client, agent, since_ts=0, webhook_id=found["webhook_id"])

    assert [event["event"] for event in trace["events"]][-2:] == ["error", "finished"]
    assert trace["events"][-1]["success"] is False


def test_only_the_owner_tests(client: Client, server: Server) -> None:
    agent = published(client, webhook())
    with closing(server.client().http) as other:
        tried = other.post(f"/api/v1/agents/{agent}/webhook/test", json={"name": "x"})
        polled = other.get(f"/api/v1/agents/{agent}/webhook/logs")

    assert refusal(tried) == "Canvas not found."
    assert polled.json() == {"code": 102, "message": "Canvas not found.", "data": None}
