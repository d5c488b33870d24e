"""What `easel doctor` says about the room in PostgreSQL's lock table."""

from cli import checks
from cli.checks import Level
from settings import Settings
from store.server import Locks


def test_doctor_warns_when_statements_over_all_weeks_may_take_half_of_the_lock_table():
    few, many = Locks(6400, 9, 63, 117), Locks(6400, 109, 763, 1417)

    fine, scarce = (checks.locks(found, 100, Settings(api_pool=8)) for found in (few, many))

    assert (fine.level, scarce.level) == (Level.OK, Level.WARN)
    assert "with 109 partitions of each table" in scarce.found
    assert scarce.advice.startswith("Set max_locks_per_transaction to 192 and restart PostgreSQL")
