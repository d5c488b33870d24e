"""Models of the replies for pages. They describe the replies in OpenAPI; replies are built without them."""

from typing import Any

from pydantic import BaseModel, Field


class Reply(BaseModel):
    """A reply with times. Times are ISO 8601, except `now`."""

    now: int = Field(description="Time of the database, in milliseconds since 1970")


class VersionRow(BaseModel):
    """A version of an agent as a row of a list."""

    id: str
    number: int = Field(description="Place among the stored versions of the agent, from 1 on")
    title: str
    description: str | None
    published: bool
    digest: str = Field(description="SHA-256 of the document; equal documents have equal digests")
    same_as_draft: bool
    created_at: str
    runs_30d: int = Field(description="Runs of the last 30 days, 1000 at most")
    runs_30d_is_capped: bool = Field(description="Whether there are more than `runs_30d`")


class VersionListReply(Reply):
    """A page of an agent's versions, the newest first."""

    versions: list[VersionRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")


class VersionReply(Reply):
    """A version with its document, or the draft. The draft has `updated_at`, and nothing that only a version has."""

    id: str = Field(description="`draft` for the draft")
    number: int | None = None
    title: str
    description: str | None
    published: bool
    digest: str
    same_as_draft: bool
    created_at: str | None = None
    updated_at: str | None = None
    runs_30d: int | None = None
    runs_30d_is_capped: bool | None = None
    document: dict[str, Any] = Field(description="With masks in place of secrets")
