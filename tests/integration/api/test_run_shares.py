"""Shares of one run: what they open, what they hide, how they end, and who may make them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import text

from api.requests import auth
from api.requests.cookies import READING_METHODS
from api.visitors import redaction
from canvas.ids import RunId
from store.primitives.ids import new_id
from store.primitives.json_codec import encode
from store.runs import attempt_records, model_calls
from store.runs.attempt_records import CallPosition
from store.runs.model_calls import CallBatch, CallRow
from store.tenants import tenants
from store.tenants.run_shares import Hide
from tests.integration.api.browsers import (
    browser,
    cookie_of,
    depends_on,
    list_routes,
    share,
    try_to_sign_in,
)
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, FORM, Client, canvas, frames, message
from tests.integration.api.test_access import ROUTES_OF_LINKS
from tests.integration.api.test_activation_list import ITERATION
from tests.integration.api.test_sign_ins import PUBLIC, WEBHOOKS, revoke_tokens

SHARE_ROUTES = {
    "GET /api/v1/runs/{run_id}",
    "GET /api/v1/runs/{run_id}/activations",
    "GET /api/v1/runs/{run_id}/activations/{activation_id}",
    "GET /api/v1/runs/{run_id}/activations/{activation_id}/values/{kind}/{name:path}",
    "GET /api/v1/runs/{run_id}/attempts",
    "GET /api/v1/runs/{run_id}/events",
    "GET /api/v1/runs/{run_id}/explain",
    "GET /api/v1/runs/{run_id}/graph",
    "GET /api/v1/runs/{run_id}/items",
    "GET /api/v1/runs/{run_id}/live",
    "GET /api/v1/runs/{run_id}/model_calls",
    "GET /api/v1/runs/{run_id}/model_calls/{call_id}",
    "GET /api/v1/runs/{run_id}/tool_calls",
    "POST /api/v1/agents/{agent_id}/upload",
    "POST /api/v1/runs/{run_id}/resume",
}
ROUTES = list_routes()
CANVAS = {
    **canvas(
        (
            "begin",
            "Begin",
            {"inputs": {"secret": {"type": "line", "name": "Secret", "optional": True}}},
            ["VariableAssigner:0"],
        ),
        (
            "VariableAssigner:0",
            "VariableAssigner",
            {"variables": [{"variable": "env.kept", "operator": "overwrite", "parameter": "sys.query"}]},
            ["UserFillUp:0"],
        ),
        (
            "UserFillUp:0",
            "UserFillUp",
            {"tips": "FORMMARK", "inputs": {"name": {"type": "line", "name": "Name"}}},
            ["Message:0"],
        ),
        ("Message:0", "Message", message("ANSWERMARK"), ["VariableAssigner:1"]),
        (
            "VariableAssigner:1",
            "VariableAssigner",
            {"variables": [{"variable": "env.nothing", "operator": "+=", "parameter": 1}]},
            ["Message:1"],
        ),
        ("Message:1", "Message", message("never"), []),
    ),
    "globals": {"env.kept": "x"},
}
ERROR = "Can't find variable"  # of the last assigner
HIDDEN_BY: Mapping[Hide, Sequence[str]] = {
    Hide.INPUTS: ("QUERYMARK", "INPUTMARK", "NODEINPUTMARK", "ENTEREDMARK"),
    Hide.OUTPUTS: ("OUTPUTMARK", "ANSWERMARK", "VARIABLEMARK", "RESPONSEMARK"),
    Hide.PROMPTS: ("PROMPTMARK", "RESPONSEMARK", "TOOLMARK"),
    Hide.COST: ("424242", "777777"),
    Hide.ERRORS: ("ERRORMARK", ERROR),
    Hide.TALK: ("QUERYMARK", "ANSWERMARK", "FORMMARK", "ENTEREDMARK", "OUTPUTMARK"),
}
MARKS = {mark for marks in HIDDEN_BY.values() for mark in marks}
NEVER = ("WORKERMARK", "ACCOUNTMARK", "NAMEMARK", "user-mark")
PATCHES = (
    'update node_values set inputs = \'{"x": "NODEINPUTMARK"}\', outputs = \'{"content": "OUTPUTMARK"}\' '
    "where run_id = :run_id and node_id = 'Message:0'",
    "update variables set value = '\"VARIABLEMARK\"' where run_id = :run_id",
    "update activations set worker = 'WORKERMARK', usage = '{\"prompt_tokens\": 424242, \"total_tokens\": 424242}' "
    "where run_id = :run_id",
    'update runs set usage = \'{"prompt_tokens": 424242, "total_tokens": 424242, "calls": 1}\' where id = :run_id',
)
ATTEMPT = text("""
    insert into attempts (run_id, activation_id, attempt, started_at, ended_at, worker, end_reason, error, usage,
        crash_count)
    values (:run_id, :activation, 1, now(), now(), 'WORKERMARK', 'worker_lost', 'ERRORMARK',
        '{"total_tokens": 424242}', 1)
