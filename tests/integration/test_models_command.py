"""`easel models list`, and the check of keys in `easel doctor`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.server import checks
from cli.server.checks import Level
from settings import Settings
from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts, tenants
from store.tenants.model_accounts import AccountRow
from tests.integration.command_line import SECRET, Easel, easel_on

OTHER_SECRET = "another secret that is long"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def easel(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Easel]:
    with easel_on(database, redis_url, tmp_path, monkeypatch, capsys) as easel:
        yield easel


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


def store_account(database: Database, vendor: str, secret: str) -> None:
    account = AccountRow(vendor, "default", None, "a key", {"model-1": {"kinds": ["chat"], "status": "active"}}, {})
    with database.transaction() as tx:
        model_accounts.put_account(tx, tenants.ensure_tenant(tx, "local"), account, EncryptionKey.from_secret(secret))
