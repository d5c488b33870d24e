"""What tools do outside: programs, databases, datasets, and the addresses that may be reached."""

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
from providers.http.address_policy import Guard
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
from tests.deviations.told import states
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.tools.vendors import json_reply, outputs_of, vendor

# -- T13, T14, T16: programs, databases, datasets --------------------------------------------------------------------


class Box:
    """A sandbox in which every program ends in the same way."""

    is_repeatable = True

    def __init__(self, result: ProgramResult) -> None:
        self.result = result
        self.programs: list[Program] = []

    async def run(self, program: Program) -> ProgramResult:
        self.programs.append(program)
        return self.result


def program_in(box: Box, **params: Any) -> Finished | Failed:
    ctx = FakeContext(globals={"env.v": "'); boom('"}, services=Services(FakeHttp(no_network), sandbox=box))
    outcome = run(tool_component(CODE_EXEC), {"lang": "python", "script": "def main(): ...", **params}, ctx)
    assert isinstance(outcome, Finished | Failed)
    return outcome


@states("T13")
def test_a_program_that_ends_with_an_error_fails_though_it_has_printed_something():
    outcome = program_in(Box(ProgramResult(stdout="42", stderr="Traceback: no", exit_code=1)))

    assert isinstance(outcome, Failed)
    assert "no" in outcome.error


@states("T13")
def test_arguments_are_no_part_of_the_programs_text():
    box = Box(ProgramResult(value="done", has_value=True))

    program_in(box, arguments={"v": "env.v"}, outputs={"result": {"type": "string"}})

    assert box.programs[0].arguments == {"v": "'); boom('"}
    assert "boom" not in box.programs[0].script


class Tables:
    """A database in which a query for nothing finds nothing, and one for `bad` fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @asynccontextmanager
    async def connect(self, params: Mapping[str, Any]) -> AsyncGenerator[DatabaseSession]:
        yield self

    async def execute(self, sql: str, most_rows: int) -> Rows:
        self.asked.append(sql)
        if "bad" in sql:
            raise ToolError("no such table")
        return Rows(["n"], [] if "nothing" in sql else [[1]])


def queried(tables: Tables, sql: str) -> Mapping[str, Any]:
    target = {"db_type": "mysql", "database": "d", "username": "u", "password": "pass-1234", "host": "db.test"}
    ctx = FakeContext(services=Services(FakeHttp(no_network), databases=tables))
    outcome = run(tool_component(EXESQL), {**target, "sql": sql}, ctx)
    assert isinstance(outcome, Finished), outcome
    return outcome.outputs


@states("T14")
def test_statements_after_an_empty_or_a_failed_one_are_carried_out():
    tables = Tables()

    outputs = queried(tables, "select 1 as nothing; select bad; select ';' as n")

    assert len(tables.asked) == len(outputs["json"]) == 3
    assert outputs["json"][2] == [{"n": 1}]


@states("T14")
def test_what_writes_is_not_sent():
    tables = Tables()

    queried(tables, "select 1; with gone as (select 1) delete from t")

    assert len(tables.asked) == 1


class Books:
    """A retriever that finds nothing, and knows what it was asked."""

    def __init__(self) -> None:
        self.asked: list[RetrievalQuery] = []

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        self.asked.append(search)
        return {"chunks": [], "doc_aggs": []}


@states("T16")
@pytest.mark.parametrize(
    ("query", "question"), [("user guide", "user guide"), ("user: guide", "guide"), ("User： guide", "guide")]
)
def test_only_a_speakers_name_is_taken_off_a_question(query: str, question: str):
    books = Books()
    ctx = FakeContext(services=Services(FakeHttp(no_network), retriever=books))

    run(tool_component(RETRIEVAL), {"query": query, "dataset_ids": ["d1"]}, ctx)

    assert [search.question for search in books.asked] == [question]


# -- T15: letters ----------------------------------------------------------------------------------------------------


class Office:
    """A mail server that breaks off over the first letter."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
        self.recipients: list[str] = []

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["Office"]:
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        self.recipients += recipients
        return {}

    async def deliver(self, message: bytes) -> None:
        self.letters.append(message)
        raise DeliveryUnknown


@states("T15")
def test_a_letter_that_may_have_been_sent_is_sent_once_to_each_of_its_recipients():
    office = Office()
    account = {"smtp_server": "smtp.test", "email": "me@x.test", "password": "pass-1234", "sender_name": "Ann"}
    ctx = FakeContext(services=Services(FakeHttp(no_network), mail=office))

    outcome = run(tool_component(EMAIL), {**account, "to_email": "a@x.test; b@x.test", "max_retries": 3}, ctx)

    assert isinstance(outcome, Failed)
    assert outcome.error == "delivery state unknown"
    assert (len(office.letters), office.recipients) == (1, ["a@x.test", "b@x.test"])


# -- T20: memories ---------------------------------------------------------------------------------------------------
@states("T20")
def test_in_memories_the_weight_of_words_weighs_the_words():
    options = {"keywords_similarity_weight": 0.9, "similarity_threshold": 0.1, "top_n": 3, "user_id": "ann"}

    looked = memory_query_of(RetrievalQuery("tea", memory_ids=["m1"], options=options))

    assert (looked.word_weight, looked.threshold, looked.limit, looked.scope.user_id) == (0.9, 0.1, 3, "ann")


# -- T19: what may be reached ----------------------------------------------------------------------------------------


@states("T19")
def test_a_host_that_an_author_names_is_reached_under_guard():
    http = vendor(json_reply({"results": []}))

    outputs_of(SEARXNG, {"query": "q", "searxng_url": "http://search.test"}, http)

    assert [call.trusted for call in http.calls] == [False]


@states("T19")
def test_a_page_and_a_mail_server_are_reached_under_guard():
    http = vendor(HttpResponse(200, {"content-type": "text/html"}, b"<p>x", "https://site.test/"))
    account = MailAccount("127.0.0.1", 465, "me", "pass-1234", tls=True, timeout=5.0)

    async def greeted() -> None:
        async with MailServers(Guard()).connect(account):
            raise AssertionError("nobody gets here")

    outputs_of(CRAWLER, {"query": "http://site.test/"}, http)

    assert [call.trusted for call in http.calls] == [False]
    with pytest.raises(AddressRefused, match=re.escape("127.0.0.1")):
        asyncio.run(greeted())


@states("T19", "E25")
@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/"])
def test_a_private_address_is_refused_on_the_first_hop_and_on_every_other(url: str):
    async def asked() -> HttpResponse:
        http = HttpClient(Guard())
        try:
            return await http.send(HttpCall("GET", url, redirects=5))
        finally:
            await http.aclose()

    with pytest.raises(AddressRefused, match=re.escape("non-public address")):
        asyncio.run(asked())


@states("T19")
def test_a_redirect_to_a_private_address_is_refused():
    async def redirecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2/\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def asked() -> HttpResponse:
        server = await asyncio.start_server(redirecting, "127.0.0.1", 0)
        http = HttpClient(Guard(allowed=("127.0.0.1",)))
        try:
            port = server.sockets[0].getsockname()[1]
            return await http.send(HttpCall("GET", f"http://127.0.0.1:{port}/", redirects=5))
        finally:
            await http.aclose()
            server.close()

    with pytest.raises(AddressRefused, match=re.escape("127.0.0.2")):
        asyncio.run(asked())
