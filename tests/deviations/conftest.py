"""One engine for all tests of intended differences from RAGFlow."""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.conformance.play import runner
from embedded import EmbeddedServers
from settings import Settings
from tests import services as test_services
from tests.deviations.observed_run import CaseResult, CaseRunner

JOBS = 2  # runs at the same time


@pytest.fixture(scope="package")
def case_runner(services: EmbeddedServers, template: str) -> Iterator[CaseRunner]:
    """Runs cases on its own database, and on a Redis database that no other test empties."""
    redis_url = test_services.emptied_redis(services.redis_url, "deviations")
    fixtures = runner.Fixtures()
    with test_services.fresh_database(services.database_url, template) as database_url:
        settings = Settings(database_url=database_url, redis_url=redis_url)
        with runner.start_engine(settings, fixtures, JOBS) as engine:
            yield CaseRunner(engine, fixtures)


@pytest.fixture(autouse=True)
def row(request: pytest.FixtureRequest) -> Any:
    """The rows that a test covers; they are part of its id, and `test_ledger.py` counts them."""
    return getattr(request, "param", ())


@pytest.fixture
def result(request: pytest.FixtureRequest, case_runner: CaseRunner) -> CaseResult:
    """The result of the recorded case that a test names."""
    return case_runner.case(request.param)
