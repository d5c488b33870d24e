"""ExeSQL's sessions with Trino's own client, against a test server with Trino's REST protocol."""

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
from providers.address_policy import Guard
from providers.databases.databases import DatabaseServers
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
    """Queues each statement, then returns its rows on two pages, or its error."""

    server: HTTPServer
    statements: list[str] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cancel_count: int = 0
    next_host: str = ""
    is_slow: bool = False

    def __post_init__(self) -> None:
        self.server.expect_request("/v1/statement", method="POST").respond_with_handler(self.accept_statement)
        for step in ("1", "2"):
            path = f"/v1/statement/executing/q1/{step}"
            self.server.expect_request(path, method="GET").respond_with_handler(self.continue_statement)
            self.server.expect_request(path, method="DELETE").respond_with_handler(self.cancel_statement)

    def accept_statement(self, request: Request) -> Response:
        self.statements.append(request.get_data(as_text=True))
        self.headers = dict(request.headers)
        if "nope" in self.statements[-1]:
            error = {
                "message": "line 1:15: Table 'hive.sales.nope' does not exist", "errorCode": 46,
                "errorName": "TABLE_NOT_FOUND", "errorType": "USER_ERROR", "failureInfo": {"type": "x", "message": "y"},
            }  # fmt: skip
            return self.reply(error=error, stats={"state": "FAILED"})
        return self.reply(nextUri=self.next_uri(1), stats={"state": "QUEUED"})

    def continue_statement(self, request: Request) -> Response:
        if self.is_slow:
            return self.reply(nextUri=self.next_uri(1), stats={"state": "RUNNING"})
        if request.path.endswith("1"):
            return self.reply(nextUri=self.next_uri(2), columns=COLUMNS, data=[[1, "a"]], stats={"state": "RUNNING"})
        return self.reply(columns=COLUMNS, data=[[2, None]], stats={"state": "FINISHED"})

    def cancel_statement(self, request: Request) -> Response:
        self.cancel_count += 1
        return Response(status=204)

    def next_uri(self, step: int) -> str:
        host = self.next_host or f"{self.server.host}:{self.server.port}"
        return f"http://{host}/v1/statement/executing/q1/{step}"

    def reply(self, **more: Any) -> Response:
        body = {"id": "q1", "infoUri": self.server.url_for("/ui"), "warnings": []} | more
        return Response(json.dumps(body), content_type="application/json")


@pytest.fixture
def trino(httpserver: HTTPServer) -> Trino:
    return Trino(httpserver)


def params(trino: Trino, **more: Any) -> Mapping[str, Any]:
    fields = {
        "db_type": "trino", "host": trino.server.host, "port": trino.server.port, "database": "hive.sales",
        "username": "ann", "password": "", "timeout": 5.0,
    }  # fmt: skip
    return fields | more


async def execute_all(
    params: Mapping[str, Any], *statements: str | BoundStatement, most_rows: int = 10
) -> list[Rows | str]:
    results: list[Rows | str] = []
    async with DatabaseServers(Guard(allow_any=True)).connect(params) as session:
        for statement in statements:
            try:
                results.append(await session.execute(statement, most_rows))
            except ToolError as error:
                results.append(error.message)
    return results


def test_rows_of_several_pages_are_one_result(trino: Trino):
    results = asyncio.run(execute_all(params(trino), "SELECT n, t FROM items"))

    assert results == [Rows(["n", "t"], [(1, "a"), (2, None)])]
    assert trino.statements == ["SELECT n, t FROM items"]
    assert (trino.headers["X-Trino-User"], trino.headers["X-Trino-Catalog"], trino.headers["X-Trino-Schema"]) == (
        "ann",
        "hive",
        "sales",
    )
    assert trino.headers["X-Trino-Session"] == "query_max_run_time=5000ms"
    assert "Authorization" not in trino.headers


def test_statement_error_has_the_servers_text_and_the_session_continues(trino: Trino):
    failed, rows = asyncio.run(execute_all(params(trino), "SELECT * FROM nope", "SELECT 1"))

    assert "Table 'hive.sales.nope' does not exist" in str(failed)
    assert isinstance(rows, Rows)


def test_next_uri_on_another_host_is_refused(trino: Trino):
    trino.next_host = "169.254.169.254"

    [result] = asyncio.run(execute_all(params(trino), "SELECT 1"))

    assert isinstance(result, str)


def test_statement_that_times_out_is_cancelled_on_the_server(trino: Trino):
    trino.is_slow = True

    async def time_out() -> None:
        async with DatabaseServers(Guard(allow_any=True)).connect(params(trino)) as session:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.execute("SELECT 1", 10), 0.5)

    asyncio.run(time_out())

    deadline = time.monotonic() + 5
    while not trino.cancel_count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert trino.cancel_count


def test_bound_values_are_sent_apart_from_the_statement(trino: Trino):
    asyncio.run(
        execute_all(
            params(trino), BoundStatement(("SELECT n FROM items WHERE t = ", " AND n > ", ""), ("it's; DROP", 3))
        )
    )

    assert "EXECUTE IMMEDIATE 'SELECT n FROM items WHERE t = ? AND n > ?' USING 'it''s; DROP',3" in trino.statements
