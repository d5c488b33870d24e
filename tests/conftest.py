"""One PostgreSQL and one Redis for a whole run of pytest, started when the first test needs them.

Each test gets a database of its own, cloned from a migrated template, and each process a Redis database of its own.
DATABASE_URL and REDIS_URL, where they are set, name the servers to use instead.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from embedded import EmbeddedServers
from tests import services as test_services

HOME = pytest.StashKey[Path]()
SERVICES = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    """Name the folder that all processes of this run share, and register the cleanup at their end.

    Servers stop at the very end rather than in a fixture's teardown: the process that started them waits there for
    the others, and no test's time limit should count that.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start 200 programs, and each would compile for 1 s
    configure: Any = structlog.configure  # a cached logger would bypass the configuration of a test
    structlog.configure = lambda **how: configure(**{**how, "cache_logger_on_first_use": False})
    shared_home = getattr(config, "workerinput", {}).get("easel_home")
    config.stash[SERVICES] = ExitStack()
    config.add_cleanup(config.stash[SERVICES].close)
    if shared_home is None:
        config.stash[HOME] = config.stash[SERVICES].enter_context(test_services.shared_folder())
    else:
        config.stash[HOME] = Path(shared_home)


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection, which would take seconds to scan them."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let an idle worker of pytest-xdist take tests from the queue of another.

    By default each worker gets hundreds of tests at once, and one with slow tests runs alone for minutes.
    """
    from xdist.scheduler import WorkStealingScheduling  # absent where pytest runs without the plugin

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the path of the shared folder to a worker of pytest-xdist."""
    node.workerinput["easel_home"] = str(node.config.stash[HOME])


@pytest.fixture(scope="module", autouse=True)
def logging_of_a_module() -> Iterator[None]:
    """Restore the configuration of structlog: a level that one module has set would hide log lines from another."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def logging_of_a_test() -> Iterator[None]:
    """Restore the configuration of structlog from before the test."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> EmbeddedServers:
    """The servers of this run: `services.database_url` is for administration, `database_url` is for tests."""
    servers = test_services.running(pytestconfig.stash[HOME])
    return pytestconfig.stash[SERVICES].enter_context(servers)


@pytest.fixture(scope="session")
def template(services: EmbeddedServers, pytestconfig: pytest.Config) -> str:
    """The name of the migrated database that tests' databases are cloned from."""
    return test_services.migrated_template(services.database_url, pytestconfig.stash[HOME])


@pytest.fixture
def database_url(services: EmbeddedServers, template: str) -> Iterator[str]:
    """A migrated, empty database for one test."""
    with test_services.fresh_database(services.database_url, template) as url:
        yield url


@pytest.fixture(scope="module")
def module_database_url(services: EmbeddedServers, template: str) -> Iterator[str]:
    """A migrated database that the tests of one module share."""
    with test_services.fresh_database(services.database_url, template) as url:
        yield url


@pytest.fixture
def redis_url(services: EmbeddedServers) -> str:
    """A Redis database of this process, empty. Empty it with FLUSHDB: FLUSHALL would reach other processes' tests."""
    return test_services.emptied_redis(services.redis_url)
