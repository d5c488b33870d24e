"""The same request sent many times to several API processes, some of which are killed: it is carried out once."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from embedded import EmbeddedServers
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import tenants
from tests import services as test_services
from tests.acceptance.apis import api_processes

DUPLICATES = 50
CANVAS = {
    "components": {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Message:0"]},
        "Message:0": {"obj": {"component_name": "Message", "params": {"content": ["hi"]}}, "downstream": []},
    }
}
COUNTS = text("""
    select (select count(*) from runs where tenant_id = :tenant_id),
        (select count(*) from canvases where tenant_id = :tenant_id),
        (select count(*) from conversations where tenant_id = :tenant_id),
        (select count(*) from files where tenant_id = :tenant_id)
""")


@dataclass(frozen=True)
class Request:
    """A request that creates something; `adds` is how many runs, agents, sessions and files there are more then."""

    path: str
    adds: tuple[int, int, int, int]
    body: Mapping[str, Any] | None = None
    file: bytes = b""

    def send(self, http: httpx2.Client, url: str, key: str, **headers: str) -> httpx2.Response:
        more = {"Idempotency-Key": key, **headers}
        if self.body is None:
            return http.post(f"{url}/api/v1{self.path}", files={"file": ("a.txt", self.file)}, headers=more)
        return http.post(f"{url}/api/v1{self.path}", json=dict(self.body), headers=more)


@dataclass(frozen=True)
class Place:
    """Somebody with an agent, and the processes that serve them."""

    urls: list[str]
    http: httpx2.Client
    database: Database
    tenant_id: Any
    requests: Mapping[str, tuple[Request, Request]]  # each with another that brings something else

    def counts(self) -> tuple[int, ...]:
        with self.database.transaction() as tx:
            return tuple(tx.rows(COUNTS, tenant_id=self.tenant_id)[0])


@pytest.fixture(scope="module")
def apis(
    services: EmbeddedServers, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], Database]]:
    """Seven API processes on one database: three that live on, and one for each kind to be killed with."""
    home: Path = tmp_path_factory.mktemp("apis")
    redis_url = test_services.emptied_redis(services.redis_url)
    with test_services.fresh_database(services.database_url, template) as database_url:
        database = Database(database_url, pool_size=2)
        with api_processes(3 + len(KINDS), database_url, redis_url, home) as urls:
            yield urls, database
        database.close()


KINDS = ("run", "agent", "session", "file")


@pytest.fixture
def place(apis: tuple[list[str], Database]) -> Iterator[Place]:
    urls, database = apis
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
        _, token = tenants.create_token(tx, tenant_id, "test", "api")
    limits = httpx2.Limits(max_connections=DUPLICATES)
    with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30, limits=limits) as http:
        created = http.post(f"{urls[0]}/api/v1/agents", json={"title": "first", "dsl": CANVAS}).json()
        agent = created["data"]["id"]
        requests = {
            "run": Request(f"/agents/{agent}/runs", (1, 0, 1, 0), {"query": "hi"}),
            "agent": Request("/agents", (0, 1, 0, 0), {"title": "second", "dsl": CANVAS}),
            "session": Request(f"/agents/{agent}/sessions", (0, 0, 1, 0), {"name": "n"}),
            "file": Request(f"/agents/{agent}/upload", (0, 0, 0, 1), file=b"bytes"),
        }
        changes = {"run": {"query": "ho"}, "agent": {"title": "third"}, "session": {"name": "m"}}
        others = {
            kind: (one, replace(one, body={**one.body, **changes[kind]}) if one.body else changed(one))
            for kind, one in requests.items()
        }
        yield Place(urls[:3], http, database, tenant_id, others)


@pytest.mark.parametrize("kind", KINDS)
def test_simultaneous_duplicates_are_executed_once(place: Place, kind: str):
    request, other = place.requests[kind]
    before = place.counts()

    replies = at_once([partial(request.send, place.http, url, "k") for url in islice(cycle(place.urls), DUPLICATES)])
    refused = [other.send(place.http, url, "k").status_code for url in place.urls]

    assert {(reply.status_code, reply.text) for reply in replies} == {(replies[0].status_code, replies[0].text)}
    assert replies[0].status_code in (200, 202)
    assert json.loads(replies[0].text).get("code", 0) == 0
    assert added(before, place.counts()) == request.adds
    assert refused == [409] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_repeat_gets_the_reply_that_a_killed_process_committed(
    place: Place, apis: tuple[list[str], Database], kind: str
):
    request, _ = place.requests[kind]
    mortal = apis[0][3 + KINDS.index(kind)]
    before = place.counts()

    with pytest.raises(httpx2.TransportError):
        request.send(place.http, mortal, "k", **{"X-Die": "now"})
    while_nobody_was_told = added(before, place.counts())
    replies = [request.send(place.http, url, "k") for url in place.urls]

    assert while_nobody_was_told == request.adds
    assert added(before, place.counts()) == request.adds
    assert len({reply.text for reply in replies}) == 1
    assert replies[0].status_code in (200, 202)


def test_of_many_turns_at_once_through_several_processes_one_is_accepted_and_the_others_are_told_which(place: Place):
    run = place.requests["run"][0]
    session = place.requests["session"][0].send(place.http, place.urls[0], "s").json()["data"]["id"]
    turn = replace(run, body={"query": "hi", "session_id": session})

    urls = enumerate(islice(cycle(place.urls), DUPLICATES))
    replies = at_once([partial(turn.send, place.http, url, f"turn {number}") for number, url in urls])

    (accepted,) = [reply.json() for reply in replies if reply.status_code == 202]
    refused = [reply.json()["details"]["run_id"] for reply in replies if reply.status_code == 409]
    assert refused == [accepted["run_id"]] * (DUPLICATES - 1)


def at_once(requests: Sequence[Callable[[], httpx2.Response]]) -> list[httpx2.Response]:
    with ThreadPoolExecutor(len(requests)) as many:
        return [sent.result() for sent in [many.submit(request) for request in requests]]


def changed(upload: Request) -> Request:
    return replace(upload, file=b"others")


def added(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(later - earlier for earlier, later in zip(before, now, strict=True))
