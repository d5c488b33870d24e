"""The routes of the editor: drafts by ETag and JSON Patch, half-drawn drafts, publishing, restoring, nodes, export."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx2
import pytest

from store.tenants import tenants
from tests.integration.api.browsers import signed_in
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client, canvas, message

KEY = "sk-live-0123456789"
WITH_SECRET = canvas(
    ("begin", "Begin", {}, ["TavilySearch:0"]),
    ("TavilySearch:0", "TavilySearch", {"api_key": KEY, "query": "{sys.query}"}, ["Message:0"]),
    ("Message:0", "Message", message("{TavilySearch:0@formalized_content}"), []),
)
HALF_DRAWN: Mapping[str, Any] = {"graph": {"nodes": [{"id": 7}, {"id": "LLM:0", "data": {"label": "LLM"}}]}, "z": 1.0}


def path_of(agent: str, rest: str = "draft") -> str:
    return f"/api/v1/viewer/agents/{agent}/{rest}"


def draft_of(client: Client, agent: str) -> dict[str, Any]:
    reply = client.http.get(path_of(agent))
    assert reply.status_code == 200, reply.text
    assert reply.headers["ETag"] == reply.json()["etag"]
    return reply.json()


def send(
    client: Client, method: str, agent: str, rest: str, body: Any, etag: str | None, **headers: str
) -> httpx2.Response:
    given = {**headers, **({"If-Match": etag} if etag is not None else {})}
    return client.http.request(method, path_of(agent, rest), json=body, headers=given)


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


TEXT = "/components/Message:0/obj/params/content/0"


@pytest.fixture
def agent(workerless_client: Client) -> str:
    return workerless_client.agent(ECHO)


# -- reading and saving -----------------------------------------------------------------------------------------------
def test_patch_changes_the_draft_and_returns_the_next_etag_and_stores_no_version(
    workerless_client: Client, workerless_server: Server, agent: str
) -> None:
    before = draft_of(workerless_client, agent)
    with workerless_server.database.transaction() as tx:
        (token,) = tenants.list_tokens(tx, workerless_client.tenant_id)
    versions = workerless_client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]

    saved = send(workerless_client, "PATCH", agent, "draft", [replace(TEXT, "New")], before["etag"])

    after = draft_of(workerless_client, agent)
    assert saved.status_code == 200
    assert saved.json()["etag"] == after["etag"] != before["etag"]
    assert saved.json()["digest"] == after["digest"] != before["digest"]
    assert after["document"]["components"]["Message:0"]["obj"]["params"]["content"] == ["New"]
    assert after["updated_by"] == token.id.hex
    assert workerless_client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"] == versions


def test_stale_etag_is_refused_and_nothing_is_stored(workerless_client: Client, agent: str) -> None:
    first = draft_of(workerless_client, agent)["etag"]
    second = send(workerless_client, "PATCH", agent, "draft", [replace(TEXT, "New")], first).json()["etag"]
    before = draft_of(workerless_client, agent)
    versions = workerless_client.http.get(path_of(agent, "versions")).json()["versions"]

    replies = [
        send(workerless_client, method, agent, rest, body, first)
        for method, rest, body in (
            ("PATCH", "draft", [replace(TEXT, "Lost")]),
            ("PUT", "draft", FORM),
            ("POST", "publish", {}),
            ("POST", "restore", {"version_id": versions[0]["id"]}),
        )
    ]

    assert [reply.status_code for reply in replies] == [412] * 4
    for reply in replies:
        assert reply.json()["code"] == "draft_changed"
        assert reply.json()["details"]["etag"] == second
        assert reply.json()["details"]["updated_at"] == before["updated_at"]
    assert draft_of(workerless_client, agent) == before
    assert workerless_client.http.get(path_of(agent, "versions")).json()["versions"] == versions


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [("PATCH", "draft", []), ("PUT", "draft", FORM), ("POST", "publish", {}), ("POST", "restore", {"version_id": "x"})],
)
def test_change_without_if_match_is_a_428(
    workerless_client: Client, agent: str, method: str, rest: str, body: Any
) -> None:
    reply = send(workerless_client, method, agent, rest, body, None)

    assert (reply.status_code, reply.json()["code"]) == (428, "precondition_required")


def test_save_of_the_same_document_keeps_the_etag(workerless_client: Client, agent: str) -> None:
    draft = draft_of(workerless_client, agent)

    saved = send(workerless_client, "PUT", agent, "draft", draft["document"], draft["etag"]).json()

    assert (saved["etag"], saved["digest"]) == (draft["etag"], draft["digest"])


def test_two_editors_at_once_never_overwrite_each_other(workerless_client: Client, agent: str) -> None:
    rounds, editors = 8, 4
    start = Barrier(editors)
    send(workerless_client, "PATCH", agent, "draft", [{"op": "add", "path": "/notes", "value": []}], "*")

    def edit(editor: int) -> None:
        start.wait()
        for number in range(rounds):
            while True:
                etag = draft_of(workerless_client, agent)["etag"]
                change = [{"op": "add", "path": "/notes/-", "value": [editor, number]}]
                reply = send(workerless_client, "PATCH", agent, "draft", change, etag)
                if reply.status_code == 200:
                    break
                assert reply.status_code == 412

    with ThreadPoolExecutor(editors) as threads:
        list(threads.map(edit, range(editors)))

    notes = draft_of(workerless_client, agent)["document"]["notes"]
    assert sorted(notes) == [[editor, number] for editor in range(editors) for number in range(rounds)]
    for editor in range(editors):
        assert [number for who, number in notes if who == editor] == list(range(rounds))


def test_ragflow_routes_have_the_etag_and_obey_if_match(workerless_client: Client, agent: str) -> None:
    url = f"/api/v1/agents/{agent}"
    first = workerless_client.http.get(url).headers["ETag"]
    saved = workerless_client.http.put(url, json={"dsl": FORM}, headers={"If-Match": first})
    before = workerless_client.http.get(url).json()
    versions = workerless_client.http.get(f"{url}/versions").json()

    stale = [
        workerless_client.http.request(method, url, json={"title": "Lost", "dsl": ECHO}, headers={"If-Match": first})
        for method in ("PUT", "PATCH")
    ]

    assert saved.json()["code"] == 0
    assert [(reply.status_code, reply.json()["code"]) for reply in stale] == [(412, 409)] * 2
    assert workerless_client.http.get(url).json() == before
    assert workerless_client.http.get(f"{url}/versions").json() == versions
    assert saved.headers["ETag"] == workerless_client.http.get(url).headers["ETag"] != first
    assert workerless_client.http.put(url, json={"dsl": ECHO}).json()["code"] == 0


def test_reset_raises_the_revision_of_a_draft_with_state(workerless_client: Client) -> None:
    agent = workerless_client.agent({**ECHO, "path": ["begin"]})
    before = draft_of(workerless_client, agent)["etag"]

    workerless_client.http.post(f"/api/v1/agents/{agent}/reset")

    assert draft_of(workerless_client, agent)["etag"] != before


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"op": "add"}, 400, "invalid_request"),
        ([1], 400, "bad_patch"),
        ([{"op": "zzz", "path": "/a"}], 400, "bad_patch"),
        ([replace("/nothing/there", 1)], 400, "bad_patch"),
        ([{"op": "test", "path": "/path", "value": 1}], 400, "bad_patch"),
        ([{"op": "add", "path": "", "value": []}], 400, "bad_patch"),
        ([{"op": "add", "path": "/a", "value": "\x00"}], 400, "invalid_canvas"),
        ([{"op": "copy", "from": "", "path": "/a"}] * 40, 400, "bad_patch"),
        ([{"op": "add", "path": f"{'/a' * depth}", "value": {}} for depth in range(1, 200)], 400, "invalid_canvas"),
    ],
)
def test_bad_patch_is_refused_and_nothing_is_stored(
    workerless_client: Client, agent: str, body: Any, status: int, code: str
) -> None:
    before = draft_of(workerless_client, agent)

    reply = send(workerless_client, "PATCH", agent, "draft", body, before["etag"])

    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert draft_of(workerless_client, agent) == before


def test_patch_that_makes_the_document_too_large_is_a_413(
    workerless_client: Client, workerless_server: Server, agent: str
) -> None:
    before = draft_of(workerless_client, agent)
    note = "x" * (workerless_server.config.settings.max_canvas_bytes * 2 // 5)
    large = [{"op": "add", "path": f"/note{number}", "value": note} for number in range(2)]
    first = send(workerless_client, "PATCH", agent, "draft", large, before["etag"])

    second = send(workerless_client, "PATCH", agent, "draft", [large[0] | {"path": "/more"}], first.json()["etag"])

    assert first.status_code == 200
    assert second.status_code == 413
    assert draft_of(workerless_client, agent)["etag"] == first.json()["etag"]


def test_document_that_is_not_json_is_refused_with_line_and_column(workerless_client: Client, agent: str) -> None:
    headers = {"If-Match": draft_of(workerless_client, agent)["etag"], "Content-Type": "application/json"}

    reply = workerless_client.http.put(path_of(agent), content='{"a": 1,\n  b}', headers=headers)

    assert reply.status_code == 400
    assert reply.json()["details"] == {"line": 2, "column": 3}


# -- half-drawn drafts ------------------------------------------------------------------------------------------------
def test_half_drawn_draft_is_stored_as_it_is_with_findings_and_neither_starts_nor_is_published(
    workerless_client: Client, agent: str
) -> None:
    etag = draft_of(workerless_client, agent)["etag"]

    saved = send(workerless_client, "PUT", agent, "draft", HALF_DRAWN, etag)
    published = send(workerless_client, "POST", agent, "publish", {}, saved.json()["etag"])
    started = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"})

    draft = draft_of(workerless_client, agent)
    assert saved.status_code == 200
    assert json.dumps(draft["document"]) == json.dumps(HALF_DRAWN)
    (finding,) = [each for each in saved.json()["findings"] if each["code"] == "unreadable"]
    assert (published.status_code, published.json()["code"]) == (409, "has_errors")
    assert published.json()["details"]["findings"] == saved.json()["findings"] == draft["findings"]
    assert started.status_code == 400
    assert finding in started.json()["details"]["findings"]
    for path in (f"/api/v1/viewer/agents/{agent}", f"/api/v1/agents/{agent}", "/api/v1/viewer/agents"):
        assert workerless_client.http.get(path).status_code == 200


def test_draft_with_an_error_is_saved_and_a_start_refuses_with_the_same_finding(
    workerless_client: Client, agent: str
) -> None:
    etag = draft_of(workerless_client, agent)["etag"]
    change = [{"op": "add", "path": "/components/Message:0/downstream/-", "value": "Nowhere:0"}]

    saved = send(workerless_client, "PATCH", agent, "draft", change, etag).json()

    errors = [each for each in saved["findings"] if each["severity"] == "error"]
    started = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"}).json()
    assert errors
    assert started["details"]["findings"] == errors


def test_imported_document_comes_back_with_keys_order_and_numbers(workerless_client: Client, agent: str) -> None:
    document = {"z": 1.0, "a": [2**53 + 1, 0.1, 1e22, -0.0], **ECHO, "unknown": {"b": None, "a": "ä"}}

    for body in (document, {"dsl": document}):
        etag = draft_of(workerless_client, agent)["etag"]
        assert send(workerless_client, "PUT", agent, "draft", body, etag).status_code == 200
        exported = workerless_client.http.get(path_of(agent, "export"))
        assert json.dumps(exported.json()) == json.dumps(document)
        assert "attachment" in exported.headers["Content-Disposition"]


# -- secrets ----------------------------------------------------------------------------------------------------------
def test_secrets_are_masked_kept_when_their_mask_comes_back_and_exported(workerless_client: Client) -> None:
    agent = workerless_client.agent(WITH_SECRET)
    draft = draft_of(workerless_client, agent)

    patched = send(workerless_client, "PATCH", agent, "draft", [replace(TEXT, "New")], draft["etag"])
    put = send(workerless_client, "PUT", agent, "draft", draft["document"], patched.json()["etag"])
    secret = "/components/TavilySearch:0/obj/params/api_key"
    copied = [{"op": "copy", "from": secret, "path": "/components/Message:0/obj/params/content/0"}]
    shown = send(workerless_client, "PATCH", agent, "draft", copied, put.json()["etag"])

    assert KEY not in json.dumps(draft)
    assert draft["document"]["components"]["TavilySearch:0"]["obj"]["params"]["api_key"].startswith("••••")
    assert (patched.status_code, put.status_code, shown.status_code) == (200, 200, 200)
    assert KEY not in json.dumps(draft_of(workerless_client, agent))
    exported = workerless_client.http.get(path_of(agent, "export")).json()
    assert exported["components"]["TavilySearch:0"]["obj"]["params"]["api_key"] == KEY
    assert KEY not in json.dumps(exported["components"]["Message:0"])


# -- publish and restore ----------------------------------------------------------------------------------------------
def test_publication_returns_the_version_and_restoring_makes_it_the_draft(
    workerless_client: Client, agent: str
) -> None:
    first = draft_of(workerless_client, agent)
    body = {"title": "First", "description": "greets"}
    version = send(workerless_client, "POST", agent, "publish", body, first["etag"]).json()
    changed = send(workerless_client, "PATCH", agent, "draft", [replace(TEXT, "New")], first["etag"]).json()

    restored = send(workerless_client, "POST", agent, "restore", {"version_id": version["id"]}, changed["etag"])

    assert (version["title"], version["description"], version["published"]) == ("First", "greets", True)
    assert version["digest"] == first["digest"]
    after = draft_of(workerless_client, agent)
    assert restored.json()["etag"] == after["etag"] not in (first["etag"], changed["etag"])
    assert (after["document"], after["digest"]) == (first["document"], first["digest"])
    assert after["published"] == {"version_id": version["id"], "digest": first["digest"]}


def test_repeated_publication_with_a_key_makes_one_version(workerless_client: Client, agent: str) -> None:
    etag = draft_of(workerless_client, agent)["etag"]

    one, other = (
        send(workerless_client, "POST", agent, "publish", {}, etag, **{"Idempotency-Key": "once"}) for _ in range(2)
    )

    assert one.json() == other.json()


def test_version_of_another_agent_is_not_restored(workerless_client: Client, agent: str) -> None:
    other = workerless_client.agent(FORM, "other")
    version = workerless_client.http.get(path_of(other, "versions")).json()["versions"][0]["id"]
    etag = draft_of(workerless_client, agent)["etag"]

    for wrong in (version, "x"):
        reply = send(workerless_client, "POST", agent, "restore", {"version_id": wrong}, etag)
        assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


# -- one node, and who may --------------------------------------------------------------------------------------------
def test_one_node_of_the_draft_runs_alone_with_the_given_values(client: Client) -> None:
    agent = client.agent(ECHO)

    reply = send(client, "POST", agent, "nodes/Message:0/run", {"values": {"sys.query": "alone"}}, None)

    assert reply.status_code == 202
    run = client.wait_for(reply.json()["run_id"], "succeeded")
    assert run["answer"] == "You said: alone"
    assert run["origin"]["from"] == ["Message:0"]


def test_node_that_asks_a_person_or_does_not_exist_does_not_run_alone(workerless_client: Client) -> None:
    agent = workerless_client.agent(FORM)

    asks = send(workerless_client, "POST", agent, "nodes/UserFillUp:0/run", {"values": {"name": "Ada"}}, None)
    unknown = send(workerless_client, "POST", agent, "nodes/Nothing:0/run", {"values": {}}, None)

    assert (asks.status_code, unknown.status_code) == (400, 404)


def test_variables_have_their_values_in_globals_however_they_are_saved(workerless_client: Client, agent: str) -> None:
    document = {**ECHO, "variables": {"a": {"type": "string", "value": "x"}}, "globals": {}}
    put = send(workerless_client, "PUT", agent, "draft", document, draft_of(workerless_client, agent)["etag"])
    assert draft_of(workerless_client, agent)["document"]["globals"] == {"env.a": "x"}

    send(workerless_client, "PATCH", agent, "draft", [replace("/variables/a/value", "y")], put.json()["etag"])

    assert draft_of(workerless_client, agent)["document"]["globals"] == {"env.a": "y"}


def recorded_documents() -> list[Path]:
    return sorted((Path(__file__).parents[2] / "recordings" / "ragflow").rglob("*.json"))


def test_recorded_documents_are_exported_as_they_were_imported(workerless_client: Client, agent: str) -> None:
    """T162: keys, their order, and numbers; the browser test moves a node, too."""
    etag, documents = draft_of(workerless_client, agent)["etag"], 0
    for path in recorded_documents():
        written = json.loads(path.read_text(encoding="utf-8"))
        inner = written.get("dsl", written) if isinstance(written, dict) else None
        if not isinstance(inner, dict) or not ("components" in inner or "graph" in inner):
            continue  # a recording of something else
        put = send(workerless_client, "PUT", agent, "draft", written, etag)
        assert put.status_code == 200, f"{path}: {put.text}"
        etag = put.json()["etag"]
        exported = workerless_client.http.get(path_of(agent, "export")).text
        assert (path.name, json.dumps(json.loads(exported))) == (path.name, json.dumps(inner))
        documents += 1
    assert documents >= 15


def test_templates_have_no_error_but_a_model_that_is_to_be_chosen(workerless_client: Client) -> None:
    """T165: each on the built-in model, and with a model that the tenant does not have."""
    templates = [each["id"] for each in workerless_client.http.get("/api/v1/agents/templates").json()["data"]]
    assert len(templates) >= 8
    for template in templates:
        for model in ("", "gpt-x@Nowhere"):
            made = workerless_client.http.post("/api/v1/viewer/agents", params={"template": template, "model": model})
            errors = [each for each in made.json()["findings"] if each["severity"] == "error"]
            assert (template, [each for each in errors if not model or each["field"] != "llm_id"]) == (template, [])


# -- title and description --------------------------------------------------------------------------------------------
def head_of(client: Client, agent: str) -> dict[str, Any]:
    return client.http.get(f"/api/v1/viewer/agents/{agent}").json()


def test_title_and_description_change_without_the_draft_and_what_is_published(
    workerless_client: Client, agent: str
) -> None:
    etag = draft_of(workerless_client, agent)["etag"]
    send(workerless_client, "POST", agent, "publish", {}, etag)
    before, versions = head_of(workerless_client, agent), workerless_client.http.get(path_of(agent, "versions")).json()

    titled = workerless_client.http.patch(f"/api/v1/viewer/agents/{agent}", json={"title": "  Clerk é "})
    described = workerless_client.http.patch(f"/api/v1/viewer/agents/{agent}", json={"description": "Answers mail."})
    cleared = workerless_client.http.patch(f"/api/v1/viewer/agents/{agent}", json={"title": "Clerk", "description": ""})

    assert [reply.status_code for reply in (titled, described, cleared)] == [200] * 3
    assert (titled.json()["title"], titled.json()["description"]) == ("Clerk é", before["description"])
    assert (described.json()["title"], described.json()["description"]) == ("Clerk é", "Answers mail.")
    after = head_of(workerless_client, agent)
    assert (after["title"], after["description"], after["published"]) == ("Clerk", "", True)
    assert draft_of(workerless_client, agent)["etag"] == etag
    assert workerless_client.http.get(path_of(agent, "versions")).json()["versions"] == versions["versions"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"title": " "}, 400),
        ({"title": "x" * 256}, 400),
        ({"title": 7}, 400),
        ({"title": "OTHER one"}, 409),
        ({"description": "x" * 100_001}, 400),
    ],
)
def test_title_that_is_bad_or_taken_is_refused_and_nothing_changes(
    workerless_client: Client, agent: str, body: dict[str, Any], status: int
) -> None:
    workerless_client.http.post("/api/v1/viewer/agents", params={"title": "Other One"})
    before = head_of(workerless_client, agent)

    reply = workerless_client.http.patch(f"/api/v1/viewer/agents/{agent}", json=body)

    assert reply.status_code == status, reply.text
    assert head_of(workerless_client, agent) == before


def test_title_of_another_tenants_agent_is_a_404_and_a_viewer_changes_none(
    workerless_server: Server, workerless_client: Client, reader: Client, agent: str
) -> None:
    stranger = workerless_server.client(kind="admin")

    replies = [
        client.http.patch(f"/api/v1/viewer/agents/{agent}", json={"title": "Mine"}) for client in (stranger, reader)
    ]

    assert [(reply.status_code, reply.json()["code"]) for reply in replies] == [
        (404, "not_found"),
        (403, "read_only"),
    ]
    assert head_of(workerless_client, agent)["title"] != "Mine"


@pytest.fixture
def reader(workerless_server: Server, workerless_client: Client) -> Client:
    with workerless_server.database.transaction() as tx:
        _, token = tenants.create_token(tx, workerless_client.tenant_id, "reader", "viewer")
    return workerless_server.client_of(workerless_client.tenant_id, token)


def test_viewer_reads_a_draft_and_neither_changes_nor_exports_it(
    workerless_client: Client, reader: Client, agent: str
) -> None:
    draft = draft_of(reader, agent)

    replies = [
        send(reader, method, agent, rest, body, draft["etag"])
        for method, rest, body in (
            ("PATCH", "draft", []),
            ("PUT", "draft", FORM),
            ("POST", "publish", {}),
            ("POST", "restore", {"version_id": "x"}),
            ("POST", "nodes/Message:0/run", {}),
            ("GET", "export", None),
        )
    ]

    assert [(reply.status_code, reply.json()["code"]) for reply in replies] == [(403, "read_only")] * 6
    assert draft_of(workerless_client, agent) == draft


def test_another_tenant_gets_404_on_each_route(
    workerless_server: Server, workerless_client: Client, agent: str
) -> None:
    stranger = workerless_server.client(kind="admin")
    draft = draft_of(workerless_client, agent)

    replies = [
        send(stranger, method, agent, rest, body, etag)
        for method, rest, body in (
            ("GET", "draft", None),
            ("PATCH", "draft", [replace(TEXT, "Lost")]),
            ("PUT", "draft", FORM),
            ("POST", "publish", {}),
            ("POST", "restore", {"version_id": "x"}),
            ("POST", "nodes/Message:0/run", {}),
            ("GET", "export", None),
        )
        for etag in (draft["etag"], None)
    ]

    assert [(reply.status_code, reply.json()["code"]) for reply in replies] == [(404, "not_found")] * 14
    assert draft_of(workerless_client, agent) == draft


def test_page_with_a_cookie_edits_a_draft(workerless_server: Server, workerless_client: Client, agent: str) -> None:
    with signed_in(workerless_server, workerless_client) as page:
        etag = page.get(path_of(agent)).json()["etag"]
        saved = page.patch(path_of(agent), json=[replace(TEXT, "New")], headers={"If-Match": etag})
        other_site = page.patch(path_of(agent), json=[], headers={"If-Match": "*", "Sec-Fetch-Site": "cross-site"})

    assert (saved.status_code, other_site.status_code) == (200, 403)
