"""Models of replies about runs. They describe the replies in OpenAPI; replies are built without them, for speed."""

from typing import Any

from pydantic import BaseModel, Field

Milliseconds = int | None


class CompactRows(BaseModel):
    """Rows as lists of values in the order of `columns`."""

    now: int = Field(description="Time of the database, in milliseconds since 1970, as all times of the rows")
    columns: list[str]
    rows: list[list[Any]]


class ActivationListReply(CompactRows):
    """Activations in columns."""

    revision: int = Field(description="Revision of the run in the same snapshot; the `since` of the next request")
    strings: list[str] = Field(
        description="Texts of node_id, component, scope, status, outcome, worker and code; rows have their numbers"
    )
    next: str | None = Field(description="The `after` of the next page; null on the last")
    total: int = Field(description="Activations that the filters select, on all pages and since any revision")
