"""The error about a run that does not exist says when it may have been deleted."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from api.runs.run_lookup import run_not_found
from store.primitives.ids import first_id_at, new_id

RETENTION = timedelta(days=30)


def id_of(age: timedelta) -> str:
    """Return the id of a run that was started so long ago."""
    return UUID(int=first_id_at(datetime.now(UTC) - age).int | 7 << 76 | 2 << 62).hex


def test_id_older_than_the_retention_may_be_of_a_deleted_run():
    error = run_not_found(id_of(timedelta(days=31)), RETENTION)

    assert error.details == {"retention_days": 30}
    assert "It may have been deleted" in error.message


@pytest.mark.parametrize(
    "written",
    [id_of(timedelta(days=29)), new_id().hex, "0" * 32, "order-4713", "7" * 40],
    ids=["within the retention", "new", "zero", "external", "too long"],
)
def test_other_ids_are_only_unknown(written: str):
    error = run_not_found(written, RETENTION)

    assert (error.message, error.details) == (f"There is no run {written}.", {})


def test_nothing_is_said_of_deletions_where_runs_are_kept_for_ever():
    assert run_not_found(id_of(timedelta(days=400))).details == {}
