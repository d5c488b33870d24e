"""External effects of tools: programs, databases, datasets, email, and the addresses that may be reached."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from canvas.errors import AddressRefused, ToolError
from canvas.outcome import Failed, Finished
from components.tools.code.code_exec import CODE_EXEC
from components.tools.email.send import EMAIL
from components.tools.framework.tool_node import tool_component
from components.tools.retrieval import RETRIEVAL
from components.tools.sql.exesql import EXESQL
from components.tools.web_search.crawler import CRAWLER
from components.tools.web_search.searxng import SEARXNG
from knowledge.retriever import memory_query_of
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import (
    DatabaseSession,
    DeliveryUnknown,
    HttpCall,
    HttpResponse,
    MailAccount,
    Program,
    ProgramResult,
    RetrievalQuery,
    Rows,
    Services,
)
from providers.mail import MailServers
from tests.deviations.observed_run import covers_rows
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.tools.vendors import json_reply, outputs_of, vendor

# -- T13, T14, T16: programs, databases, datasets --------------------------------------------------------------------


class FakeSandbox:
    """A sandbox that returns the same result for every program."""

    is_repeatable = True

    def __init__(self, result: ProgramResult) -> None:
        self.result = result
        self.programs: list[Program] = []

    async def run(self, program: Program) -> ProgramResult:
        self.programs.append(program)
        return self.result


def run_program(sandbox: FakeSandbox, **params: Any) -> Finished | Failed:
    ctx = FakeContext(globals={"env.v": "'); boom('"}, services=Services(FakeHttp(no_network), sandbox=sandbox))
    outcome = run(tool_component(CODE_EXEC), {"lang": "python", "script": "def main(): ...", **params}, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


@covers_rows("T13")
def test_program_with_an_error_exit_code_fails_despite_output():
    outcome = run_program(FakeSandbox(ProgramResult(stdout="42", stderr="Traceback: no", exit_code=1)))

    assert isinstance(outcome, Failed)
    assert "no" in outcome.error


@covers_rows("T13")
def test_program_arguments_are_not_inserted_into_the_script():
    sandbox = FakeSandbox(ProgramResult(value="done", has_value=True))

    run_program(sandbox, arguments={"v": "env.v"}, outputs={"result": {"type": "string"}})

    assert sandbox.programs[0].arguments == {"v": "'); boom('"}
    assert "boom" not in sandbox.programs[0].script


class FakeDatabase:
    """A database that finds no rows for a query with `nothing`, and fails for one with `bad`."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator[DatabaseSession]:
        yield self

    async def execute(self, sql: str, most_rows: int) -> Rows:
        self.requests.append(sql)
        if "bad" in sql:
            raise ToolError("no such table")
        return Rows(["n"], [] if "nothing" in sql else [[1]])


def run_query(database: FakeDatabase, sql: str) -> Mapping[str, Any]:
    target = {"db_type": "mysql", "database": "d", "username": "u", "password": "pass-1234", "host": "db.test"}
    ctx = FakeContext(services=Services(FakeHttp(no_network), databases=database))
    outcome = run(tool_component(EXESQL), {**target, "sql": sql}, ctx)
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs


@covers_rows("T14")
def test_sql_statements_after_an_empty_or_failed_one_are_executed():
    database = FakeDatabase()

    outputs = run_query(database, "select 1 as nothing; select bad; select ';' as n")

    assert len(database.requests) == len(outputs["json"]) == 3
    assert outputs["json"][2] == [{"n": 1}]


@covers_rows("T14")
def test_sql_statement_that_writes_is_not_sent():
    database = FakeDatabase()

    run_query(database, "select 1; with gone as (select 1) delete from t")

    assert len(database.requests) == 1


class FakeRetriever:
    """A retriever that finds nothing and records its queries."""

    def __init__(self) -> None:
        self.requests: list[RetrievalQuery] = []

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        self.requests.append(search)
        return {"chunks": [], "doc_aggs": []}


