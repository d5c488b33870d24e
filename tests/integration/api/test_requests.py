"""Validation of requests: unknown fields and parameters are refused, those without an effect are listed."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from api.http.query_parameters import CACHE_BUSTERS, AnyQueryRoute, refuse_unknown_parameters
from api.http.reply_styles import EnvelopeRoute, OwnRoute
from api.requests.auth import authenticate, identify
from api.viewer.sign_ins import require_sign_ins
from tests.integration.api.conftest import config_of
from tests.integration.api.talking import ECHO, FORM, Client
from tests.integration.api.test_access import WELL_KNOWN

BODIES = {  # the least body with which the route checks for unknown fields
    "/agents/chat/completions": {"agent_id": "{agent}", "query": "x"},
    "/agents/{agent}/completions": {"query": "x"},
    "/agents/{agent}/run": {"query": "x"},
    "/agents/{agent}/runs": {"query": "x"},
    "/agentbots/{agent}/completions": {"query": "x"},
    "/agents": {"title": "x", "dsl": ECHO},
    "/agents/{agent}/publish": {},
    "/agents/{agent}/sessions": {},
    "/agents/{agent}/cancel": {},
    "/runs/{run}/resume": {},
    "/memories": {"name": "x", "memory_type": ["raw"], "embd_id": "", "llm_id": ""},
    "/messages": {"memory_id": "x", "user_input": "x"},
    "/retrieval": {"question": "x", "dataset_ids": ["0" * 32]},
    "/mcp/servers": {"name": "x", "url": "http://127.0.0.1:1/mcp"},
    "/mcp/servers/list_tools": {"mcp_ids": []},
}


@pytest.mark.parametrize("path", BODIES)
def test_unknown_field_is_refused_and_the_known_fields_are_listed(workerless_client: Client, path: str) -> None:
    agent = workerless_client.agent(ECHO)
    run = workerless_client.start(agent)["run_id"]
    body = {
        name: value.format(agent=agent) if isinstance(value, str) else value for name, value in BODIES[path].items()
    }

    reply = workerless_client.http.post(f"/api/v1{path.format(agent=agent, run=run)}", json={**body, "unheard_of": "r"})

    assert reply.status_code == (200 if path in ("/memories", "/messages", "/retrieval") else 400)
    assert reply.json()["message"].startswith("`unheard_of` is not a field of this request. Its fields are: ")
    assert len(workerless_client.http.get("/api/v1/runs").json()["runs"]) == 1


def list_routes() -> list[tuple[str, APIRoute]]:
    """Return the path of every route of the application, and the route."""
    app = create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere"))
    return [
        (str(found.path), found.original_route)
        for found in iter_route_contexts(app.routes)
        if isinstance(found.original_route, APIRoute)
    ]


CHECKED_ROUTES = [(path, route) for path, route in list_routes() if path.startswith("/api") and "webhook" not in path]
CHECKED_REQUESTS = [(method, path) for path, route in CHECKED_ROUTES for method in sorted(route.methods)]
OWN_REQUESTS = [
    (method, path) for path, route in CHECKED_ROUTES if isinstance(route, OwnRoute) for method in sorted(route.methods)
]
ENVELOPE_REQUESTS = [
    (method, path) for path, route in CHECKED_ROUTES if isinstance(route, EnvelopeRoute) for method in route.methods
]
RAGFLOW_LISTS = [path for method, path in CHECKED_REQUESTS if method == "GET" and "{" not in path]
RAGFLOW_LISTS = [path for path in RAGFLOW_LISTS if ("GET", path) not in OWN_REQUESTS]


@pytest.mark.parametrize(("method", "path"), CHECKED_REQUESTS)
def test_unknown_query_parameter_is_refused(workerless_client: Client, method: str, path: str) -> None:
    url = path.replace("{", "").replace("}", "")

    reply = workerless_client.http.request(method, url, params={"keyword": "x"})

    refused = 200 if (method, path) in ENVELOPE_REQUESTS else 400
    assert reply.status_code == refused
    assert "`keyword` is not a parameter of this route." in reply.text


def test_every_route_checks_its_query_except_webhooks_and_those_without_a_token() -> None:
    unchecked = {
        path
        for path, route in list_routes()
        if not isinstance(route, AnyQueryRoute)
        and not any(
            depends_on(route.dependant, check)
            for check in (authenticate, identify, require_sign_ins, refuse_unknown_parameters)
        )
    }

    # the last two authenticate their caller, and so check their query, unless a setting opens them
    assert unchecked == {"/healthz", "/readyz", "/metrics", "/openapi.json", *WELL_KNOWN}


def depends_on(dependant: Dependant, call: Callable[..., Any]) -> bool:
    return any(each.call is call or depends_on(each, call) for each in dependant.dependencies)


@pytest.mark.parametrize("path", RAGFLOW_LISTS)
@pytest.mark.parametrize("name", sorted(CACHE_BUSTERS))
def test_cache_buster_changes_nothing_on_ragflows_paths(workerless_client: Client, path: str, name: str) -> None:
    plain = workerless_client.http.get(path)

    reply = workerless_client.http.get(path, params={name: "1795860215851"})

    assert (reply.status_code, reply.text) == (plain.status_code, plain.text)


@pytest.mark.parametrize(("method", "path"), [*OWN_REQUESTS, ("POST", "/api/v1/agents/{agent_id}/run")])
def test_cache_buster_is_refused_on_easels_own_routes_and_run(
    workerless_client: Client, method: str, path: str
) -> None:
    url = path.replace("{", "").replace("}", "")

    reply = workerless_client.http.request(method, url, params={"_": "1795860215851"})

    assert (reply.status_code, reply.json()["code"]) == (
        400,
        101 if path == "/api/v1/agents/{agent_id}/run" else "unknown_parameter",
    )
    assert "`_` is not a parameter of this route." in reply.json()["message"]


@pytest.mark.parametrize("value", ["latest", "", "1; drop", "1.2.3"])
def test_parameter_with_the_name_of_a_cache_buster_and_no_number_is_refused(
    workerless_client: Client, value: str
) -> None:
    reply = workerless_client.http.get("/api/v1/agents", params={"t": value})

    assert (reply.status_code, reply.json()["code"]) == (400, 101)


def test_error_lists_the_most_similar_parameter_first(workerless_client: Client) -> None:
    reply = workerless_client.http.get("/api/v1/runs", params={"page_sise": 5})

    assert reply.status_code == 400
    assert reply.json()["details"] == {"field": "page_sise"}
    assert reply.json()["message"].startswith(
        "`page_sise` is not a parameter of this route. Its parameters are: page_size, page, "
    )


def test_request_of_ragflows_front_end_is_accepted(client: Client) -> None:
    agent = client.agent(ECHO)
    body = {
        "agent_id": agent,
        "stream": False,
        "running_hint_text": "is running...",
        "openai-compatible": False,
        "query": "hi",
        "inputs": {},
        "files": [],
        "session_id": None,
        "custom_header": "",
    }

    reply = client.http.post("/api/v1/agents/chat/completions", json=body)

    assert reply.json()["data"]["data"]["content"] == "You said: hi"
    assert reply.headers["x-ignored-parameters"] == "running_hint_text"
    assert reply.headers["x-run-id"] == reply.json()["data"]["run_id"]


def test_messages_without_the_openai_compatible_flag_are_refused(workerless_client: Client) -> None:
    body = {"agent_id": workerless_client.agent(ECHO), "messages": [{"role": "user", "content": "x"}]}

    reply = workerless_client.http.post("/api/v1/agents/chat/completions", json=body)

    assert reply.status_code == 400
    assert "openai-compatible" in reply.json()["message"]


def test_events_query_parameter_selects_the_compact_event_list(client: Client) -> None:
    agent = client.agent(ECHO)
    body = {"agent_id": agent, "query": "hi", "stream": True}

    reply = client.http.post("/api/v1/agents/chat/completions", params={"events": "compact"}, json=body)
    shared = client.http.post(
        f"/api/v1/agentbots/{agent}/completions", params={"events": "compact"}, json={"query": "x"}
    )

    assert "workflow_started" not in reply.text
    assert "workflow_started" not in shared.text


@pytest.mark.parametrize("path", ["agents/chat/completions", "agents/{agent}/run", "agentbots/{agent}/completions"])
def test_unknown_event_list_is_refused(workerless_client: Client, path: str) -> None:
    agent = workerless_client.agent(ECHO)
    body = {"agent_id": agent, "query": "hi", "events": "short"}

    reply = workerless_client.http.post(f"/api/v1/{path.format(agent=agent)}", json=body)

    assert reply.status_code == 400
    assert "`events`" in reply.json()["message"]
    assert "compact" in reply.json()["message"]


def test_null_in_the_body_does_not_override_the_query_parameter(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    def create_session(**body: Any) -> Any:
        path = f"/api/v1/agents/{agent}/sessions"
        return workerless_client.http.post(path, params={"release": "true", "user_id": "ada"}, json=body).json()

    unpublished = create_session(release=None)
    workerless_client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    published = create_session(release=None, user_id=None)

    assert unpublished["code"] == 102  # without `release` the draft would be used
    assert published["data"]["user_id"] == "ada"


def test_run_timeout_sets_the_seconds_of_the_budget(client: Client) -> None:
    agent = client.agent(FORM)

    started = client.start(agent, run_timeout=60, budget={"tokens": 5})
    both = client.http.post(f"/api/v1/agents/{agent}/runs", json={"run_timeout": 60, "budget": {"seconds": 5}})

    limits = {each["measure"]: each["limit"] for each in client.run(started["run_id"])["budget"]}
    assert limits == {"seconds": 60, "tokens": 5}
    assert both.status_code == 400
    assert both.json()["details"] == {"field": "run_timeout"}


def test_agent_from_a_get_reply_is_accepted_by_an_update(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    agent_body = workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]

    reply = workerless_client.http.put(f"/api/v1/agents/{agent}", json={**agent_body, "title": "Renamed"}).json()

    assert reply["code"] == 0
    assert "`update_time` has no effect here." in reply["warnings"]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/agents", {"orderby": "colour"}),
        ("/agents", {"type": "all"}),
    ],
)
def test_unknown_filter_or_order_value_is_refused(workerless_client: Client, path: str, params: dict[str, str]) -> None:
    reply = workerless_client.http.get(f"/api/v1{path}", params=params)

    assert (reply.status_code, reply.json()["code"]) == (400, 101)


INVALID_QUERIES = [
    ("GET", "/agents", {"page_size": "101"}),
    ("GET", "/agents", {"id": ",".join(["0" * 32] * 101)}),
    ("GET", "/agents/{agent}/sessions", {"from_date": "yesterday"}),
    ("GET", "/agents/{agent}/sessions", {"page_size": "101"}),
    ("GET", "/agents/{agent}/webhook/logs", {"since_ts": "now"}),
    ("DELETE", "/agents/{agent}/versions/{agent}", {"force": "perhaps"}),
]


@pytest.mark.parametrize("headers", [{}, {"X-Http-Status": "strict"}], ids=["usual", "strict"])
@pytest.mark.parametrize(("method", "path", "params"), INVALID_QUERIES)
def test_invalid_query_of_a_ragflow_route_is_400_in_ragflows_envelope(
    workerless_client: Client, method: str, path: str, params: dict[str, str], headers: dict[str, str]
) -> None:
    agent = workerless_client.agent(ECHO)

    url = f"/api/v1{path.format(agent=agent)}"
    reply = workerless_client.http.request(method, url, params=params, headers=headers)

    assert (reply.status_code, reply.json()["code"]) == (400, 101)
    assert reply.json()["data"] is None


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/memories", {"page_size": "101"}),
        ("/memories", {"memory_type": "wild"}),
        ("/messages", {"limit": "0"}),
        ("/messages/search", {"similarity_threshold": "2"}),
    ],
)
def test_invalid_query_of_memories_has_status_200_unless_the_client_is_strict(
    workerless_client: Client, path: str, params: dict[str, str]
) -> None:
    reply = workerless_client.http.get(f"/api/v1{path}", params=params)
    strict = workerless_client.http.get(f"/api/v1{path}", params=params, headers={"X-Http-Status": "strict"})

    assert (reply.status_code, reply.json()["code"], strict.status_code) == (200, 101, 400)


@pytest.mark.parametrize("params", [{"page_size": "101"}, {"page_size": "101", "status": "failed"}])
def test_invalid_query_of_an_easel_route_is_400_with_a_text_code(
    workerless_client: Client, params: dict[str, str]
) -> None:
    reply = workerless_client.http.get("/api/v1/runs", params=params)

    assert (reply.status_code, reply.json()["code"]) == (400, "invalid_request")


ARGUMENTS = [
    ("POST", "/agents", {"title": "x"}, "No DSL data in request."),
    ("POST", "/agents", {"title": " ", "dsl": ECHO}, "No title in request."),
    ("PUT", "/agents/{agent}", {"title": " "}, "No title in request."),
    ("POST", "/agents/chat/completions", {"query": "x"}, "`agent_id` is required."),
    ("PATCH", "/tasks/{agent}", {"action": "go"}, "Unknown action 'go'. Use \"stop\"."),
    ("POST", "/agents/test_db_connection", {"db_type": "mysql"}, None),
]


@pytest.mark.parametrize(("method", "path", "body", "message"), ARGUMENTS)
def test_body_without_a_required_argument_is_400_in_ragflows_envelope(
    workerless_client: Client, method: str, path: str, body: dict[str, Any], message: str | None
) -> None:
    reply = workerless_client.http.request(
        method, f"/api/v1{path.format(agent=workerless_client.agent(ECHO))}", json=body
    )

    assert (reply.status_code, reply.json()["code"]) == (400, 101)
    assert message is None or reply.json()["message"] == message


TOO_LARGE = [
    ("/agents", 101),
    ("/agents/{agent}", 101),
    ("/agents/{agent}/sessions", 101),
    ("/datasets/{dataset}/documents", 101),
    ("/agents/{agent}/runs", "invalid_request"),
    ("/budgets", "invalid_request"),
]


@pytest.mark.parametrize("is_announced", [True, False], ids=["announced", "chunked"])
@pytest.mark.parametrize(("path", "code"), TOO_LARGE)
def test_request_that_is_too_large_is_413_in_the_format_of_its_route(
    workerless_client: Client, path: str, code: int | str, is_announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.requests.uploads.MAX_UPLOAD_BYTES", 2_000_000)
    dataset = workerless_client.http.post("/api/v1/datasets", json={"name": "d"}).json()["data"]["id"]
    url = f"/api/v1{path.format(agent=workerless_client.agent(ECHO), dataset=dataset)}"
    method = "PUT" if path in ("/agents/{agent}", "/budgets") else "POST"
    is_upload = path.endswith("documents")
    kind = "multipart/form-data; boundary=x" if is_upload else "application/json"
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' if is_upload else b""
    content = head + b" " * 2_100_000

    sent: Any = content if is_announced else (content[at : at + 50_000] for at in range(0, len(content), 50_000))
    reply = workerless_client.http.request(method, url, content=sent, headers={"Content-Type": kind})

    assert (reply.status_code, reply.json()["code"]) == (413, code), reply.text
    assert reply.json()["message"].startswith("request body too large: more than the ")


def test_no_path_of_words_is_hidden_behind_one_with_an_id() -> None:
    paths = list(create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere")).openapi()["paths"].items())

    def hides(first: str, second: str) -> bool:
        steps, others = first.split("/"), second.split("/")
        return len(steps) == len(others) and all(
            step == other or step.startswith("{") for step, other in zip(steps, others, strict=True)
        )

    hidden = [
        (path, later)
        for index, (path, methods) in enumerate(paths)
        for later, others in paths[index + 1 :]
        if path != later and hides(path, later) and set(methods) & set(others)
    ]

    assert hidden == []
