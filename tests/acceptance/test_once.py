"""The same request, sent many times to several API processes, some of which are killed, is executed once."""

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
    """A request that creates rows; `creates` is the number of new runs, agents, sessions and files."""

    path: str
    creates: tuple[int, int, int, int]
    body: Mapping[str, Any] | None = None
    file: bytes = b""

    def send(self, http: httpx2.Client, url: str, key: str, **headers: str) -> httpx2.Response:
        more = {"Idempotency-Key": key, **headers}
        if self.body is None:
            return http.post(f"{url}/api/v1{self.path}", files={"file": ("a.txt", self.file)}, headers=more)
        return http.post(f"{url}/api/v1{self.path}", json=dict(self.body), headers=more)


@dataclass(frozen=True)
class Tenant:
    """A tenant with an agent, and the API processes."""

    urls: list[str]
    http: httpx2.Client
    database: Database
    tenant_id: Any
    requests: Mapping[str, tuple[Request, Request]]  # each with a different one

    def counts(self) -> tuple[int, ...]:
        with self.database.transaction() as tx:
            return tuple(tx.rows(COUNTS, tenant_id=self.tenant_id)[0])


@pytest.fixture(scope="module")
def apis(
    services: EmbeddedServers, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], Database]]:
    """Seven API processes on one database: three that survive, and one to be killed for each kind."""
    home: Path = tmp_path_factory.mktemp("apis")
    redis_url = test_services.emptied_redis(services.redis_url)
    with test_services.fresh_database(services.database_url, template) as database_url:
        database = Database(database_url, pool_size=2)
        with api_processes(3 + len(KINDS), database_url, redis_url, home) as urls:
            yield urls, database
        database.close()


KINDS = ("run", "agent", "session", "file")


@pytest.fixture
def tenant(apis: tuple[list[str], Database]) -> Iterator[Tenant]:
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
            kind: (
                request,
                replace(request, body={**request.body, **changes[kind]}) if request.body else with_other_file(request),
            )
            for kind, request in requests.items()
        }
        yield Tenant(urls[:3], http, database, tenant_id, others)


@pytest.mark.parametrize("kind", KINDS)
def test_simultaneous_duplicates_are_executed_once(tenant: Tenant, kind: str):
    request, other = tenant.requests[kind]
    before = tenant.counts()

    replies = send_simultaneously(
        [partial(request.send, tenant.http, url, "k") for url in islice(cycle(tenant.urls), DUPLICATES)]
    )
    refused = [other.send(tenant.http, url, "k").status_code for url in tenant.urls]

    assert {(reply.status_code, reply.text) for reply in replies} == {(replies[0].status_code, replies[0].text)}
    assert replies[0].status_code in (200, 202)
    assert json.loads(replies[0].text).get("code", 0) == 0
    assert difference(before, tenant.counts()) == request.creates
    assert refused == [409] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_repeat_gets_the_reply_that_a_killed_process_committed(
    tenant: Tenant, apis: tuple[list[str], Database], kind: str
):
    request, _ = tenant.requests[kind]
    killable = apis[0][3 + KINDS.index(kind)]
    before = tenant.counts()

    with pytest.raises(httpx2.TransportError):
        request.send(tenant.http, killable, "k", **{"X-Die": "now"})
    after_the_kill = difference(before, tenant.counts())
    replies = [request.send(tenant.http, url, "k") for url in tenant.urls]

    assert after_the_kill == request.creates
    assert difference(before, tenant.counts()) == request.creates
    assert len({reply.text for reply in replies}) == 1
    assert replies[0].status_code in (200, 202)


def test_one_of_many_simultaneous_turns_is_accepted_and_the_others_get_its_run_id(tenant: Tenant):
    run = tenant.requests["run"][0]
    session = tenant.requests["session"][0].send(tenant.http, tenant.urls[0], "s").json()["data"]["id"]
    turn = replace(run, body={"query": "hi", "session_id": session})

    urls = enumerate(islice(cycle(tenant.urls), DUPLICATES))
    replies = send_simultaneously([partial(turn.send, tenant.http, url, f"turn {number}") for number, url in urls])

    (accepted,) = [reply.json() for reply in replies if reply.status_code == 202]
    refused = [reply.json()["details"]["run_id"] for reply in replies if reply.status_code == 409]
    assert refused == [accepted["run_id"]] * (DUPLICATES - 1)


def send_simultaneously(requests: Sequence[Callable[[], httpx2.Response]]) -> list[httpx2.Response]:
    with ThreadPoolExecutor(len(requests)) as pool:
        return [future.result() for future in [pool.submit(request) for request in requests]]


def with_other_file(upload: Request) -> Request:
    return replace(upload, file=b"others")


def difference(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(later - earlier for earlier, later in zip(before, now, strict=True))