""")


@dataclass(frozen=True)
class SharedRun:
    """A run with a mark in every kind of its data."""

    client: Client
    run: dict[str, Any]

    @property
    def id(self) -> str:
        return self.run["id"]

    def urls(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield every address of the run that a share opens, with the headers of the request."""
        root, json_only = f"/api/v1/runs/{self.id}", {"Accept": "application/json"}
        get = self.client.http.get
        ids = [row[0] for row in get(f"{root}/activations").json()["rows"]]
        calls = [call["id"] for call in get(f"{root}/model_calls").json()["calls"]]
        containers = [row["id"] for row in self.run["activations"] if row["component"] == "Iteration"]
        paths = [
            "",
            "?activations=none",
            "/activations",
            "/attempts",
            "/explain",
            "/graph",
            "/model_calls",
            "/tool_calls",
        ]
        paths += ["/events", "/events?detail=1", "/events?values=none", "/events?limit=100&detail=1"]
        paths += [f"/activations/{each}" for each in ids] + [f"/model_calls/{each}" for each in calls]
        paths += [f"/items?of={each}" for each in containers]
        for each in ids:
            found = get(f"{root}/activations/{each}").json()
            paths += [
                f"/activations/{each}/values/{kind}/{quote(name)}"
                for kind in ("inputs", "outputs", "variables")
                for name in found[kind]
            ]
        yield from ((f"{root}{path}", json_only) for path in paths)
        yield f"{root}/events", {"Accept": "text/event-stream"}
        yield f"{root}/live", {"Accept": "text/event-stream"}

    def read(self, page: httpx2.Client) -> dict[str, str]:
        """Return the text of every reply by its address."""
        found: dict[str, str] = {}
        for url, headers in self.urls():
            reply = page.get(url, headers=headers)
            assert reply.status_code in (200, 404), (url, reply.text)
            found[f"{url} {headers['Accept']}"] = reply.text
        return found


@pytest.fixture(scope="module")
def marked(server: Server) -> SharedRun:
    client = server.client(kind="admin")
    agent = client.agent(CANVAS)
    started = client.start(
        agent,
        "QUERYMARK",
        inputs={"secret": {"value": "INPUTMARK", "type": "line"}},
        user_id="user-mark",
        name="NAMEMARK",
        budget={"tokens": 777777},
    )
    run_id = started["run_id"]
    client.wait_for(run_id, "waiting")
    client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "ENTEREDMARK"}, "user_id": "user-mark"})
    run = client.wait_for(run_id, "failed")
    assert run["error"]
    activation = run["activations"][0]["id"]
    with server.database.transaction() as tx:
        for statement in PATCHES:
            tx.execute(text(statement), run_id=UUID(run_id))
        tx.execute(ATTEMPT, run_id=UUID(run_id), activation=UUID(activation))
        call = {"path": "Agent", "tool_name": "search", "arguments": {"q": "TOOLMARK"}, "result": "TOOLMARK"}
        position = CallPosition(UUID(activation), 1, "round:1", 0, False)
        attempt_records.add_tool_call(tx, UUID(run_id), UUID(started["message_id"]), "Agent:0", call, position)
        model_calls.write(tx, RunId(UUID(run_id)), [a_batch(UUID(activation))])
    return SharedRun(client, client.run(run_id))


