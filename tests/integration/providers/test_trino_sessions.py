"""ExeSQL's sessions with Trino's own client, against a server that speaks Trino's REST protocol."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

pytest.importorskip("trino")

from canvas.errors import ToolError
from providers.databases.databases import DatabaseServers
from providers.http.address_policy import Guard
from providers.interfaces import BoundStatement, Rows

COLUMNS = [
    {"name": "n", "type": "bigint", "typeSignature": {"rawType": "bigint", "arguments": []}},
    {
        "name": "t",
        "type": "varchar",
        "typeSignature": {"rawType": "varchar", "arguments": [{"kind": "LONG", "value": 2147483647}]},
    },
]


@dataclass
class Trino:
    """Queues each statement, then gives its rows in two parts, or its failure."""

    server: HTTPServer
    asked: list[str] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    called_off: int = 0
    next_host: str = ""
    is_slow: bool = False

    def __post_init__(self) -> None:
        self.server.expect_request("/v1/statement", method="POST").respond_with_handler(self.take)
        for step in ("1", "2"):
            path = f"/v1/statement/executing/q1/{step}"
            self.server.expect_request(path, method="GET").respond_with_handler(self.go_on)
            self.server.expect_request(path, method="DELETE").respond_with_handler(self.call_off)

    def take(self, request: Request) -> Response:
        self.asked.append(request.get_data(as_text=True))
        self.headers = dict(request.headers)
        if "nope" in self.asked[-1]:
            error = {
                "message": "line 1:15: Table 'hive.sales.nope' does not exist", "errorCode": 46,
                "errorName": "TABLE_NOT_FOUND", "errorType": "USER_ERROR", "failureInfo": {"type": "x", "message": "y"},
            }  # fmt: skip
            return self.told(error=error, stats={"state": "FAILED"})
        return self.told(nextUri=self.next(1), stats={"state": "QUEUED"})

    def go_on(self, request: Request) -> Response:
        if self.is_slow:
            return self.told(nextUri=self.next(1), stats={"state": "RUNNING"})
        if request.path.endswith("1"):
            return self.told(nextUri=self.next(2), columns=COLUMNS, data=[[1, "a"]], stats={"state": "RUNNING"})
        return self.told(columns=COLUMNS, data=[[2, None]], stats={"state": "FINISHED"})

    def call_off(self, request: Request) -> Response:
        self.called_off += 1
        return Response(status=204)

    def next(self, step: int) -> str:
        host = self.next_host or f"{self.server.host}:{self.server.port}"
        return f"http://{host}/v1/statement/executing/q1/{step}"

    def told(self, **more: Any) -> Response:
        told = {"id": "q1", "infoUri": self.server.url_for("/ui"), "warnings": []} | more
        return Response(json.dumps(told), content_type="application/json")


@pytest.fixture
def trino(httpserver: HTTPServer) -> Trino:
    return Trino(httpserver)


def params(trino: Trino, **more: Any) -> Mapping[str, Any]:
    told = {
        "db_type": "trino", "host": trino.server.host, "port": trino.server.port, "database": "hive.sales",
        "username": "ann", "password": "", "timeout": 5.0,
    }  # fmt: skip
    return told | more


async def ask(params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10) -> list[Rows | str]:
    told: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                told.append(await session.execute(statement, most_rows))
            except ToolError as error:
                told.append(error.message)
    return told


def test_rows_come_in_parts_and_are_one_answer(trino: Trino):
    told = asyncio.run(ask(params(trino), "SELECT n, t FROM items"))

    assert told == [Rows(["n", "t"], [(1, "a"), (2, None)])]
    assert trino.asked == ["SELECT n, t FROM items"]
    assert (trino.headers["X-Trino-User"], trino.headers["X-Trino-Catalog"], trino.headers["X-Trino-Schema"]) == (
        "ann",
        "hive",
        "sales",
    )
    assert trino.headers["X-Trino-Session"] == "query_max_run_time=5000ms"
    assert "Authorization" not in trino.headers


def test_a_mistake_is_told_in_the_servers_words_and_the_session_goes_on(trino: Trino):
    failed, rows = asyncio.run(ask(params(trino), "SELECT * FROM nope", "SELECT 1"))

    assert "Table 'hive.sales.nope' does not exist" in str(failed)
    assert isinstance(rows, Rows)


def test_the_server_cannot_send_the_client_elsewhere(trino: Trino):
    trino.next_host = "169.254.169.254"

    [told] = asyncio.run(ask(params(trino), "SELECT 1"))

    assert isinstance(told, str)


def test_a_statement_without_an_end_has_the_nodes_time_and_is_called_off(trino: Trino):
    trino.is_slow = True

    async def waited() -> None:
        async with DatabaseServers(Guard(allow_any=True)).connect(params(trino)) as session:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.execute("SELECT 1", 10), 0.5)

    asyncio.run(waited())

    deadline = time.monotonic() + 5
    while not trino.called_off and time.monotonic() < deadline:
        time.sleep(0.02)
    assert trino.called_off


def test_values_go_to_the_server_apart_from_the_statement(trino: Trino):
    asyncio.run(
        ask(params(trino), BoundStatement(("SELECT n FROM items WHERE t = ", " AND n > ", ""), ("it's; DROP", 3)))
    )

    assert "EXECUTE IMMEDIATE 'SELECT n FROM items WHERE t = ? AND n > ?' USING 'it''s; DROP',3" in trino.asked
