"""A tenant's MCP servers over HTTP: registered, tried out, changed, approved; their secrets stay inside."""

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
from tests.integration.api.conftest import SECRET, Server, a_server, with_settings
from tests.integration.api.talking import ECHO, Client
from tests.mcp_servers import ADD, Serving, mcp_server

PATH = "/api/v1/mcp/servers"
TOKEN = "a-token-that-is-long"


@pytest.fixture(scope="module")
def api(config: ApiConfig) -> Iterator[Server]:
    with a_server(with_settings(config, ssrf_allow="127.0.0.1")) as server:
        yield server


@pytest.fixture
def client(api: Server) -> Iterator[Client]:
    client = api.client()
    yield client
    client.http.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    with mcp_server() as serving:
        yield serving


def test_a_server_is_registered_with_its_tools_and_listed_without_its_secrets(client: Client, serving: Serving):
    serving.front = only_with_token
    headers = {"Authorization": "Bearer ${authorization_token}"}

    added = told(client, "POST", PATH, **fields(serving, headers=headers, variables={"authorization_token": TOKEN}))
    listed = client.http.get(PATH)

    (shown,) = listed.json()["data"]["mcp_servers"]
    assert listed.json()["data"]["total"] == 1
    assert (shown["id"], shown["name"], shown["server_type"]) == (added["id"], "Tools", "streamable-http")
    assert shown["headers"] == {"Authorization": "***"}
    assert shown["variables"]["authorization_token"] == "***"
    assert shown["variables"]["tools"]["add"]["inputSchema"] == ADD
    assert TOKEN not in listed.text
    assert TOKEN not in client.http.get(f"{PATH}/{added['id']}").text


def test_an_address_shows_no_user_no_password_and_no_value_of_its_query(client: Client, serving: Serving):
    host = serving.url.removeprefix("http://")
    url = f"http://ann:{TOKEN}@{host}?session={TOKEN}&v=2"
    shown_url = f"http://***@{host}?session=***&v=***"

    added = told(client, "POST", PATH, **fields(serving, url=url))
    kept = told(client, "PUT", f"{PATH}/{added['id']}", url=shown_url, description="x")
    half = client.http.put(f"{PATH}/{added['id']}", json={"url": f"http://{host}?session=***"}).json()
    tools = client.http.get(f"{PATH}/{added['id']}/tools")

    assert (added["url"], kept["url"]) == (shown_url, shown_url)
    assert (half["code"], "Write the whole address" in half["message"]) == (102, True)
    assert tools.json()["code"] == 0
    assert TOKEN not in client.http.get(PATH).text


def test_a_server_that_does_not_answer_tells_nothing_of_its_address(client: Client):
    url = f"http://ann:{TOKEN}@127.0.0.1:1/mcp?session={TOKEN}"

    refused = client.http.post(PATH, json={"name": "Tools", "url": url, "server_type": "streamable-http"})

    assert refused.json()["code"] == 102
    assert TOKEN not in refused.text


def test_no_secret_of_a_server_lies_in_its_row_as_it_is(api: Server, client: Client, serving: Serving):
    url = f"{serving.url}?key={TOKEN}"

    added = told(client, "POST", PATH, **fields(serving, url=url, headers={"X-Key": TOKEN}))

    with api.database.transaction() as tx:
        rows = tx.rows(select(mcp_servers))
    assert rows
    assert TOKEN.encode() not in b"".join(value for row in rows for value in row if isinstance(value, bytes))
    assert TOKEN not in str(rows)
    assert added["url"] == f"{serving.url}?key=***"


def test_a_server_that_cannot_be_reached_is_not_registered_unless_that_is_wanted(client: Client):
    nobody = Serving(port=1)

    refused = client.http.post(PATH, json=fields(nobody)).json()
    stored = client.http.post(PATH, json=fields(nobody, unchecked=True)).json()

    assert (refused["code"], refused["message"][:17]) == (102, "Connection failed")
    assert (stored["code"], stored["data"]["name"]) == (0, "Tools")


def test_a_private_address_is_refused(client: Client):
    reply = client.http.post(PATH, json=fields(Serving(), url="http://10.0.0.1/mcp")).json()

    assert "non-public address (10.0.0.1)" in reply["message"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "Invalid MCP name"),
        ({"url": " "}, "Invalid url."),
        ({"server_type": "stdio"}, "Unsupported MCP server type: stdio"),
        ({"timeout": 601}, "`timeout`"),
        ({"headers": "no object"}, "`headers`"),
    ],
)
def test_what_makes_no_sense_is_refused(client: Client, given: dict[str, Any], message: str):
    assert client.http.post(PATH, json=fields(Serving(), **given)).json()["message"].startswith(message)