def a_batch(activation: UUID) -> CallBatch:
    """Return a model call with marks in its bodies, as a worker stores it."""
    asked, answered = new_id(), new_id()
    parts = {
        asked: '{"role": "user", "content": "PROMPTMARK"}',
        answered: '{"role": "assistant", "content": "RESPONSEMARK"}',
    }
    request = encode({"messages": [asked.hex], "params": {}})
    usage = {"total_tokens": 424242}
    call = CallRow(
        new_id(), activation, 1, None, "chat", "m", "ACCOUNTMARK", 0.0, None, 0.0, "failed", "ERRORMARK", 1, 0, usage,
        request, answered.hex,
    )  # fmt: skip
    return CallBatch((), [call], parts)


@contextmanager
def visiting(server: Server, client: Client, run_id: str, **fields: Any) -> Iterator[httpx2.Client]:
    """A browser that is signed in with a new share of the run."""
    made = share(client, run_id, **fields)
    with browser(server.url, cookie_of(server.url, share=made["secret"])) as page:
        yield page


# -- what a share opens -----------------------------------------------------------------------------------------------
def test_share_opens_exactly_its_routes() -> None:
    visitors = {
        f"{method} {path}"
        for method, path, route in ROUTES
        if depends_on(route, auth.authenticate_run_viewer, auth.authenticate_uploader)
    }

    assert visitors == SHARE_ROUTES


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in ROUTES if path not in PUBLIC])
def test_cookie_of_a_share_opens_no_other_route(
    workerless_server: Server, shared: tuple[Client, str, str], method: str, path: str
) -> None:
    if path.startswith(WEBHOOKS):
        pytest.skip("a webhook has its own authentication")
    client, run_id, cookie = shared
    agent = client.run(run_id)["agent_id"]
    ids = {"run_id": run_id, "agent_id": agent, "other_run_id": run_id, "kind": "outputs"}
    url = re.sub(r"{(\w+)(:path)?}", lambda name: ids.get(name[1], "0" * 31 + "7"), path)

    with browser(workerless_server.url, cookie) as page:
        reply = page.request(method, url, json=None if method in READING_METHODS else {})

    if f"{method} {path}" in SHARE_ROUTES:
        assert reply.status_code != 401
    else:
        is_refused = path in ROUTES_OF_LINKS and reply.json()["code"] == 102
        assert is_refused or reply.status_code in (401, 404)


@pytest.fixture(scope="module")
def shared(workerless_server: Server) -> tuple[Client, str, str]:
    """A client, its run, and the cookie of a share of it that allows answers."""
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    return client, run_id, cookie_of(workerless_server.url, share=share(client, run_id, may_answer=True)["secret"])


def test_share_opens_no_other_run_of_its_tenant(workerless_server: Server, shared: tuple[Client, str, str]) -> None:
    client, run_id, cookie = shared
    other = client.start(client.run(run_id)["agent_id"], idempotency_key=str(new_id()))["run_id"]

    with browser(workerless_server.url, cookie) as page:
        for path in ("", "/events", "/graph", "/explain", "/activations", "/model_calls"):
            assert page.get(f"/api/v1/runs/{run_id}{path}").status_code == 200
            reply = page.get(f"/api/v1/runs/{other}{path}")
            assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
        answered = page.post(f"/api/v1/runs/{other}/resume", json={"inputs": {}})
    assert answered.status_code == 404


def test_visitor_learns_nothing_of_the_tenant(workerless_server: Server, shared: tuple[Client, str, str]) -> None:
    client, run_id, cookie = shared

    with browser(workerless_server.url, cookie) as page:
        about = page.get("/api/v1/viewer").json()
        run = page.get(f"/api/v1/runs/{run_id}").json()

    assert (about["kind"], about["may"], about["share"]["run_id"]) == ("share", ["answer"], run_id)
    assert not {"tenant", "user_id", "limits", "flower_url"} & about.keys()
    assert client.tenant_id.hex not in str((about, run))
    assert run["may"] == {**dict.fromkeys(run["may"], False)}
    assert (run["shares"], run["session_id"], run["forks"]) == (None, None, {})


# -- what it hides ----------------------------------------------------------------------------------------------------
def test_share_that_hides_nothing_shows_every_kind_of_data(server: Server, marked: SharedRun) -> None:
    with visiting(server, marked.client, marked.id) as page:
        found = "\n".join(marked.read(page).values())
    seen_by_owner = "\n".join(marked.read(marked.client.http).values())

    assert [mark for mark in MARKS if mark not in found] == []
    assert [mark for mark in NEVER if mark not in seen_by_owner] == []


