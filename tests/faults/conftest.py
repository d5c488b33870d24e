"""A cluster for each module; its tests start processes, and share those that survive."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded import EmbeddedServers
from tests import services as test_services
from tests.faults.cluster import SHORT_LEASES, Cluster, cluster_on


@pytest.fixture(scope="module")
def module_cluster(
    module_database_url: str, services: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The cluster of a module."""
    redis_url = test_services.emptied_redis(services.redis_url, "faults")
    home: Path = tmp_path_factory.mktemp("cluster")
    with cluster_on(module_database_url, redis_url, home, **SHORT_LEASES) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: Cluster) -> Cluster:
    """The cluster with a new tenant and a running sweeper."""
    module_cluster.kill_temporary_processes()
    module_cluster.start_new_test()
    module_cluster.ensure_running("sweeper")
    return module_cluster
