"""Model accounts: their keys are sealed in the rows and hidden everywhere else."""

from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import select, text

from canvas.errors import NotFound
from store.db.database import Database
from store.primitives.encryption import CannotUnseal, EncryptionKey
from store.tables.tenants import model_accounts as rows
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow

KEY = EncryptionKey.from_secret("correct horse battery staple")
OPENAI = AccountRow(
    "OpenAI",
    base_url="https://api.openai.com/v1",
    api_key="sk-secret",
    models={"gpt-5": {"kinds": ["chat"], "context_tokens": 400_000, "is_tools": True, "status": "active"}},
    extra={"organization": "acme"},
)


def put(database: Database, tenant_id: UUID, *accounts: AccountRow) -> None:
    with database.transaction() as tx:
        for account in accounts:
            model_accounts.put_account(tx, tenant_id, account, KEY)


def test_account_is_read_as_it_was_stored(database: Database, tenant_id: UUID):
    local = AccountRow("Ollama", "lab", base_url="http://gpu:11434", status="inactive")

    put(database, tenant_id, OPENAI, local)

    with database.transaction() as tx:
        assert model_accounts.list_accounts(tx, tenant_id, KEY) == [local, OPENAI]


def test_putting_an_account_again_replaces_it(database: Database, tenant_id: UUID):
    put(database, tenant_id, OPENAI)

    put(database, tenant_id, replace(OPENAI, api_key="sk-new", models={}))

    with database.transaction() as tx:
        (account,) = model_accounts.list_accounts(tx, tenant_id, KEY)
    assert account.api_key == "sk-new"
    assert account.models == {}


def test_api_key_appears_neither_in_the_row_nor_in_a_repr(database: Database, tenant_id: UUID):
    put(database, tenant_id, OPENAI)

    with database.transaction() as tx:
        stored = tx.rows(select(rows).where(rows.c.tenant_id == tenant_id))
        (account,) = model_accounts.list_accounts(tx, tenant_id, KEY)

    assert account.api_key == "sk-secret"
    assert "sk-secret" not in f"{stored} {account} {account!r}"


def test_accounts_are_listed_without_api_keys_if_the_encryption_key_is_missing(database: Database, tenant_id: UUID):
    put(database, tenant_id, OPENAI)

    with database.transaction() as tx:
        (account,) = model_accounts.list_accounts(tx, tenant_id)

    assert account == replace(OPENAI, api_key="")


def test_api_key_sealed_by_another_deployment_raises_an_error_that_names_its_account(
    database: Database, tenant_id: UUID
):
    put(database, tenant_id, OPENAI)

    with pytest.raises(CannotUnseal, match=r'"OpenAI" \(default\)') as refusal, database.transaction() as tx:
        model_accounts.list_accounts(tx, tenant_id, EncryptionKey.from_secret("some other deployment's key"))

    assert "sk-secret" not in str(refusal.value)


def test_sealed_key_moved_to_another_tenants_row_cannot_be_unsealed(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    put(database, tenant_id, OPENAI)
    put(database, other_tenant_id, replace(OPENAI, api_key="theirs"))
    with database.transaction() as tx:
        tx.execute(
            text(
                "update model_accounts set sealed_key = (select sealed_key from model_accounts where tenant_id = :mine)"
                " where tenant_id = :theirs"
            ),
            mine=tenant_id,
            theirs=other_tenant_id,
        )

    with pytest.raises(CannotUnseal), database.transaction() as tx:
        model_accounts.list_accounts(tx, other_tenant_id, KEY)


def test_accounts_of_other_tenants_are_neither_seen_nor_removed(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    put(database, tenant_id, OPENAI)

    with database.transaction() as tx:
        assert model_accounts.list_accounts(tx, other_tenant_id, KEY) == []
        with pytest.raises(NotFound):
            model_accounts.remove(tx, other_tenant_id, "OpenAI")
        model_accounts.remove(tx, tenant_id, "OpenAI")
        assert model_accounts.list_accounts(tx, tenant_id, KEY) == []
