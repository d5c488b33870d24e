"""Password fields of forms: the run works with what was typed, and nothing that is shown or logged has it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from sqlalchemy import text

from canvas.graph.passwords import MASK
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow
from tests.integration.api.activation_rows import rows_of
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import Client, canvas, eventually, frames, message
from tests.integration.worker.scripted_vendor import ScriptedVendor, said, vendor_of

LOGIN = {
    "login": {"type": "password", "name": "Password"},
    "user": {"type": "line", "name": "User"},
}
SECOND = {"code": {"type": "Password", "name": "Code"}, "note": {"type": "line", "name": "Note"}}


def asks(text_: str) -> dict[str, Any]:
    return {"llm_id": "m@VLLM", "sys_prompt": "Be short.", "prompts": [{"role": "user", "content": text_}]}


CANVAS = canvas(
    ("begin", "Begin", {"mode": "task", "inputs": LOGIN}, ["LLM:0"]),
    ("LLM:0", "LLM", asks('Log in as {begin@user} with "{begin@login}".'), ["UserFillUp:0"]),
    (
        "UserFillUp:0",
        "UserFillUp",
        {"enable_tips": True, "tips": "After {begin@login}: the code?", "inputs": SECOND},
        ["StringTransform:0"],
    ),
    (
        "StringTransform:0",
        "StringTransform",
        {"method": "merge", "script": "{begin@login} and {UserFillUp:0@code}", "delimiters": ["-"]},
        ["VariableAssigner:0"],
    ),
    (
        "VariableAssigner:0",
        "VariableAssigner",
        {"variables": [{"variable": "env.kept", "operator": "overwrite", "parameter": "StringTransform:0@result"}]},
        ["LLM:1"],
    ),
    ("LLM:1", "LLM", asks("Both are {env.kept}."), ["Message:0"]),
    ("Message:0", "Message", message("Welcome {begin@user}. {LLM:0@content}, {LLM:1@content}"), []),
)
CANVAS["globals"] = {"env.kept": ""}
CANVAS["variables"] = {"kept": {"name": "kept", "type": "string", "value": ""}}
FAILING = canvas(
    ("begin", "Begin", {"mode": "task", "inputs": LOGIN}, ["Invoke:0"]),
    ("Invoke:0", "Invoke", {"url": "http://{begin@login}.invalid/", "method": "get"}, ["Message:0"]),
    ("Message:0", "Message", message("never"), []),
)
STORED_CALLS = text("""
    select string_agg(whole, ' ') from (
        select c::text as whole from model_calls c where run_id = :run
        union all select p::text from call_parts p where run_id = :run
        union all select a.outcome::text from activations a where run_id = :run
        union all select r.error || r.state::text from runs r where id = :run
        union all select t::text from tool_calls t where run_id = :run
    ) each
""")


def marker() -> str:
    """Return a password with what JSON texts and URLs write in another way."""
    return f'pw-"{uuid4().hex}"'


def plain(password: str) -> str:
    """Return the part of a password that looks the same however it is written."""
    return password.split('"')[1]


@contextmanager
def vendor(server: Server, client: Client, *script: Any) -> Iterator[ScriptedVendor]:
    """Run a model server, which the tenant's account `VLLM` names."""
    with vendor_of(*script) as served:
        account = AccountRow(
            "VLLM", base_url=f"http://127.0.0.1:{served.port}/v1", models={"m": {"kinds": ["chat"], "is_tools": False}}
        )
        with server.database.transaction() as tx:
            model_accounts.put_account(tx, client.tenant_id, account, EncryptionKey.from_secret(SECRET))
        yield served


@contextmanager
def redis_commands(server: Server) -> Iterator[list[str]]:
    """Collect every command that Redis gets: task messages, notifications, deltas."""
    seen: list[str] = []
    connection = redis.Redis.from_url(server.redis_url)
    with connection.monitor() as monitor:
        ready = threading.Event()

        def listen() -> None:
            try:
                for command in monitor.listen():
                    seen.append(command["command"])
                    ready.set()
            except (redis.RedisError, OSError, ValueError, AttributeError):
                pass

        threading.Thread(target=listen, daemon=True).start()
        with redis.Redis.from_url(server.redis_url) as other:
            assert eventually(lambda: (other.ping(), ready.is_set())[1], bool)
            yield seen
    connection.close()


def run_to_end(client: Client, agent: str, login: str, code: str) -> tuple[str, str]:
    """Run the canvas with its form; return the run's id and what the run showed while it waited."""
    inputs = {"login": {**LOGIN["login"], "value": login}, "user": {"value": "Ada"}}
    run_id = client.start(agent, "", inputs=inputs)["run_id"]
    waiting = client.wait_for(run_id, "waiting")
    seen = json.dumps([waiting, client.http.get(f"/api/v1/runs/{run_id}/explain").json()])
    client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"code": code, "note": {"value": "hi"}}})
    client.wait_for(run_id, "succeeded")
    return run_id, seen