@pytest.mark.parametrize("hide", [*([each] for each in Hide), list(Hide)], ids=lambda hide: "+".join(hide))
def test_what_a_share_hides_is_in_no_reply(server: Server, marked: SharedRun, hide: list[Hide]) -> None:
    with visiting(server, marked.client, marked.id, hide=hide, may_answer=True) as page:
        found = marked.read(page)
        run = page.get(f"/api/v1/runs/{marked.id}").json()

    marks = {mark for each in hide for mark in HIDDEN_BY[each]} | set(NEVER)
    leaks = {(url, mark) for url, body in found.items() for mark in marks if mark in body}
    assert leaks == set()
    assert run["hidden"] == sorted(hide)
    assert (run["status"], len(run["activations"])) == ("failed", len(marked.run["activations"]))


def test_every_field_of_the_replies_has_a_rule(marked: SharedRun) -> None:
    get, root = marked.client.http.get, f"/api/v1/runs/{marked.id}"
    (call, *_) = get(f"{root}/model_calls").json()["calls"]
    step = marked.run["activations"][0]
    envelopes = get(f"{root}/events", params={"detail": "1"}).json()["events"]

    replies = [
        (marked.run, redaction.RUN),
        (step, redaction.STEP),
        (get(f"{root}/activations/{step['id']}").json(), redaction.ACTIVATION),
        (get(f"{root}/model_calls/{call['id']}").json(), redaction.MODEL_CALL),
        *((each, redaction.TOOL_CALL) for each in get(f"{root}/tool_calls").json()["tool_calls"]),
        *((each, redaction.ATTEMPT) for each in get(f"{root}/attempts").json()["attempts"]),
        *((each, redaction.ENVELOPE) for each in envelopes),
        *((each["data"], redaction.EVENT_DATA[each["event"]]) for each in envelopes if "event" in each),
    ]

    unruled = {name for reply, rules in replies for name in reply if name not in rules}
    assert unruled == set()


def test_walk_reads_every_route_that_a_share_opens(marked: SharedRun) -> None:
    read = {
        re.sub(r"/values/.*", "/values", re.sub(r"[0-9a-f]{32}", "{}", url.partition("?")[0]))
        for url, _ in marked.urls()
    }
    opened = {
        re.sub(r"/values/.*", "/values", re.sub(r"{\w+}", "{}", each.split()[1]))
        for each in SHARE_ROUTES
        if each.startswith("GET")
    }

    assert opened - read == {"/api/v1/runs/{}/items"}  # which has a test of its own


@pytest.mark.parametrize("hide", [*([each] for each in Hide), []], ids="+".join)
def test_items_of_a_container_hide_costs_and_errors(server: Server, hide: list[Hide]) -> None:
    client = server.client(kind="admin")
    run_id = client.start(client.agent(ITERATION), "a,b")["run_id"]
    run = client.wait_for(run_id, "succeeded")
    (container,) = [row["id"] for row in run["activations"] if row["component"] == "Iteration"]
    with server.database.transaction() as tx:
        patch = "update activations set usage = '{\"total_tokens\": 424242}', "
        patch += 'outcome = \'{"is": "Failed", "error": "ERRORMARK"}\' '
        patch += "where run_id = :run_id and node_id = 'StringTransform:0'"
        tx.execute(text(patch), run_id=UUID(run_id))

    with visiting(server, client, run_id, hide=hide) as page:
        body = page.get(f"/api/v1/runs/{run_id}/items", params={"of": container}).text

    assert ("424242" in body) == (Hide.COST not in hide)
    assert ("ERRORMARK" in body) == (not set(hide) & {*Hide} - {Hide.COST})


