"""The templates of agents, each run end to end: on the built-in model, and with what it needs beside a model."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from openpyxl import load_workbook
from pydantic import SecretStr
from pytest_httpserver import HTTPServer

import local_engine
from api.agents.templates import MODEL, read_templates
from api.app import ApiConfig
from canvas.document.drawing import components_of
from embedded import EmbeddedServers
from providers.address_policy import Guard
from settings import Settings
from tests import services as test_services
from tests.integration.api.conftest import SECRET, Server, start_server
from tests.integration.api.talking import Client, eventually
from tests.integration.worker.scripted_vendor import KEY, ScriptedVendor, calls, said, vendor_of

REAL_MODEL = "m@OpenAI-API-Compatible"
ARTICLE = {"title": "Printing press", "extract": "Gutenberg built one around 1440.", "index": 1}
PAGE = """
<div class="result"><a class="result__a" href="https://example.com/prices">Widget prices</a>
<a class="result__snippet">They rose 4% in May.</a></div>
"""
ARTICLES = {
    "query": {"pages": [{"title": "Printing press", "extract": "Gutenberg built one around 1440.", "index": 1}]}
}


@dataclass(frozen=True)
class Deployment:
    """An API with an engine, whose tools and models lead to servers of the test."""

    server: Server
    web: HTTPServer
    vendor: ScriptedVendor
    database_url: str


@pytest.fixture(scope="package")
def deployment(
    services: EmbeddedServers, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    redis_url = test_services.emptied_redis(services.redis_url, "api")
    home = tmp_path_factory.mktemp("templates")
    with (
        HTTPServer(host="127.0.0.1", threaded=True) as web,
        vendor_of() as vendor,
        test_services.fresh_database(services.database_url, template) as database_url,
    ):
        settings = settings_of(home, web, vendor, database_url, redis_url)
        guard = Guard(allowed=("127.0.0.1", "localhost"))
        with (
            local_engine.run_engine(settings, *settings.servers()[:2], threads=8, guard=guard),
            start_server(ApiConfig(settings, poll_interval=0.5)) as server,
        ):
            yield Deployment(server, web, vendor, database_url)


def settings_of(home: Path, web: HTTPServer, vendor: ScriptedVendor, database_url: str, redis_url: str) -> Settings:
    accounts = home / "accounts.toml"
    accounts.write_text(
        f'[[account]]\nfactory = "OpenAI-API-Compatible"\nbase_url = "http://127.0.0.1:{vendor.port}/v1"\n'
        f'api_key = "{KEY}"\n[account.models.m]\nis_tools = true\n'
    )
    tools = {f"TOOL_{tool}_BASE_URL": web.url_for("/").rstrip("/") for tool in ("DUCKDUCKGO", "WIKIPEDIA")}
    os.environ.update(tools)
    try:
        return Settings(
            home=home,
            database_url=database_url,
            redis_url=redis_url,
            api_pool=4,
            models_file=accounts,
            secret_key=SecretStr(SECRET),
        )
    finally:
        for name in tools:
            del os.environ[name]


@pytest.fixture
def client(deployment: Deployment) -> Iterator[Client]:
    """A client of a tenant of its own."""
    made = deployment.server.client(kind="admin")
    yield made
    made.http.close()
    deployment.web.clear()


def created(client: Client, template: str, **params: str) -> dict[str, Any]:
    reply = client.http.post("/api/v1/viewer/agents", params={"template": template, **params})
    assert reply.status_code == 201, reply.text
    return reply.json()


def change_form(client: Client, agent_id: str, node: str, **values: Any) -> list[dict[str, Any]]:
    """Change parameters of a drawn node, as the editor does; return the findings of the draft."""
    path = f"/api/v1/viewer/agents/{agent_id}/draft"
    draft = client.http.get(path).json()
    place = next(at for at, each in enumerate(draft["document"]["graph"]["nodes"]) if each["id"] == node)
    patch = [
        {"op": "add", "path": f"/graph/nodes/{place}/data/form/{name}", "value": value}
        for name, value in values.items()
    ]
    reply = client.http.patch(path, json=patch, headers={"If-Match": draft["etag"]})
    assert reply.status_code == 200, reply.text
    return reply.json()["findings"]


def started(client: Client, agent_id: str, template: str, **changes: Any) -> str:
    """Start an agent with the example of its template."""
    reply = client.http.post(
        f"/api/v1/agents/{agent_id}/runs", json={**read_templates()[template]["example"], **changes}
    )
    assert reply.status_code == 202, reply.text
    return reply.json()["run_id"]


def ended(client: Client, run_id: str, status: str = "succeeded") -> dict[str, Any]:
    run = client.wait_for(run_id, "succeeded", "failed", "cancelled")
    assert run["status"] == status, run["error"]
    return run


def outputs_of(client: Client, run_id: str, node: str) -> Mapping[str, Any]:
    events = client.http.get(f"/api/v1/runs/{run_id}/events?detail=1&limit=500").json()["events"]
    found = [each["data"] for each in events if each["event"] == "node_finished"]
    return next(data["outputs"] for data in found if data["component_id"] == node)


def codes(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(found["severity"], found["code"]) for found in findings]


# -- all of them ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(read_templates()))
def test_template_opens_in_ragflow_and_has_an_example(name: str) -> None:
    template = read_templates()[name]
    document = template["dsl"]

    assert template["title"]["en"]
    assert template["description"]["en"]
    assert set(template["example"]) <= {"query", "inputs"}
    assert document["components"] == components_of(document["graph"])
    assert all({"x", "y"} <= set(node["position"]) for node in document["graph"]["nodes"])
    assert {"history", "path", "retrieval", "globals"} <= set(document)


@pytest.mark.parametrize("name", sorted(read_templates()))
def test_template_has_no_error_and_one_setting_chooses_its_model(client: Client, name: str) -> None:
    made = created(client, name, model=REAL_MODEL)
    document = client.http.get(f"/api/v1/viewer/agents/{made['id']}/draft").json()["document"]

    assert [found for found in made["findings"] if found["severity"] == "error"] == []
    assert MODEL not in json.dumps(document)
    assert json.dumps(document).count(REAL_MODEL) == json.dumps(read_templates()[name]["dsl"]).count(MODEL) > 0


def test_model_without_a_template_is_refused(client: Client) -> None:
    reply = client.http.post("/api/v1/viewer/agents", params={"model": REAL_MODEL})

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, "model")


# -- one by one, T165 -------------------------------------------------------------------------------------------------
def test_chat_answers_with_the_built_in_and_with_a_real_model(client: Client, deployment: Deployment) -> None:
    deployment.vendor.script.append(said("A graph ", "of nodes."))

    answers = [
        ended(client, started(client, created(client, "chat", **params)["id"], "chat"))["answer"]
        for params in ({}, {"model": REAL_MODEL})
    ]

    assert answers == ["What is a canvas?", "A graph of nodes."]


@pytest.mark.parametrize(
    ("query", "urgency", "answer"),
    [
        ("I have a problem: the parcel arrived broken.", "normal", "Order 4711: The glass is broken"),
        ("I have a problem: the parcel arrived broken.", "urgent", "A colleague takes over"),
        ("I want to talk to a person.", None, "Request: I want to talk to a person."),
        ("When do you open?", None, "When do you open?"),
    ],
)
def test_customer_support_asks_by_a_form_and_hands_over(
    client: Client, query: str, urgency: str | None, answer: str
) -> None:
    run_id = started(client, created(client, "customer_support")["id"], "customer_support", query=query)
    if urgency is not None:
        client.wait_for(run_id, "waiting")
        inputs = {"order": "4711", "details": "The glass is broken", "urgency": urgency}
        client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": inputs})

    assert answer in ended(client, run_id)["answer"]


def test_web_research_answers_from_pages_and_cites_them(client: Client, deployment: Deployment) -> None:
    deployment.web.expect_request("/html/").respond_with_data(PAGE, content_type="text/html")

    run = ended(client, started(client, created(client, "web_research")["id"], "web_research"))

    assert "They rose 4% in May." in run["answer"]
    events = client.http.get(f"/api/v1/runs/{run['id']}/events?detail=1&limit=500").json()["events"]
    references = [each["data"].get("reference") for each in events if each["event"] == "message_end"]
    assert "https://example.com/prices" in json.dumps(references)


def test_web_research_that_is_refused_names_the_remedy(client: Client, deployment: Deployment) -> None:
    deployment.web.expect_request("/html/").respond_with_data("no", status=403)

    run = ended(client, started(client, created(client, "web_research")["id"], "web_research"), "failed")

    assert "choose another tool" in run["error"]


def test_document_questions_are_answered_from_a_knowledge_base(client: Client) -> None:
    base = client.http.post("/api/v1/datasets", json={"name": "rules"}).json()["data"]["id"]
    files = {"file": ("rules.md", b"Everybody has 30 days of vacation.", "text/markdown")}
    (document,) = client.http.post(f"/api/v1/datasets/{base}/documents", files=files).json()["data"]
    client.http.post(f"/api/v1/datasets/{base}/chunks", json={"document_ids": [document["id"]]})
    listed = f"/api/v1/datasets/{base}/documents"
    eventually(lambda: client.http.get(listed).json()["data"]["docs"][0]["run"], lambda state: state == "DONE")
    made = created(client, "document_questions")

    findings = change_form(client, made["id"], "Retrieval:Documents", dataset_ids=[base])

    assert codes(made["findings"]) == [("warning", "no_dataset")]
    assert "Choose one" in made["findings"][0]["message"]
    assert findings == []
    run = ended(client, started(client, made["id"], "document_questions"))
    assert "30 days of vacation" in run["answer"]


def test_extracted_rows_are_an_excel_file(client: Client, deployment: Deployment) -> None:
    rows = [{"date": "2026-03-03", "company": "Acme Ltd", "subject": "12 widgets", "amount": 240, "currency": "EUR"}]
    deployment.vendor.script.append(said(json.dumps({"rows": rows})))

    for params, company in (({}, "unknown"), ({"model": REAL_MODEL}, "Acme Ltd")):
        run = ended(client, started(client, created(client, "extract_to_excel", **params)["id"], "extract_to_excel"))
        file = outputs_of(client, run["id"], "ExcelProcessor:Table")["attachment"]
        sheet = load_workbook(BytesIO(client.http.get(file["download_url"]).content)).active
        assert sheet is not None
        assert [cell.value for cell in sheet[2]][1] == company
        assert "Generated rows.xlsx" in run["answer"]


def test_sql_assistant_shows_the_rows_of_a_database(client: Client, services: EmbeddedServers, template: str) -> None:
    made = created(client, "sql_assistant")
    without = ended(client, started(client, made["id"], "sql_assistant"), "failed")
    with test_services.fresh_database(services.database_url, template) as database_url:
        with psycopg.connect(database_url.replace("+psycopg", "", 1), autocommit=True) as connection:
            connection.execute("create table orders (id integer, status text)")
            connection.execute("insert into orders values (1, 'open'), (2, 'open'), (3, 'paid')")
        url = urlsplit(database_url)
        database = {"host": url.hostname, "port": url.port, "database": url.path.lstrip("/")}
        user = {"username": unquote(url.username or ""), "password": unquote(url.password or "") or "none"}
        change_form(client, made["id"], "ExeSQL:Query", **database, **user)
        run = ended(client, started(client, made["id"], "sql_assistant"))

    assert made["findings"] == []
    assert "enter-the-host-of-your-database" in without["error"]
    assert outputs_of(client, run["id"], "ExeSQL:Query")["json"] == [
        [{"status": "open", "orders": 2}, {"status": "paid", "orders": 1}]
    ]
    assert "open" in run["answer"]


def test_webhook_triage_refuses_calls_until_it_has_a_token_and_then_answers(client: Client) -> None:
    made = created(client, "webhook_triage")
    path = f"/api/v1/agents/{made['id']}/webhook/test"
    call = read_templates()["webhook_triage"]["example"]["inputs"]["body"]["value"]
    refused = client.http.post(path, json=call)

    draft = client.http.get(f"/api/v1/viewer/agents/{made['id']}/draft").json()
    security = draft["document"]["graph"]["nodes"][0]["data"]["form"]["security"]
    security["token"]["token_value"] = "a long random text"
    findings = change_form(client, made["id"], "begin", security=security)
    replies = [
        client.http.post(path, json={"subject": "Hi", "text": text}, headers={"X-Token": "a long random text"}).json()
        for text in (call["text"], "Request: a new user", "Noise.")
    ]

    assert codes(made["findings"]) == [("warning", "no_credentials")]
    assert refused.status_code == 400
    assert findings == []
    assert [reply["message"] for reply in replies] == [f"on call: Hi: {call['text']}", "queue: Hi", "noise"]
    assert "on call" in ended(client, started(client, made["id"], "webhook_triage"))["answer"]


def test_report_on_a_list_has_each_item_and_a_word_file(client: Client) -> None:
    run = ended(client, started(client, created(client, "list_report")["id"], "list_report"))

    assert [fruit for fruit in ("apples", "pears", "plums") if fruit not in run["answer"]] == []
    download = json.loads(outputs_of(client, run["id"], "DocGenerator:Report")["download"])
    assert download["filename"] == "report.docx"
    assert client.http.get(download["download_url"]).content[:2] == b"PK"


def test_agent_with_sub_agents_asks_both_and_answers(client: Client, deployment: Deployment) -> None:
    deployment.web.expect_request("/w/api.php").respond_with_json({"query": {"pages": [ARTICLE]}})
    task = {"user_prompt": "the printing press", "reasoning": "facts", "context": "none"}
    deployment.vendor.script += [
        calls("facts", name="Researcher_0", **task),
        calls("printing press", name="wikipedia_search_0"),
        said("Gutenberg built one around 1440."),
        calls("review", name="Reviewer_1", **task),
        said("no objections"),
        said("Gutenberg built it around 1440."),
    ]

    agent = created(client, "agent_team", model=REAL_MODEL)["id"]
    run = ended(client, started(client, agent, "agent_team"))

    assert deployment.vendor.script == []
    assert "Gutenberg built it around 1440." in run["answer"]
    asked = [json.dumps(request["messages"]) for request in deployment.vendor.requests]
    assert any("Printing press" in messages for messages in asked)
    question = read_templates()["agent_team"]["example"]["query"]
    assert ended(client, started(client, created(client, "agent_team")["id"], "agent_team"))["answer"] == question
