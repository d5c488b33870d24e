"""`easel models list` and `easel models prices`, and the check of keys in `easel doctor`."""

import json
from collections.abc import Iterator

import pytest

from cli.server import checks
from cli.server.checks import Level
from settings import Settings
from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts, tenants
from store.tenants.model_accounts import AccountRow
from tests.integration.command_line import SECRET, Easel

OTHER_SECRET = "another secret that is long"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def test_models_list_marks_keys_that_cannot_be_decrypted(easel: Easel, database: Database):
    store_account(database, "OpenAI", SECRET)
    store_account(database, "Mistral", OTHER_SECRET)

    _, listed, _ = easel("models", "list")

    status_of = {line.split()[1]: line for line in listed.splitlines()}
    assert "cannot be decrypted with EASEL_SECRET_KEY" in status_of["Mistral"]
    assert "active" in status_of["OpenAI"]


def test_doctor_names_every_account_whose_key_cannot_be_decrypted(easel: Easel, database: Database):
    store_account(database, "OpenAI", SECRET)
    for vendor in ("Mistral", "Anthropic"):
        store_account(database, vendor, OTHER_SECRET)

    finding = checks.models(database, Settings())

    assert finding.level is Level.FAIL
    assert "local: Anthropic (default), local: Mistral (default)" in finding.found
    assert "OpenAI" not in finding.found


# -- prices ----------------------------------------------------------------------------------------------------------
def test_price_of_a_listed_model_is_shown_with_its_source_and_context(easel: Easel):
    code, out, err = easel("models", "prices", "gpt-4o@OpenAI")

    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["input", "2.5", "USD"],
        ["cached", "1.25", "USD"],
        ["output", "10", "USD"],
    ]
    assert "from: genai-prices" in err
    assert "context: 128,000 tokens" in err


def test_price_of_long_prompts_is_shown_beside_that_of_short_ones(easel: Easel):
    _, out, _ = easel("models", "prices", "gemini-2.5-pro@Gemini")
    _, fields, _ = easel("models", "prices", "gemini-2.5-pro@Gemini", "--json")

    assert "prompts of more than 200,000 tokens" in out
    shown = json.loads(fields)
    assert (shown["input"], shown["above"]["200000"]["input"]) == ("1.25", "2.5")


def test_price_of_the_account_counts_before_the_list(easel: Easel, database: Database):
    prices = {"prices": {"gpt-*": {"input": 1, "output": 2, "currency": "EUR"}}}
    with database.transaction() as tx:
        tenant = tenants.ensure_tenant(tx, "local")
        account = AccountRow("OpenAI", "default", None, "key", {}, prices)
        model_accounts.put_account(tx, tenant, account, EncryptionKey.from_secret(SECRET))

    _, out, err = easel("models", "prices", "gpt-4o@OpenAI")

    assert "1 EUR" in out
    assert "from: account" in err


def test_built_in_model_is_free(easel: Easel):
    code, out, err = easel("models", "prices", "echo@Easel")

    assert (code, out) == (0, "")
    assert "It is free." in err


def test_unknown_price_is_an_error_that_says_where_to_set_one(easel: Easel):
    code, _, err = easel("models", "prices", "acme-9@OpenAI")

    assert code == 1
    assert "EASEL_PRICES_FILE" in err


def test_unknown_vendor_is_refused(easel: Easel):
    code, _, err = easel("models", "prices", "acme-9@Acme")

    assert code == 2
    assert "Acme" in err


def store_account(database: Database, vendor: str, secret: str) -> None:
    account = AccountRow(vendor, "default", None, "a key", {"model-1": {"kinds": ["chat"], "status": "active"}}, {})
    with database.transaction() as tx:
        model_accounts.put_account(tx, tenants.ensure_tenant(tx, "local"), account, EncryptionKey.from_secret(secret))