def test_error_of_a_model_that_became_the_answer_is_hidden_with_errors(server: Server) -> None:
    client = server.client(kind="admin")
    run_id = client.start(client.agent(ECHO), "**ERROR**: MODELMARK")["run_id"]
    client.wait_for(run_id, "succeeded")
    with server.database.transaction() as tx:
        tx.execute(text("update runs set usage = '{\"model_errors\": 1}' where id = :run_id"), run_id=UUID(run_id))

    with visiting(server, client, run_id, hide=["errors", "inputs"]) as page:
        run = page.get(f"/api/v1/runs/{run_id}").json()
        ids = [row[0] for row in page.get(f"/api/v1/runs/{run_id}/activations").json()["rows"]]
        bodies = [page.get(f"/api/v1/runs/{run_id}/activations/{each}").text for each in ids]
        bodies.append(page.get(f"/api/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}).text)
        whole = page.get(f"/api/v1/runs/{run_id}/activations/{ids[-1]}/values/outputs/content")

    assert (run["has_model_error"], run["answer"], whole.status_code) == (True, "", 404)
    assert [body for body in bodies if "MODELMARK" in body] == []


# -- forms ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def waiting(server: Server) -> tuple[Client, str]:
    """A client, and its run that waits for a form."""
    client = server.client(kind="admin")
    run_id = client.start(client.agent(FORM), "QUERYMARK")["run_id"]
    client.wait_for(run_id, "waiting")
    return client, run_id


@pytest.mark.parametrize("hide", [[], list(Hide)], ids=["nothing hidden", "all hidden"])
def test_visitor_answers_the_open_form_if_the_share_allows_it(
    server: Server, waiting: tuple[Client, str], hide: list[Hide]
) -> None:
    client, run_id = waiting
    with visiting(server, client, run_id, may_answer=True, hide=hide) as page:
        run = page.get(f"/api/v1/runs/{run_id}").json()
        (form,) = run["waiting"].values()
        reply = page.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "Ada"}})

    assert (run["may"]["answer"], list(form["inputs"])) == (True, ["name"])
    assert ("Who are you?" in str(run)) == (not hide)
    assert (reply.status_code, reply.json()) == (202, {"run_id": run_id})
    assert client.wait_for(run_id, "succeeded")["answer"] == "Hello Ada"


def test_visitor_without_the_right_to_answer_is_refused(server: Server, waiting: tuple[Client, str]) -> None:
    client, run_id = waiting
    with visiting(server, client, run_id) as page:
        may = page.get(f"/api/v1/runs/{run_id}").json()["may"]
        answered = page.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "Ada"}})
        sent = page.post(f"/api/v1/agents/{client.run(run_id)['agent_id']}/upload", files={"file": ("a.txt", b"a")})

    assert (may["answer"], answered.status_code, answered.json()["code"]) == (False, 403, "not_allowed")
    assert (sent.status_code, sent.json()["code"]) == (403, 103)
    assert client.run(run_id)["status"] == "waiting"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"inputs": {"name": "Ada"}, "query": "x"}, 403),
        ({"inputs": {"name": "Ada"}, "budget": {"tokens": 10}}, 403),
        ({"inputs": {"name": "Ada"}, "user_id": "me"}, 403),
        ({"outcomes": {"*": "again"}}, 403),
        ({"inputs": {"other": "Ada"}}, 400),
        ({"inputs": {"UserFillUp:0.outcome": "again"}}, 400),
    ],
    ids=str,
)
def test_visitor_sends_nothing_but_the_fields_of_the_form(
    server: Server, waiting: tuple[Client, str], body: dict[str, Any], status: int
) -> None:
    client, run_id = waiting
    with visiting(server, client, run_id, may_answer=True) as page:
        reply = page.post(f"/api/v1/runs/{run_id}/resume", json=body)

    assert reply.status_code == status
    assert client.run(run_id)["status"] == "waiting"


def test_visitor_gets_a_conflict_from_a_run_that_does_not_wait(server: Server, marked: SharedRun) -> None:
    with visiting(server, marked.client, marked.id, may_answer=True) as page:
        assert page.post(f"/api/v1/runs/{marked.id}/resume", json={"inputs": {}}).status_code == 409


def test_visitor_sends_own_files_for_the_agent_of_the_run_and_no_others(
    server: Server, waiting: tuple[Client, str]
) -> None:
    client, run_id = waiting
    agent, other = client.run(run_id)["agent_id"], client.agent(ECHO, "other")
    theirs = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"a")}).json()["data"]
    with visiting(server, client, run_id, may_answer=True) as page:
        elsewhere = page.post(f"/api/v1/agents/{other}/upload", files={"file": ("a.txt", b"a")})
        own = page.post(f"/api/v1/agents/{agent}/upload", files={"file": ("b.txt", b"b")}).json()["data"]
        stolen = page.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": [theirs]}}})
        downloaded = page.get(f"/api/v1/agents/attachments/{own['id']}/download")
        sent = page.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": own["id"]}}})

    assert (elsewhere.json()["code"], stolen.status_code) == (103, 403)
    assert (downloaded.json()["code"], sent.status_code) == (102, 202)


