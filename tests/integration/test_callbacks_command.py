"""`easel callbacks` on a real database."""

import json

from canvas.ids import TenantId
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT
from store.db.database import Database
from store.primitives.ids import new_id
from store.tenants import callback_deliveries, callbacks, tenants
from store.tenants.callback_deliveries import AttemptResult, Delivery, DeliveryStatus
from tests.integration.command_line import Easel


def dead_delivery(database: Database, tenant_id: TenantId) -> Delivery:
    """Store a callback with a delivery that was given up; return the delivery."""
    with database.transaction() as tx:
        callback_id = new_id()
        callbacks.create(
            tx, tenant_id, callback_id, canvas_id=None, url="https://example.com/hook", events=["run.failed"],
            include=[], description="on call", sealed_secret=b"sealed",
        )  # fmt: skip
        made = callback_deliveries.put_test(tx, tenant_id, new_id(), callback_id, callbacks.TEST)
        result = AttemptResult(503, 12, "come back later")
        at = made.occurred_at
        callback_deliveries.record(tx, tenant_id, made.id, 0, result, at=at, status=DeliveryStatus.DEAD)
        return callback_deliveries.get(tx, tenant_id, made.id)


def test_dead_deliveries_are_listed_and_replayed(database: Database, easel: Easel):
    with database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, LOCAL_TENANT)
        stranger = tenants.create_tenant(tx, "a stranger")
    delivery, foreign = dead_delivery(database, tenant_id), dead_delivery(database, stranger)

    _, listed, _ = easel("callbacks", "list", "--json")
    _, dead, _ = easel("callbacks", "deliveries", "--status", "dead", "--json")
    refused, _, _ = easel("callbacks", "replay", foreign.id.hex)
    _, _, replayed = easel("callbacks", "replay", "--all-dead")
    _, pending, _ = easel("callbacks", "deliveries", "--status", "pending", "--json")

    assert [json.loads(line)["url"] for line in listed.splitlines()] == ["https://example.com/hook"]
    assert "sealed" not in listed
    (row,) = [json.loads(line) for line in dead.splitlines()]
    assert (row["id"], row["answer"], row["error"]) == (delivery.id.hex, 503, "come back later")
    assert refused == Exit.BAD_INPUT
    assert "1 delivery is due now" in replayed
    assert [json.loads(line)["id"] for line in pending.splitlines()] == [delivery.id.hex]


def test_replay_without_a_choice_and_unknown_status_are_refused(easel: Easel):
    assert easel("callbacks", "replay")[0] == Exit.BAD_INPUT
    assert easel("callbacks", "deliveries", "--status", "lost")[0] == Exit.BAD_INPUT