def replies_about(client: Client, agent: str, run_id: str, other: str) -> dict[str, str]:
    """Return the text of every reply that shows something of a run, by its path."""
    run = client.run(run_id)
    base, session = f"/api/v1/runs/{run_id}", run["session_id"]
    page = client.http.get(f"{base}/activations?limit=500").json()
    calls = client.http.get(f"{base}/model_calls").json()["calls"]
    paths = [
        base, f"{base}?activations=none&critical=1", f"{base}/activations?with=attempts", f"{base}/attempts",
        f"{base}/model_calls", f"{base}/tool_calls", f"{base}/events", f"{base}/events?detail=1",
        f"{base}/events?limit=500", f"{base}/events?before=500&values=none", f"{base}/export?large=1",
        f"{base}/explain", f"{base}/compare/{other}", f"/api/v1/runs/{other}/compare/{run_id}?only=differs",
        "/api/v1/runs?limit=50", "/api/v1/runs", f"/api/v1/runs/states?ids={run_id}",
        f"/api/v1/agents/{agent}/sessions", f"/api/v1/agents/{agent}/sessions/{session}",
        f"/api/v1/agents/{agent}/logs/{run['message_id']}", f"/api/v1/viewer/conversations/{session}",
        "/api/v1/viewer/overview",
        *(f"{base}/model_calls/{call['id']}" for call in calls),
    ]  # fmt: skip
    for row in rows_of(page):
        paths += [f"{base}/activations/{row['id']}", f"{base}/compare/{other}/steps/{row['id']}"]
        shown = client.http.get(f"{base}/activations/{row['id']}").json()
        paths += [
            f"{base}/activations/{row['id']}/values/{kind}/{name}"
            for kind in ("inputs", "outputs", "variables")
            for name in shown[kind]
        ]
    found: dict[str, str] = {}
    for path in paths:
        reply = client.http.get(path)
        assert reply.status_code == 200, (path, reply.text)
        found[path] = reply.text
    with client.http.stream("GET", f"{base}/events", headers={"Accept": "text/event-stream"}) as response:
        found["stream"] = json.dumps([frame.data for frame in frames(response.iter_lines())])
    return found


