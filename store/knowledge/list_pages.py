"""One page of a list, with the number of all its entries."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Executable

from store.db.transaction import Transaction


def page_with_total(
    tx: Transaction, statement: Executable, *, most: int, skipped: int, **parameters: Any
) -> tuple[Sequence[Any], int]:
    """Return the rows of a page, and how many rows there are in all.

    `statement` has the parameters `most` and `skipped`, and a column `total` that counts over all rows. A page behind
    the last one has no row with a total, so the first row is read for it.
    """
    rows = tx.rows(statement, most=most, skipped=skipped, **parameters)
    counted = rows or (tx.rows(statement, most=1, skipped=0, **parameters) if skipped else ())
    return rows, counted[0].total if counted else 0
