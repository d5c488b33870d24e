"""What the routes of schedules answer, for OpenAPI and the types of the web pages."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class CatchUpRow(BaseModel):
    """Which late slots are fired."""

    window_seconds: int
    at_most: int


class ScheduleRow(BaseModel):
    """A schedule."""

    id: str
    agent_id: str
    name: str
    spec: dict[str, Any]
    start: dict[str, Any]
    session: Literal["new", "same"]
    overlap: Literal["skip", "enqueue", "cancel_previous", "allow"]
    catch_up: CatchUpRow
    end_at: str | None
    max_runs: int | None
    status: Literal["active", "waiting", "paused", "ended"] = Field(
        description="`waiting`: a slot waits for the previous run; `ended`: no slot is left"
    )
    paused: bool
    paused_reason: str
    next_at: str | None = Field(description="The next slot; null while paused, and at the end")
    last_at: str | None = Field(description="The last slot that was handled")
    last_run_id: str | None
    runs: int = Field(description="How many slots have started a run")
    refusals: int = Field(description="How many slots were refused since the last run; 10 pause the schedule")
    session_id: str | None = Field(description="The session of all runs, with session `same`")
    created_by: str | None = Field(description="The token; null: the command line")
    created_at: str | None
    updated_at: str | None


class ScheduleReply(ScheduleRow):
    """A schedule with its next slots."""

    now: str | None = Field(description="The time of the database")
    next_slots: list[str | None]


class ScheduleListReply(BaseModel):
    """Schedules, the oldest first."""

    now: str | None
    schedules: list[ScheduleRow]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class FireRow(BaseModel):
    """What came of a slot."""

    slot: str | None
    outcome: Literal["started", "skipped", "refused", "missed"]
    run_id: str | None
    reason: str
    slots: int = Field(description="How many missed slots the row stands for")
    by_hand: bool
    at: str | None = Field(description="When it was decided")


class FireListReply(BaseModel):
    """What came of the slots, the latest first."""

    now: str | None
    fires: list[FireRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")


class SlotRow(BaseModel):
    """A slot."""

    at: str | None
    local: str = Field(description="As clocks of the time zone show it, with the offset")


class PreviewReply(BaseModel):
    """The next slots of a specification that is not stored."""

    now: str | None
    slots: list[SlotRow]


class TriggerReply(BaseModel):
    """A run that was started by hand."""

    run_id: str
    session_id: str
    slot: str | None
    queued: bool = Field(description="Whether it waits for another run of its session")