def test_password_reaches_the_model_and_no_reply_no_call_and_no_message(
    server: Server, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    login, code, other_login, other_code = (marker() for _ in range(4))
    answers = [said("Hello"), said("Welcome")] * 2
    with vendor(server, client, *answers) as model, redis_commands(server) as commands:
        agent = client.agent(CANVAS)
        run_id, while_waiting = run_to_end(client, agent, login, code)
        other, _ = run_to_end(client, agent, other_login, other_code)

    replies = replies_about(client, agent, run_id, other)

    sent = json.dumps(model.requests, ensure_ascii=False)
    assert all(plain(each) in sent for each in (login, code, other_login, other_code))
    with server.database.transaction() as tx:
        stored = tx.scalar(STORED_CALLS, run=UUID(run_id))
    assert MASK in stored
    written = {"rows": stored, "Redis": "".join(commands), "log": "".join(capfd.readouterr())}
    everything = {**replies, **written, "while it waited": while_waiting}
    assert any("evalsha" in each.lower() or "lpush" in each.lower() for each in commands)
    for password in (login, code, other_login, other_code):
        assert [path for path, shown in everything.items() if plain(password) in shown] == []


def test_masks_stand_where_the_passwords_were(server: Server, client: Client) -> None:
    login, code = marker(), marker()
    with vendor(server, client, said("Hello"), said("Welcome")):
        agent = client.agent(CANVAS)
        run_id, while_waiting = run_to_end(client, agent, login, code)

    base = f"/api/v1/runs/{run_id}"
    rows = {row["node_id"]: row["id"] for row in rows_of(client.http.get(f"{base}/activations").json())}
    shown = {node: client.http.get(f"{base}/activations/{id_}").json() for node, id_ in rows.items()}
    run = client.run(run_id)
    calls = client.http.get(f"{base}/model_calls").json()["calls"]
    prompts = [
        client.http.get(f"{base}/model_calls/{call['id']}").json()["request"]["messages"][-1]["content"]
        for call in calls
    ]
    finished = next(
        event["data"]
        for event in client.http.get(f"{base}/events").json()["events"]
        if event["event"] == "node_finished" and event["data"]["component_id"] == "begin"
    )

    assert run["first_request"]["inputs"]["login"] == MASK
    assert run["request"]["inputs"] == {"code": MASK, "note": {"value": "hi"}}
    assert shown["begin"]["outputs"]["login"] == shown["begin"]["inputs"]["login"] == MASK
    assert shown["begin"]["outputs"]["user"] == finished["outputs"]["user"] == "Ada"
    assert finished["outputs"]["login"] == finished["inputs"]["login"] == MASK
    assert shown["UserFillUp:0"]["answers"]["code"] == MASK
    assert shown["UserFillUp:0"]["outputs"]["tips"] == f"After {MASK}: the code?"
    assert f"After {MASK}: the code?" in json.loads(json.dumps(while_waiting)).encode().decode("unicode_escape")
    assert shown["StringTransform:0"]["outputs"]["result"] == f"{MASK} and {MASK}"
    assert shown["VariableAssigner:0"]["variables"] == {"env.kept": f"{MASK} and {MASK}"}
    assert prompts == [f'Log in as Ada with "{MASK}".', f"Both are {MASK} and {MASK}."]


def test_error_that_quotes_a_password_has_the_mask(server: Server, client: Client) -> None:
    password = f"pw{uuid4().hex}"
    agent = client.agent(FAILING)

    run_id = client.start(agent, "", inputs={"login": {"value": password}})["run_id"]
    run = client.wait_for(run_id, "failed", "succeeded")

    assert run["status"] == "failed", run
    replies = replies_about(client, agent, run_id, run_id)
    assert [path for path, shown in replies.items() if password in shown] == []
    with server.database.transaction() as tx:
        assert password not in tx.scalar(STORED_CALLS, run=UUID(run_id))
        assert password in tx.scalar(text("select request::text from runs where id = :run"), run=UUID(run_id))


def test_rerun_works_with_the_password_of_its_source(server: Server, client: Client) -> None:
    login, code = marker(), marker()
    with vendor(server, client, *[said("Hello"), said("Welcome")] * 2) as model:
        run_id, _ = run_to_end(client, client.agent(CANVAS), login, code)
        copy = client.http.post(f"/api/v1/runs/{run_id}/rerun", json={"answers": "as_then"}).json()["run_id"]
        client.wait_for(copy, "succeeded")

    assert [plain(login) in json.dumps(each) for each in model.requests] == [True] * 4
    shown = client.http.get(f"/api/v1/runs/{copy}/export?large=1").text
    assert (plain(login) in shown, plain(code) in shown) == (False, False)


def test_one_node_that_runs_alone_masks_a_password_that_is_given_to_it(server: Server, client: Client) -> None:
    login = marker()
    with vendor(server, client, said("Hello")) as model:
        agent = client.agent(CANVAS)
        inputs = {"begin@login": {"value": login}, "begin@user": {"value": "Ada"}}
        reply = client.http.post(f"/api/v1/agents/{agent}/components/LLM:0/debug", json={"params": inputs})

    assert reply.json()["code"] == 0, reply.text
    assert plain(login) in json.dumps(model.requests)
    assert plain(login) not in reply.text
    (run,) = client.http.get("/api/v1/runs", params={"origin": "debug"}).json()["runs"]
    replies = [client.http.get(f"/api/v1/runs/{run['id']}{path}").text for path in ("", "/export", "/events")]
    assert [plain(login) in each for each in replies] == [False] * 3


def test_keys_of_nodes_and_tools_are_in_no_reply_about_a_run(server: Server, client: Client) -> None:
    key, bearer = f"tvly-{uuid4().hex}", f"hook-{uuid4().hex}"
    tool = {"component_name": "TavilySearch", "name": "search", "params": {"api_key": key}}
    document = canvas(
        ("begin", "Begin", {"mode": "task", "inputs": LOGIN}, ["Agent:0"]),
        ("Agent:0", "Agent", {**asks("Hello"), "prompts": "Hello", "tools": [tool]}, ["Invoke:0"]),
        (
            "Invoke:0",
            "Invoke",
            {
                "url": "http://127.0.0.1:1/",
                "method": "get",
                "headers": json.dumps({"Authorization": f"Bearer {bearer}"}),
            },
            ["Message:0"],
        ),
        ("Message:0", "Message", message("{Agent:0@content}"), []),
    )
    with vendor(server, client, said("Hi")):
        agent = client.agent(document)
        run_id = client.start(agent, "")["run_id"]
        run = client.wait_for(run_id, "failed", "succeeded")

    replies = replies_about(client, agent, run_id, run_id)
    version = client.http.get(f"/api/v1/viewer/agents/{agent}/versions/{run['version_id']}").text

    assert {"Agent:0", "Invoke:0"} <= {each["node_id"] for each in run["activations"]}
    assert MASK in replies[f"/api/v1/runs/{run_id}/export?large=1"]
    assert MASK in version
    for secret in (key, bearer):
        assert [path for path, shown in {**replies, "version": version}.items() if secret in shown] == []
