"""An engine that runs recorded cases, shared by the tests of one module."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

import embedded
from cli.conformance.cases import Case
from cli.conformance.play.runner import Fixtures, judge, start_engine
from cli.conformance.report import Verdict
from local_engine import Engine
from settings import Settings
from tests import services as test_services

RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.fixture(scope="module")
def fixtures() -> Fixtures:
    return Fixtures()


@pytest.fixture(scope="module")
def switches() -> Mapping[str, bool]:
    """Settings of a module's engine that differ from the defaults."""
    return {}


@pytest.fixture(scope="module")
def engine_settings(
    switches: Mapping[str, bool],
    services: embedded.EmbeddedServers,
    module_database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Settings:
    """The settings of a module's engine."""
    return Settings(
        database_url=module_database_url,
        redis_url=test_services.emptied_redis(services.redis_url, "compatibility"),
        home=tmp_path_factory.mktemp("home"),
        secret_key=SecretStr("a secret that is long"),
        **switches,
    )


@pytest.fixture(scope="module")
def engine(fixtures: Fixtures, engine_settings: Settings) -> Iterator[Engine]:
    with start_engine(engine_settings, fixtures, jobs=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def verdict_of(engine: Engine, fixtures: Fixtures) -> Callable[[Case], Verdict]:
    """A function that runs a case and returns its verdict."""
    return lambda case: judge(engine, fixtures, case)
