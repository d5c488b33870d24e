"""What tests of OpenAI clients share: an agent whose model reasons and cites, and the model server that answers it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex
from uuid import UUID

from sqlalchemy import text

from store.db.database import Database
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from store.runs import attempt_records
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import Client, canvas, message
from tests.integration.worker.scripted_vendor import vendor_of

REASONING = "Prices are in May's report."
WEB_PAGE = {"chunk_id": "29584016", "content": "Up 4%.", "document_name": "Prices", "url": "https://example.com/a"}
DOCUMENT = {"chunk_id": "c2", "content": "Up 5%.", "document_name": "june.pdf", "document_id": "d" * 32, "url": ""}

CITING = canvas(
    ("begin", "Begin", {}, ["Agent:0"]),
    ("Agent:0", "Agent", {"llm_id": "m@VLLM", "prompts": "{sys.query}"}, ["Message:0"]),
    ("Message:0", "Message", message("{Agent:0@content}"), []),
)


class _CitingScript(list[Any]):
    """Answers of a model; before each one, the sources are added to the run's citations, as by a search."""

    def __init__(self, database: Database, tenant_id: UUID) -> None:
        super().__init__()
        self._database, self._tenant_id = database, tenant_id

    def pop(self, _: SupportsIndex = 0) -> Any:
        with self._database.transaction() as tx:
            (run,) = tx.rows(
                text("select id, message_id from runs where tenant_id = :tenant and status = 'running'"),
                tenant=self._tenant_id,
            )
            web_page, document = attempt_records.add_citations(
                tx, run.id, run.message_id, new_id(), [WEB_PAGE, DOCUMENT], []
            )
        return [
            {"role": "assistant", "reasoning_content": REASONING},
            {"content": f"Up 4% [ID:{web_page}], then 5% [ID:{document}][ID:77777]."},
        ]


@contextmanager
def citing_vendor(server: Server, client: Client) -> Iterator[None]:
    """Run the model server of `CITING`, which the tenant's account `VLLM` names."""
    with vendor_of() as vendor:
        vendor.script = _CitingScript(server.database, client.tenant_id)
        models = {"m": {"kinds": ["chat"], "is_tools": False}}
        account = AccountRow("VLLM", base_url=f"http://127.0.0.1:{vendor.port}/v1", models=models)
        with server.database.transaction() as tx:
            model_accounts.put_account(tx, client.tenant_id, account, EncryptionKey.from_secret(SECRET))
        yield