# -- the end of a share -----------------------------------------------------------------------------------------------
def expire(server: Server, share_id: str) -> None:
    with server.database.transaction() as tx:
        tx.execute(text("update run_shares set expires_at = now() where id = :id"), id=UUID(share_id))


@pytest.mark.parametrize(("how", "word"), [("revoked", "revoked"), ("expired", "expired")])
def test_share_that_is_over_opens_nothing_and_says_so(workerless_server: Server, how: str, word: str) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    made = share(client, run_id)
    cookie = cookie_of(workerless_server.url, share=made["secret"])
    with browser(workerless_server.url, cookie) as page:
        before = page.get(f"/api/v1/runs/{run_id}").status_code
        if how == "revoked":
            assert client.http.delete(f"/api/v1/runs/{run_id}/shares/{made['id']}").status_code == 204
        else:
            expire(workerless_server, made["id"])
        after = page.get(f"/api/v1/runs/{run_id}").status_code

    again = try_to_sign_in(workerless_server.url, share=made["secret"])
    unknown = try_to_sign_in(workerless_server.url, share=made["secret"] + "x")
    assert (before, after) == (200, 401)
    assert (again.status_code, again.json()["code"], unknown.json()["code"]) == (401, "share_over", "unknown")
    assert word in again.json()["message"]


