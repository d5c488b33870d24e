"""Models of the replies about callbacks."""

from typing import Literal

from pydantic import BaseModel, Field


class CallbackRow(BaseModel):
    """A stored callback, without its secret."""

    id: str
    agent_id: str | None = Field(description="The agent whose runs it is told of; null: the runs that name it")
    url: str
    events: list[str]
    include: list[str]
    description: str
    enabled: bool
    disabled_because: Literal["owner", "gone"] | None = Field(description="`gone`: its server answered 410")
    disabled_at: str | None
    former_secret_until: str | None = Field(description="Until then the secret before the present one signs, too")
    created_at: str


class NewCallbackReply(CallbackRow):
    """A callback with its new secret, which is shown once."""

    secret: str


class CallbackListReply(BaseModel):
    """Stored callbacks, the oldest first."""

    callbacks: list[CallbackRow]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class SecretReply(BaseModel):
    """The tenant's secret, which signs for callbacks of runs without a secret of their own."""

    secret: str


class AttemptRow(BaseModel):
    """One attempt to send a delivery."""

    at: str
    status: int | None = Field(description="Status of the answer; null if there was none")
    ms: int
    error: str | None


class DeliveryRow(BaseModel):
    """A delivery: one event for one callback."""

    id: str
    message_id: str = Field(description="The `webhook-id` of all its attempts")
    callback_id: str
    event: str
    run_id: str | None
    agent_id: str | None
    status: Literal["pending", "delivered", "dead"]
    attempt_count: int
    attempts: list[AttemptRow] = Field(description="The newest 30, the oldest of them first")
    occurred_at: str
    next_attempt_at: str | None = Field(description="Of a pending delivery")
    ended_at: str | None


class DeliveryListReply(BaseModel):
    """Deliveries, the newest first."""

    deliveries: list[DeliveryRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")
