"""`easel validate --tenant` checks a canvas against the models and knowledge bases of a tenant."""

import json
from pathlib import Path

import pytest

import settings
from cli.__main__ import main
from store.db.database import Database
from store.knowledge import bases
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts, tenants
from store.tenants.model_accounts import AccountRow

PROMPTS = [{"role": "user", "content": "{sys.query}"}]


@pytest.fixture
def canvas_file(tmp_path: Path) -> Path:
    """Return a canvas file that names a model of Acme and a knowledge base."""
    components = {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["LLM:0", "Retrieval:0"]},
        "LLM:0": {"obj": {"component_name": "LLM", "params": {"llm_id": "m@Acme", "prompts": PROMPTS}}},
        "Retrieval:0": {"obj": {"component_name": "Retrieval", "params": {"dataset_ids": ["policies"]}}},
    }
    file = tmp_path / "asks.json"
    file.write_text(json.dumps({"components": components}))
    return file


def validate(file: Path, tenant: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Run `easel validate --tenant`; return stdout and stderr."""
    with pytest.raises(SystemExit):
        main(["validate", "--tenant", tenant, str(file)])
    return capsys.readouterr()


def test_validate_accepts_the_models_and_bases_of_the_tenant_only(
    database: Database,
    redis_url: str,
    canvas_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("EASEL_HOME", str(tmp_path / "home"))
    settings.load.cache_clear()
    with database.transaction() as tx:
        rich, _ = tenants.create_tenant(tx, "rich"), tenants.create_tenant(tx, "poor")
        account = AccountRow("Acme", base_url="http://acme.test/v1", models={"m": {"kinds": ["chat"]}})
        model_accounts.put_account(tx, rich, account, EncryptionKey.from_secret("correct horse battery staple"))
        bases.create(tx, rich, "Policies", embedding_model="", parser={})

    valid, _ = validate(canvas_file, "rich", capsys)
    missing, _ = validate(canvas_file, "poor", capsys)
    _, unknown_tenant = validate(canvas_file, "nobody", capsys)

    settings.load.cache_clear()
    assert valid == ""
    assert missing.startswith("warning  Node LLM:0, field llm_id: Provider Acme not found for model m.")
    assert "field dataset_ids[0]: Dataset(policies) does not exist." in missing
    assert 'There is no tenant "nobody"' in unknown_tenant