def test_stream_of_a_visitor_ends_when_the_share_is_revoked(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    made = share(client, run_id)
    cookie = cookie_of(workerless_server.url, share=made["secret"])
    with (
        browser(workerless_server.url, cookie) as page,
        page.stream("GET", f"/api/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as reply,
    ):
        lines = reply.iter_lines()
        next(lines)
        client.http.delete(f"/api/v1/runs/{run_id}/shares/{made['id']}")
        last = list(frames(lines))[-1].data

    assert (last["code"], last["reason"]) == (401, "share_revoked")


def test_share_outlives_the_token_that_made_it(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    secret = share(client, run_id)["secret"]
    revoke_tokens(workerless_server, client)

    with browser(workerless_server.url, cookie_of(workerless_server.url, share=secret)) as page:
        assert page.get(f"/api/v1/runs/{run_id}").status_code == 200


def test_shares_that_are_off_open_nothing_and_are_not_made(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    secret = share(client, run_id)["secret"]
    cookie = cookie_of(workerless_server.url, share=secret)
    with start_server(with_settings(workerless_server.config, shares=False)) as server:
        off = server.client_of(client.tenant_id, client.token)
        made = off.http.post(f"/api/v1/runs/{run_id}/shares", json={})
        listed = off.http.get(f"/api/v1/runs/{run_id}/shares")
        with browser(server.url, cookie) as page:
            opened = page.get(f"/api/v1/runs/{run_id}").status_code
        entered = try_to_sign_in(server.url, share=secret).status_code
        may = off.run(run_id)["may"]["share"]

    assert (made.status_code, opened, entered, may) == (403, 401, 401, False)
    assert len(listed.json()["shares"]) == 1


# -- making, listing --------------------------------------------------------------------------------------------------
def test_share_lasts_seven_days_unless_it_says_otherwise(workerless_client: Client, workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]

    short, default = (
        share(client, run_id, expires_in=3600, note="for Ada", hide=["cost", "talk"]),
        share(client, run_id),
    )
    listed = client.http.get(f"/api/v1/runs/{run_id}/shares").json()

    assert default["url"] == f"/s#{default['secret']}"
    assert (short["note"], short["hide"], short["may_answer"]) == ("for Ada", ["cost", "talk"], False)
    assert [row["id"] for row in listed["shares"]] == [short["id"], default["id"]]
    assert not {"secret", "url"} & listed["shares"][0].keys()
    assert client.run(run_id)["shares"] == 2
    lifetimes = text("select expires_at - created_at from run_shares where run_id = :shared_run order by id")
    with workerless_server.database.transaction() as tx:
        found = [row[0] for row in tx.rows(lifetimes, shared_run=UUID(run_id))]
    assert found == [timedelta(hours=1), timedelta(days=7)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expires_in": 90 * 86400 + 1}, "expires_in"),
        ({"expires_in": 59}, "expires_in"),
        ({"expires_in": "tomorrow"}, "expires_in"),
        ({"hide": ["names"]}, "hide.0"),
        ({"hide": "cost"}, "hide"),
        ({"note": "x" * 201}, "note"),
        ({"for": "Ada"}, "for"),
    ],
    ids=str,
)
def test_invalid_share_is_refused_by_field(
    workerless_server: Server, shared: tuple[Client, str, str], body: dict[str, Any], field: str
) -> None:
    client, run_id, _ = shared

    reply = client.http.post(f"/api/v1/runs/{run_id}/shares", json=body)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)


def test_share_needs_the_right_to_share(workerless_server: Server) -> None:
    client = workerless_server.client()
    run_id = client.start(client.agent(ECHO))["run_id"]
    with workerless_server.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "sharer", may_share=True)
    sharer = workerless_server.client_of(client.tenant_id, token)
    made = share(sharer, run_id)

    refused = client.http.post(f"/api/v1/runs/{run_id}/shares", json={})
    kept = client.http.delete(f"/api/v1/runs/{run_id}/shares/{made['id']}")
    with browser(workerless_server.url, cookie_of(workerless_server.url, token=token)) as page:
        by_cookie = page.post(f"/api/v1/runs/{run_id}/shares", json={})

    assert (refused.status_code, kept.status_code, by_cookie.status_code) == (403, 403, 201)
    assert (client.run(run_id)["may"]["share"], sharer.run(run_id)["may"]["share"]) == (False, True)
    assert sharer.http.get("/api/v1/viewer").json()["may"] == ["read", "change", "share"]


def test_use_of_a_share_is_counted_and_dated(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    secret = share(client, run_id)["secret"]
    before = client.http.get(f"/api/v1/runs/{run_id}/shares").json()["shares"][0]
    cookies = [cookie_of(workerless_server.url, share=secret) for _ in range(2)]
    with workerless_server.database.transaction() as tx:
        for change in (
            "update run_shares set last_used_at = now() - interval '1 hour' where tenant_id = :tenant",
            "update viewer_sessions set last_seen_at = now() - interval '1 hour' where tenant_id = :tenant",
        ):
            tx.execute(text(change), tenant=client.tenant_id)
    shifted = client.http.get(f"/api/v1/runs/{run_id}/shares").json()["shares"][0]

    with browser(workerless_server.url, cookies[0]) as page:
        page.get(f"/api/v1/runs/{run_id}")
    after = client.http.get(f"/api/v1/runs/{run_id}/shares").json()["shares"][0]

    assert (before["uses"], before["last_used_at"], shifted["uses"], after["uses"]) == (0, None, 2, 2)
    assert after["last_used_at"] > shifted["last_used_at"]


def test_shares_of_a_run_are_listed_in_pages_and_limited(
    workerless_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    made = [share(client, run_id)["id"] for _ in range(3)]
    monkeypatch.setattr("api.runs.run_shares.MAX_VALID", 3)

    first = client.http.get(f"/api/v1/runs/{run_id}/shares", params={"limit": 2}).json()
    second = client.http.get(f"/api/v1/runs/{run_id}/shares", params={"limit": 2, "after": first["next"]}).json()
    refused = client.http.post(f"/api/v1/runs/{run_id}/shares", json={})
    client.http.delete(f"/api/v1/runs/{run_id}/shares/{made[0]}")
    allowed = client.http.post(f"/api/v1/runs/{run_id}/shares", json={})

    assert [row["id"] for row in (*first["shares"], *second["shares"])] == made
    assert (second["next"], refused.status_code, allowed.status_code) == (None, 409, 201)


def test_repeated_request_with_a_key_gets_the_first_share(workerless_server: Server) -> None:
    client = workerless_server.client(kind="admin")
    run_id = client.start(client.agent(ECHO))["run_id"]
    key = {"Idempotency-Key": "share it"}

    first, again = (client.http.post(f"/api/v1/runs/{run_id}/shares", json={}, headers=key) for _ in range(2))
    other = client.http.post(f"/api/v1/runs/{run_id}/shares", json={"may_answer": True}, headers=key)

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 409)
    assert first.json() == again.json()
    assert client.run(run_id)["shares"] == 1
