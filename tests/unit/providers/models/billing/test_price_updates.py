"""The public price list is updated from an address of the deployment; a failed update changes nothing."""

import json
from collections.abc import Callable, Iterator

import pytest
from genai_prices import data_snapshot
from pytest_httpserver import HTTPServer
from structlog.testing import capture_logs

from canvas.errors import ModelError
from providers.address_policy import Guard
from providers.models.billing import price_list, price_updates
from providers.models.billing.prices import Prices
from providers.models.types.chat import ModelSpec

LIST = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api\\.openai\\.com",
        "models": [
            {
                "id": "gpt-9",
                "match": {"equals": "gpt-9"},
                "context_window": 9000,
                "prices": {"input_mtok": 9, "output_mtok": 90},
            }
        ],
    }
]
NEW = ModelSpec("gpt-9@OpenAI", "gpt-9", "OpenAI", None)
OLD = ModelSpec("gpt-4o@OpenAI", "gpt-4o", "OpenAI", None)


@pytest.fixture(autouse=True)
def installed_list() -> Iterator[None]:
    yield
    data_snapshot.set_custom_snapshot(None)


@pytest.fixture
def serve(httpserver: HTTPServer) -> Callable[..., str]:
    """Return a function that serves an answer and returns its address."""

    def put(body: str, status: int = 200) -> str:
        httpserver.expect_request("/list.json").respond_with_data(body, status=status)
        return httpserver.url_for("/list.json")

    return put


def test_list_of_the_address_replaces_the_installed_one(serve: Callable[..., str]):
    assert Prices().price_of(NEW) is None

    price_updates.update_once(serve(json.dumps(LIST)), Guard())

    found = Prices().find(NEW)
    assert found is not None
    assert found.source.startswith("EASEL_PRICES_URL at ")
    assert price_list.find_context("OpenAI", None, "gpt-9") == 9000
    assert Prices().price_of(OLD) is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 200),
        ("{}", 200),
        ("[]", 200),
        ("[1]", 200),
        (json.dumps([{"id": "openai"}]), 200),
        (json.dumps(LIST), 404),
        (json.dumps(LIST), 500),
    ],
)
def test_list_that_cannot_be_read_changes_nothing(serve: Callable[..., str], body: str, status: int):
    with capture_logs() as logs, pytest.raises(ModelError, match="EASEL_PRICES_URL"):
        price_updates.update_once(serve(body, status), Guard())

    assert [line["event"] for line in logs] == ["prices_not_updated"]
    assert Prices().price_of(OLD) is not None


def test_address_that_does_not_answer_changes_nothing():
    with capture_logs() as logs, pytest.raises(ModelError, match="EASEL_PRICES_URL"):
        price_updates.update_once("http://127.0.0.1:1/list.json", Guard())

    assert [line["event"] for line in logs] == ["prices_not_updated"]
    assert Prices().price_of(OLD) is not None


def test_list_is_updated_in_the_background_until_it_is_stopped(serve: Callable[..., str]):
    updates = price_updates.start_updates(serve(json.dumps(LIST)), Guard())
    assert updates is not None
    try:
        assert updates.wait(30)
    finally:
        updates.stop()

    found = Prices().find(NEW)
    assert found is not None
    assert found.price.currency == "USD"


def test_nothing_is_fetched_without_an_address():
    assert price_updates.start_updates(None, Guard()) is None
