"""A tenant's MCP servers over HTTP: registered, tested, changed, approved; their secrets are never shown."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.app import ApiConfig
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.runs import run_rows
from store.tables.mcp import mcp_servers
from store.tenants import sealed_headers
from tests.integration.api.conftest import SECRET, Server, start_server, with_settings
from tests.integration.api.talking import ECHO, Client
from tests.mcp_servers import ADD, RunningMcpServer, mcp_server

PATH = "/api/v1/mcp/servers"
TOKEN = "a-token-that-is-long"


@pytest.fixture(scope="module")
def api(config: ApiConfig) -> Iterator[Server]:
    with start_server(with_settings(config, ssrf_allow="127.0.0.1")) as server:
        yield server


@pytest.fixture
def client(api: Server) -> Iterator[Client]:
    client = api.client()
    yield client
    client.http.close()


@pytest.fixture
def serving() -> Iterator[RunningMcpServer]:
    with mcp_server() as serving:
        yield serving


def test_a_server_is_registered_with_its_tools_and_listed_without_its_secrets(
    client: Client, serving: RunningMcpServer
):
    serving.front = require_token
    headers = {"Authorization": "Bearer ${authorization_token}"}

    added = send(client, "POST", PATH, **fields(serving, headers=headers, variables={"authorization_token": TOKEN}))
    listed = client.http.get(PATH)

    (entry,) = listed.json()["data"]["mcp_servers"]
    assert listed.json()["data"]["total"] == 1
    assert (entry["id"], entry["name"], entry["server_type"]) == (added["id"], "Tools", "streamable-http")
    assert entry["headers"] == {"Authorization": "***"}
    assert entry["variables"]["authorization_token"] == "***"
    assert entry["variables"]["tools"]["add"]["inputSchema"] == ADD
    assert TOKEN not in listed.text
    assert TOKEN not in client.http.get(f"{PATH}/{added['id']}").text


def test_url_of_a_server_is_shown_without_user_password_and_query_values(client: Client, serving: RunningMcpServer):
    host = serving.url.removeprefix("http://")
    url = f"http://ann:{TOKEN}@{host}?session={TOKEN}&v=2"
    shown_url = f"http://***@{host}?session=***&v=***"

    added = send(client, "POST", PATH, **fields(serving, url=url))
    unchanged = send(client, "PUT", f"{PATH}/{added['id']}", url=shown_url, description="x")
    incomplete = client.http.put(f"{PATH}/{added['id']}", json={"url": f"http://{host}?session=***"}).json()
    tools = client.http.get(f"{PATH}/{added['id']}/tools")

    assert (added["url"], unchanged["url"]) == (shown_url, shown_url)
    assert (incomplete["code"], "Write the whole address" in incomplete["message"]) == (102, True)
    assert tools.json()["code"] == 0
    assert TOKEN not in client.http.get(PATH).text


def test_error_of_an_unreachable_server_shows_no_secret_of_its_url(client: Client):
    url = f"http://ann:{TOKEN}@127.0.0.1:1/mcp?session={TOKEN}"

    refused = client.http.post(PATH, json={"name": "Tools", "url": url, "server_type": "streamable-http"})

    assert refused.json()["code"] == 102
    assert TOKEN not in refused.text


def test_row_of_a_server_contains_no_secret_in_plain_text(api: Server, client: Client, serving: RunningMcpServer):
    url = f"{serving.url}?key={TOKEN}"

    added = send(client, "POST", PATH, **fields(serving, url=url, headers={"X-Key": TOKEN}))

    with api.database.transaction() as tx:
        rows = tx.rows(select(mcp_servers))
    assert rows
    assert TOKEN.encode() not in b"".join(value for row in rows for value in row if isinstance(value, bytes))
    assert TOKEN not in str(rows)
    assert added["url"] == f"{serving.url}?key=***"


def test_unreachable_server_is_registered_only_if_unchecked(client: Client):
    unreachable = RunningMcpServer(port=1)

    refused = client.http.post(PATH, json=fields(unreachable)).json()
    stored = client.http.post(PATH, json=fields(unreachable, unchecked=True)).json()

    assert (refused["code"], refused["message"][:17]) == (102, "Connection failed")
    assert (stored["code"], stored["data"]["name"]) == (0, "Tools")


def test_server_at_a_private_address_is_refused(client: Client):
    reply = client.http.post(PATH, json=fields(RunningMcpServer(), url="http://10.0.0.1/mcp")).json()

    assert "non-public address (10.0.0.1)" in reply["message"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "Invalid MCP name"),
        ({"url": " "}, "Invalid url."),
        ({"server_type": "stdio"}, "Unsupported MCP server type: stdio"),
        ({"timeout": 601}, "`timeout`"),
        ({"headers": "no object"}, "`headers`"),
    ],
)
def test_server_with_invalid_fields_is_refused(client: Client, changes: dict[str, Any], message: str):
    assert client.http.post(PATH, json=fields(RunningMcpServer(), **changes)).json()["message"].startswith(message)


def test_second_server_with_the_same_name_is_refused(client: Client, serving: RunningMcpServer):
    send(client, "POST", PATH, **fields(serving))

    assert client.http.post(PATH, json=fields(serving)).json()["message"] == "Duplicated MCP server name."


def test_update_keeps_omitted_fields_and_masked_secrets(client: Client, serving: RunningMcpServer):
    serving.front = require_token
    added = send(client, "POST", PATH, **fields(serving, headers={"Authorization": f"Bearer {TOKEN}"}))

    changed = send(client, "PUT", f"{PATH}/{added['id']}", name="Renamed", headers=added["headers"], timeout=30)
    result = send(client, "POST", f"{PATH}/{added['id']}/test", tool_name="add", arguments={"a": 1, "b": 2})

    assert (changed["name"], changed["timeout"], changed["url"]) == ("Renamed", 30, serving.url)
    assert result == "3"


def test_changed_tool_is_shown_as_changed_until_it_is_approved(client: Client, serving: RunningMcpServer):
    server = send(client, "POST", PATH, **fields(serving))["id"]
    serving.description = "Other words."

    before = list_tools(client, server)
    send(client, "POST", f"{PATH}/{server}/approve", tools=["add"])

    assert (before["add"]["state"], before["add"]["approved"]["description"]) == ("changed", "Adds two numbers.")
    assert before["boom"]["state"] == "approved"
    assert list_tools(client, server)["add"]["state"] == "approved"


def test_unknown_tools_cannot_be_approved(client: Client, serving: RunningMcpServer):
    server = send(client, "POST", PATH, **fields(serving))["id"]

    reply = client.http.post(f"{PATH}/{server}/approve", json={"tools": ["nope"]}).json()

    assert (reply["code"], reply["message"]) == (102, "The server does not offer: nope.")


def test_servers_are_imported_from_an_mcp_client_configuration(client: Client, serving: RunningMcpServer):
    serving.front = require_token
    one = {"type": "streamable-http", "url": serving.url, "authorization_token": f"Bearer {TOKEN}"}
    servers = {"Tools": one, "Away": {"type": "sse", "url": "http://127.0.0.1:1/sse"}, "Bad": {}}

    first = send(client, "POST", f"{PATH}/import", mcpServers=servers)["results"]
    second = send(client, "POST", f"{PATH}/import", mcpServers={"Tools": one})["results"]

    assert [(it["server"], it["success"]) for it in first] == [("Tools", True), ("Away", False), ("Bad", False)]
    assert first[2]["message"] == "Missing required fields (type or url)"
    assert second[0]["new_name"] == "Tools_0"
    ids = {"mcp_ids": [first[0]["id"]]}
    assert "add" in str(send(client, "POST", f"{PATH}/list_tools", **ids)[first[0]["id"]])
    trial = {"mcp_id": first[0]["id"], "tool_name": "add", "arguments": {"a": 2, "b": 2}}
    assert send(client, "POST", f"{PATH}/test_tool", **trial) == "4"


def test_deleted_server_is_not_found(client: Client, serving: RunningMcpServer):
    server = send(client, "POST", PATH, **fields(serving))["id"]

    send(client, "DELETE", f"{PATH}/{server}")

    assert client.http.get(f"{PATH}/{server}").json()["message"] == "Cannot find MCP server."


# -- custom headers --------------------------------------------------------------------------------------------------
def test_custom_headers_of_a_caller_are_sealed_in_the_run(api: Server, client: Client):
    run = client.start(client.agent(ECHO), custom_header={"Authorization": f"Bearer {TOKEN}"})

    with api.database.transaction() as tx:
        row = run_rows.read(tx, client.tenant_id, UUID(run["run_id"]))
    assert row is not None
    assert TOKEN not in str(row)
    opened = sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), client.tenant_id, row["request"])
    assert opened == {"Authorization": f"Bearer {TOKEN}"}
    with pytest.raises(CannotUnseal):
        sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), UUID(int=7), row["request"])


# -- helpers ---------------------------------------------------------------------------------------------------------
def fields(serving: RunningMcpServer, **changes: Any) -> dict[str, Any]:
    return {"name": "Tools", "url": serving.url, "server_type": "streamable-http", **changes}


def send(client: Client, method: str, path: str, **body: Any) -> Any:
    reply = client.http.request(method, path, json=body).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def list_tools(client: Client, server: str) -> dict[str, Any]:
    return {tool["name"]: tool for tool in send(client, "GET", f"{PATH}/{server}/tools")}


async def require_token(request: Request) -> Response | None:
    is_authorized = request.headers.get("authorization") == f"Bearer {TOKEN}"
    return None if is_authorized else JSONResponse({"error": "who are you?"}, 401)
