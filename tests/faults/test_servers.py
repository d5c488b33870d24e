"""PostgreSQL and Redis are restarted while processes continue: no run is lost or executed twice."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy.exc import SQLAlchemyError

import embedded
from store.db.db_errors import is_outage
from store.maintenance.migrate import upgrade
from tests import services as test_services
from tests.faults.cluster import ACTIVATIONS, LONG_LEASES, Cluster, cluster_on

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else

RUNS = 12
RECOVERY_TIME = 90.0  # seconds within which all runs end


@pytest.fixture(scope="module")
def servers() -> Iterator[embedded.EmbeddedServers]:
    """Servers of this module only, since its tests kill them."""
    with test_services.shared_folder() as home, embedded.run_servers(home, durable=False) as servers:
        upgrade(servers.database_url)
        yield servers


@pytest.fixture(scope="module")
def shared_cluster(servers: embedded.EmbeddedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose processes survive restarts of their servers."""
    home: Path = tmp_path_factory.mktemp("cluster")
    with cluster_on(servers.database_url, servers.redis_url, home, **LONG_LEASES) as cluster:
        cluster.ensure_running("sweeper")
        cluster.ensure_running("worker")
        yield cluster


@pytest.fixture
def busy_cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster while some of its runs are over and all others continue."""
    shared_cluster.start_new_test()
    shared_cluster.start_runs(RUNS)
    shared_cluster.wait_for(lambda: shared_cluster.external.requests > RUNS, 60)
    return shared_cluster


def test_runs_continue_when_redis_is_killed_and_restarts_empty(
    servers: embedded.EmbeddedServers, busy_cluster: Cluster
):
    restart_server(servers, busy_cluster, "Valkey", signal.SIGKILL)
    busy_cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    busy_cluster.assert_everything_happened_once(RUNS)
    assert {(row.attempt, row.crash_count) for row in busy_cluster.rows(ACTIVATIONS)} == {(1, 0)}


@pytest.mark.parametrize(
    "signal_number", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=["fast", "immediate", "killed"]
)
def test_runs_continue_when_postgres_is_restarted(
    servers: embedded.EmbeddedServers, busy_cluster: Cluster, signal_number: signal.Signals
):
    restart_server(servers, busy_cluster, "PostgreSQL", signal_number)
    busy_cluster.wait_for(lambda: is_database_up(servers, busy_cluster), RECOVERY_TIME)
    busy_cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    was_orderly = signal_number is signal.SIGINT
    busy_cluster.assert_everything_happened_once(RUNS, lost_claims=0 if was_orderly else 1)


def test_runs_continue_when_redis_connections_are_cut_repeatedly(
    servers: embedded.EmbeddedServers, busy_cluster: Cluster
):
    for _ in range(5):
        with redis.Redis.from_url(servers.redis_url) as client:
            for kind in ("normal", "pubsub"):
                client.client_kill_filter(_type=kind, skipme=True)
        requests = busy_cluster.external.requests
        busy_cluster.wait_for(
            lambda requests=requests: (
                busy_cluster.external.requests > requests or "running" not in busy_cluster.statuses
            ),
            20,
        )
    busy_cluster.wait_until_all_succeeded(RUNS, seconds=RECOVERY_TIME)

    busy_cluster.assert_everything_happened_once(RUNS)


def restart_server(
    servers: embedded.EmbeddedServers, cluster: Cluster, name: str, signal_number: signal.Signals
) -> None:
    """Kill a server, and restart it as `easel up` does: under its old URL, with its stored data."""
    (server,) = [each for each in servers.owned if each.name == name]
    old_pid = server.pid

    def is_another() -> bool:
        servers.restart_ended()
        return server.pid != old_pid

    os.kill(old_pid, signal_number)
    cluster.wait_for(is_another, RECOVERY_TIME)


def is_database_up(servers: embedded.EmbeddedServers, cluster: Cluster) -> bool:
    """Whether the database answers; if it has ended again, restart it."""
    servers.restart_ended()
    try:
        cluster.database.ping()
    except SQLAlchemyError as error:
        if not is_outage(error):
            raise
        return False
    return True
