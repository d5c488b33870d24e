"""One engine for all tests that state what we do where we mean to differ."""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.conformance.play import runner
from embedded import EmbeddedServers
from settings import Settings
from tests import services as test_services
from tests.deviations.told import Stage, Told

JOBS = 2  # runs that may be at work at the same time


@pytest.fixture(scope="package")
def stage(services: EmbeddedServers, template: str) -> Iterator[Stage]:
    """A database of its own, and a Redis database that no other test empties."""
    redis_url = test_services.emptied_redis(services.redis_url, "deviations")
    fixtures = runner.Fixtures()
    with test_services.fresh_database(services.database_url, template) as database_url:
        settings = Settings(database_url=database_url, redis_url=redis_url)
        with runner.start_engine(settings, fixtures, JOBS) as engine:
            yield Stage(engine, fixtures)


@pytest.fixture(autouse=True)
def row(request: pytest.FixtureRequest) -> Any:
    """The rows that a test states; they stand in its id, and `test_ledger.py` counts them."""
    return getattr(request, "param", ())


@pytest.fixture
def told(request: pytest.FixtureRequest, stage: Stage) -> Told:
    """The recorded case that a test names, played."""
    return stage.case(request.param)