@covers_rows("T16")
@pytest.mark.parametrize(
    ("query", "question"), [("user guide", "user guide"), ("user: guide", "guide"), ("User： guide", "guide")]
)
def test_retrieval_removes_only_a_user_prefix_from_the_question(query: str, question: str):
    retriever = FakeRetriever()
    ctx = FakeContext(services=Services(FakeHttp(no_network), retriever=retriever))

    run(tool_component(RETRIEVAL), {"query": query, "dataset_ids": ["d1"]}, ctx)

    assert [search.question for search in retriever.requests] == [question]


# -- T15: email ------------------------------------------------------------------------------------------------------


class FailingMailServer:
    """A mail server that disconnects during the first message."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.recipients: list[str] = []

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["FailingMailServer"]:
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        self.recipients += recipients
        return {}

    async def deliver(self, message: bytes) -> None:
        self.messages.append(message)
        raise DeliveryUnknown


@covers_rows("T15")
def test_email_with_unknown_delivery_state_is_not_sent_again():
    mail_server = FailingMailServer()
    account = {"smtp_server": "smtp.test", "email": "me@x.test", "password": "pass-1234", "sender_name": "Ann"}
    ctx = FakeContext(services=Services(FakeHttp(no_network), mail=mail_server))

    outcome = run(tool_component(EMAIL), {**account, "to_email": "a@x.test; b@x.test", "max_retries": 3}, ctx)

    assert isinstance(outcome, Failed)
    assert outcome.error == "delivery state unknown"
    assert (len(mail_server.messages), mail_server.recipients) == (1, ["a@x.test", "b@x.test"])


# -- T20: memories ---------------------------------------------------------------------------------------------------
@covers_rows("T20")
def test_memory_search_uses_the_keyword_weight_for_keywords():
    options = {"keywords_similarity_weight": 0.9, "similarity_threshold": 0.1, "top_n": 3, "user_id": "ann"}

    query = memory_query_of(RetrievalQuery("tea", memory_ids=["m1"], options=options))

    assert (query.word_weight, query.threshold, query.limit, query.scope.user_id) == (0.9, 0.1, 3, "ann")


# -- T19: checked addresses -------------------------------------------------------------------------------------------


@covers_rows("T19")
def test_request_to_a_host_of_the_author_is_not_trusted():
    http = vendor(json_reply({"results": []}))

    outputs_of(SEARXNG, {"query": "q", "searxng_url": "http://search.test"}, http)

    assert [call.trusted for call in http.calls] == [False]


@covers_rows("T19")
def test_crawler_and_mail_server_addresses_are_checked():
    http = vendor(HttpResponse(200, {"content-type": "text/html"}, b"<p>x", "https://site.test/"))
    account = MailAccount("127.0.0.1", 465, "me", "pass-1234", tls=True, timeout=5.0)

    async def connect() -> None:
        async with MailServers(Guard()).connect(account):
            raise AssertionError("unreachable")

    outputs_of(CRAWLER, {"query": "http://site.test/"}, http)

    assert [call.trusted for call in http.calls] == [False]
    with pytest.raises(AddressRefused, match=re.escape("127.0.0.1")):
        asyncio.run(connect())


@covers_rows("T19", "E25")
@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/"])
def test_request_to_a_private_address_is_refused(url: str):
    async def send_request() -> HttpResponse:
        http = HttpClient(Guard())
        try:
            return await http.send(HttpCall("GET", url, redirects=5))
        finally:
            await http.aclose()

    with pytest.raises(AddressRefused, match=re.escape("non-public address")):
        asyncio.run(send_request())


@covers_rows("T19")
def test_a_redirect_to_a_private_address_is_refused():
    async def redirecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2/\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def send_request() -> HttpResponse:
        server = await asyncio.start_server(redirecting, "127.0.0.1", 0)
        http = HttpClient(Guard(allowed=("127.0.0.1",)))
        try:
            port = server.sockets[0].getsockname()[1]
            return await http.send(HttpCall("GET", f"http://127.0.0.1:{port}/", redirects=5))
        finally:
            await http.aclose()
            server.close()

    with pytest.raises(AddressRefused, match=re.escape("127.0.0.2")):
        asyncio.run(send_request())
