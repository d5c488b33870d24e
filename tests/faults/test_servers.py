"""PostgreSQL and Redis go and come back, and processes that live on go on: nothing is lost and nothing doubled."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy.exc import SQLAlchemyError

import embedded
from store.maintenance.migrate import upgrade
from store.primitives.db_errors import is_outage
from tests import services as test_services
from tests.faults.cluster import ACTIVATIONS, LONG_LEASES, Cluster, cluster_on

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 12
PROMISED = 90.0  # seconds within which all runs end by themselves


@pytest.fixture(scope="module")
def servers() -> Iterator[embedded.EmbeddedServers]:
    """Servers that nobody else uses, since they are killed."""
    with test_services.shared_folder() as home, embedded.run_servers(home, durable=False) as servers:
        upgrade(servers.database_url)
        yield servers


@pytest.fixture(scope="module")
def living(servers: embedded.EmbeddedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Processes that outlive their servers."""
    home: Path = tmp_path_factory.mktemp("cluster")
    with cluster_on(servers.database_url, servers.redis_url, home, **LONG_LEASES) as cluster:
        cluster.have("sweeper")
        cluster.have("worker")
        yield cluster


@pytest.fixture
def at_work(living: Cluster) -> Cluster:
    """The cluster, when some of its runs are over and all others go on."""
    living.renew()
    living.begin(RUNS)
    living.wait_for(lambda: living.outside.requests > RUNS, 60)
    return living


def test_runs_go_on_when_redis_is_killed_and_comes_back_empty(servers: embedded.EmbeddedServers, at_work: Cluster):
    begin_again(servers, at_work, "Valkey", signal.SIGKILL)
    at_work.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    at_work.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.strikes) for row in at_work.rows(ACTIVATIONS)} == {(1, 0)}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=["fast", "immediate", "killed"])
def test_runs_go_on_when_postgres_is_restarted(
    servers: embedded.EmbeddedServers, at_work: Cluster, how: signal.Signals
):
    begin_again(servers, at_work, "PostgreSQL", how)
    at_work.wait_for(lambda: is_back(servers, at_work), PROMISED)
    at_work.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    at_work.assert_everything_happened_once(RUNS)


def test_runs_go_on_when_every_connection_to_redis_is_cut_again_and_again(
    servers: embedded.EmbeddedServers, at_work: Cluster
):
    for _ in range(5):
        with redis.Redis.from_url(servers.redis_url) as client:
            for kind in ("normal", "pubsub"):
                client.client_kill_filter(_type=kind, skipme=True)
        asked = at_work.outside.requests
        at_work.wait_for(lambda asked=asked: at_work.outside.requests > asked or "running" not in at_work.statuses, 20)
    at_work.wait_until_all_have_succeeded(RUNS, seconds=PROMISED)

    at_work.assert_everything_happened_once(RUNS)


def begin_again(servers: embedded.EmbeddedServers, cluster: Cluster, name: str, how: signal.Signals) -> None:
    """End a server, and start it again as `easel up` does: under its old URL, with what it has kept."""
    (server,) = [it for it in servers.owned if it.name == name]
    ended = server.pid

    def is_another() -> bool:
        servers.restart_ended()
        return server.pid != ended

    os.kill(ended, how)
    cluster.wait_for(is_another, PROMISED)


def is_back(servers: embedded.EmbeddedServers, cluster: Cluster) -> bool:
    """Whether the database answers; if it has ended once more, it is started once more."""
    servers.restart_ended()
    try:
        cluster.database.ping()
    except SQLAlchemyError as error:
        if not is_outage(error):
            raise
        return False
    return True