def test_two_servers_of_one_name_are_refused(client: Client, serving: Serving):
    told(client, "POST", PATH, **fields(serving))

    assert client.http.post(PATH, json=fields(serving)).json()["message"] == "Duplicated MCP server name."


def test_a_change_keeps_what_it_does_not_name_and_what_it_shows_hidden(client: Client, serving: Serving):
    serving.front = only_with_token
    added = told(client, "POST", PATH, **fields(serving, headers={"Authorization": f"Bearer {TOKEN}"}))

    changed = told(client, "PUT", f"{PATH}/{added['id']}", name="Renamed", headers=added["headers"], timeout=30)
    tried = told(client, "POST", f"{PATH}/{added['id']}/test", tool_name="add", arguments={"a": 1, "b": 2})

    assert (changed["name"], changed["timeout"], changed["url"]) == ("Renamed", 30, serving.url)
    assert tried == "3"


def test_a_tool_that_has_changed_is_shown_so_until_it_is_approved(client: Client, serving: Serving):
    server = told(client, "POST", PATH, **fields(serving))["id"]
    serving.description = "Other words."

    before = states(client, server)
    told(client, "POST", f"{PATH}/{server}/approve", tools=["add"])

    assert (before["add"]["state"], before["add"]["approved"]["description"]) == ("changed", "Adds two numbers.")
    assert before["boom"]["state"] == "approved"
    assert states(client, server)["add"]["state"] == "approved"


def test_tools_that_are_not_there_cannot_be_approved(client: Client, serving: Serving):
    server = told(client, "POST", PATH, **fields(serving))["id"]

    reply = client.http.post(f"{PATH}/{server}/approve", json={"tools": ["nope"]}).json()

    assert (reply["code"], reply["message"]) == (102, "The server does not offer: nope.")


def test_the_configuration_of_a_client_is_imported(client: Client, serving: Serving):
    serving.front = only_with_token
    one = {"type": "streamable-http", "url": serving.url, "authorization_token": f"Bearer {TOKEN}"}
    given = {"Tools": one, "Away": {"type": "sse", "url": "http://127.0.0.1:1/sse"}, "Bad": {}}

    first = told(client, "POST", f"{PATH}/import", mcpServers=given)["results"]
    second = told(client, "POST", f"{PATH}/import", mcpServers={"Tools": one})["results"]

    assert [(it["server"], it["success"]) for it in first] == [("Tools", True), ("Away", False), ("Bad", False)]
    assert first[2]["message"] == "Missing required fields (type or url)"
    assert second[0]["new_name"] == "Tools_0"
    asked = {"mcp_ids": [first[0]["id"]]}
    assert "add" in str(told(client, "POST", f"{PATH}/list_tools", **asked)[first[0]["id"]])
    trial = {"mcp_id": first[0]["id"], "tool_name": "add", "arguments": {"a": 2, "b": 2}}
    assert told(client, "POST", f"{PATH}/test_tool", **trial) == "4"


def test_a_server_that_was_removed_is_gone(client: Client, serving: Serving):
    server = told(client, "POST", PATH, **fields(serving))["id"]

    told(client, "DELETE", f"{PATH}/{server}")

    assert client.http.get(f"{PATH}/{server}").json()["message"] == "Cannot find MCP server."


# -- headers of a caller ---------------------------------------------------------------------------------------------
def test_a_callers_headers_are_sealed_in_their_run(api: Server, client: Client):
    run = client.start(client.agent(ECHO), custom_header={"Authorization": f"Bearer {TOKEN}"})

    with api.database.transaction() as tx:
        row = run_rows.read(tx, client.tenant_id, UUID(run["run_id"]))
    assert row is not None
    assert TOKEN not in str(row)
    opened = sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), client.tenant_id, row["request"])
    assert opened == {"Authorization": f"Bearer {TOKEN}"}
    with pytest.raises(CannotUnseal):
        sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), UUID(int=7), row["request"])


# -- in other words --------------------------------------------------------------------------------------------------
def fields(serving: Serving, **given: Any) -> dict[str, Any]:
    return {"name": "Tools", "url": serving.url, "server_type": "streamable-http", **given}


def told(client: Client, method: str, path: str, **body: Any) -> Any:
    reply = client.http.request(method, path, json=body).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def states(client: Client, server: str) -> dict[str, Any]:
    return {tool["name"]: tool for tool in told(client, "GET", f"{PATH}/{server}/tools")}


async def only_with_token(request: Request) -> Response | None:
    known = request.headers.get("authorization") == f"Bearer {TOKEN}"
    return None if known else JSONResponse({"error": "who are you?"}, 401)
