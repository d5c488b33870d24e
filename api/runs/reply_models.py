"""Models of replies about runs. They describe the replies in OpenAPI; replies are built without them, for speed."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from scheduler.views.critical_path import PARTS
from scheduler.views.run_totals import NODE_COUNTS


class ExplanationReply(BaseModel):
    """What a run waits for, as `GET /runs/{id}/explain` shows it."""

    run_id: str
    status: str
    sentence: str
    waits_for: str
    owner: str | None
    since: str | None
    until: str | None
    node: str | None
    node_name: str | None
    activation_id: str | None
    scope: str | None
    detail: dict[str, Any]
    also: list[dict[str, Any]]


class FirstFailure(BaseModel):
    """The failure that ends a run. Ids are null if it belongs to no single activation."""

    activation_id: str | None
    node_id: str | None
    scope: str | None
    error: str
    code: str


class RunPermissions(BaseModel):
    """What the caller may do with the run now."""

    cancel: bool
    answer: bool
    raise_budget: bool
    rerun: bool
    fork: bool
    share: bool
    edit: bool


class CriticalPathReply(BaseModel):
    """The chain of steps that decided when a run ended, and where its time went."""

    ms: int | None = Field(description="From the activation of the first step to the end; null if it is not computed")
    parts: dict[str, int] | None = Field(description=f"Milliseconds by kind, which add up to `ms`: {', '.join(PARTS)}")
    steps: list[str] | None = Field(description="Ids of activations in the order of time, the last 2,000 at most")
    steps_total: int | None
    unavailable: str | None = Field(description="Why it is not computed")


class FirstRequest(BaseModel):
    """What the first turn of the session in this run began with."""

    query: Any
    inputs: dict[str, Any] | None


class RunListRow(BaseModel):
    """A run as a row of a list. Times are ISO 8601."""

    id: str
    external_id: str | None
    agent_id: str | None
    version_id: str | None
    session_id: str | None
    message_id: str | None
    status: str
    error: str | None
    has_model_error: bool
    usage: dict[str, Any]
    last_event: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    elapsed_ms: int | None
    origin: dict[str, Any] | None


class RunReply(RunListRow):
    """A run. A refused start has no totals."""

    request: dict[str, Any]
    answer: str
    waiting: dict[str, Any] | None
    budget: list[dict[str, Any]] | None
    budget_exceeded: dict[str, Any] | None
    warnings: list[dict[str, Any]]
    activations: list[dict[str, Any]] | None = Field(default=None, description="Absent with `activations=none`")
    activation_count: int
    activations_truncated: bool | None = None
    activations_cut: bool | None = Field(default=None, description="True if `activations` has not all of them")
    activations_total: int | None = None
    now: int | None = None
    revision: int | None = None
    rules_version: int | None = None
    agent_title: str | None = None
    version_title: str | None = None
    version_number: int | None = None
    version_digest: str | None = None
    draft_digest: str | None = None
    conversation_name: str | None = None
    previous_run: str | None = None
    expires_at: str | None = None
    counts: dict[str, int] | None = None
    nodes: dict[str, list[Any]] | None = Field(
        default=None, description=f"By node id: [{', '.join(NODE_COUNTS)}]; times in milliseconds since 1970"
    )
    waits: ExplanationReply | None = None
    first_failure: FirstFailure | None = None
    handled_failures: int | None = None
    first_request: FirstRequest | None = None
    may: RunPermissions | None = None
    forks: dict[str, Any] | None = Field(default=None, description="The newest reruns and forks: `{ids, total}`")
    model_calls: str | None = Field(
        default=None, description="What is stored of its model calls: full, usage, none; null if it has made none"
    )
    critical: CriticalPathReply | None = Field(default=None, description="With `critical=1`")
    shares: int | None = Field(default=None, description="Shares of the run that are not over")
    hidden: list[str] | None = Field(default=None, description="For visitors of a share: what it hides")


class ItemOfPath(BaseModel):
    """A container around an activation, and the item that the activation belongs to."""

    container: str
    name: str
    activation_id: str
    item: int
    count: int | None


class ActivationRead(BaseModel):
    """A reference of a node, and the activation whose value it sees."""

    reference: str
    node_id: str | None
    activation_id: str | None
    missing: bool


class ActivationSiblings(BaseModel):
    """The activations of the same node."""

    count: int
    index: int
    failed: int


class JournalEntry(BaseModel):
    """What an attempt has recorded for the next one."""

    key: str
    bytes: int


class AttemptReply(BaseModel):
    """An attempt after which its activation became ready again. Times are ISO 8601."""

    activation_id: str
    attempt: int
    ready_at: str | None
    started_at: str | None
    ended_at: str | None
    elapsed_ms: int | None
    worker: str | None
    end_reason: str | None = Field(description="Null of the current attempt")
    code: str | None
    error: str | None
    next_attempt_at: str | None
    usage: dict[str, Any] | None
    crash_count: int


class ModelCallReply(BaseModel):
    """A call to a model without its bodies. Times are ISO 8601."""

    id: str
    activation_id: str
    attempt: int
    round: str | None
    kind: str
    model: str
    account: str
    status: str
    error: str | None
    tries: int
    waited_ms: int
    usage: dict[str, Any] | None
    bodies: str = Field(description="stored, hidden or none")
    started_at: str | None
    first_token_at: str | None
    ended_at: str | None
    elapsed_ms: int | None


class ToolCallReply(BaseModel):
    """A call of a tool. What rows of earlier releases lack is null."""

    id: str
    activation_id: str | None
    node_id: str
    attempt: int | None
    round: str | None
    ordinal: int | None
    path: Any
    tool_name: str | None
    arguments: Any
    result: Any
    failed: bool | None
    replayed: bool | None
    started_at: str | None
    elapsed_ms: int | None


class AttemptListReply(BaseModel):
    """A page of earlier attempts, by activation and number."""

    now: str
    attempts: list[AttemptReply]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class ModelCallListReply(BaseModel):
    """A page of model calls, oldest first."""

    now: str
    calls: list[ModelCallReply]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class WholeModelCallReply(ModelCallReply):
    """A call to a model with its bodies, null where they are not stored."""

    now: str
    request: Any
    response: Any


class ToolCallListReply(BaseModel):
    """A page of tool calls, oldest first."""

    now: str
    tool_calls: list[ToolCallReply]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class ActivationReply(BaseModel):
    """One activation. Times are milliseconds since 1970."""

    now: int
    revision: int
    id: str
    node_id: str
    name: str
    component: str
    scope: str
    ordinal: int
    order_key: str
    status: str
    outcome: str | None
    attempt: int
    crash_count: int
    created_at: int
    not_before: int | None
    enqueued_at: int | None
    started_at: int | None
    finished_at: int | None
    ended_at: int | None
    lease_until: int | None
    worker: str | None
    effect: str | None
    calls: int | None
    tokens_in: int | None
    tokens_out: int | None
    cost: dict[str, float] | None
    error: str | None
    routed_to: list[str] | None
    count: int | None
    code: str | None
    stream: str | None
    cancel_requested: bool
    item_path: list[ItemOfPath]
    answers: Any
    outcome_details: dict[str, Any] | None
    explain: ExplanationReply | None
    reads: list[ActivationRead]
    siblings: ActivationSiblings
    journal: list[JournalEntry]
    events: list[int]
    attempts: list[AttemptReply] = Field(description="The last one is the current attempt, if there is one")
    model_calls: list[ModelCallReply]
    tool_calls: list[ToolCallReply]
    cut: list[str] = Field(
        description="Names of the lists that have more entries: `journal` and `events` show 200, "
        "`attempts`, `model_calls` and `tool_calls` 100"
    )
    inputs: dict[str, Any] | None = Field(default=None, description="Absent with `values=none`")
    outputs: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None


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
    attempt_columns: list[str] | None = Field(default=None, description="With `with=attempts`")
    attempts: list[list[Any]] | None = Field(
        default=None, description="Earlier attempts of the rows, in their order; `row` is the number of the row"
    )
    attempts_cut: bool | None = Field(default=None, description="Whether the rows have more earlier attempts")


class ItemListReply(CompactRows):
    """The items of a container in columns."""

    count: int | None = Field(description="Items of the container; null for a Loop, whose rounds are not known")
    done: int = Field(description="Items that have ended")
    error_of: dict[str, str] = Field(description="The first error of each failed item, at most 200 characters")
    next: int | None = Field(description="The `from` of the next page; null on the last")


class EventListReply(BaseModel):
    """Events of a run; docs/events.md describes their envelopes."""

    events: list[dict[str, Any]]
    position: str = Field(description="The `after` of the next request")
    status: str
    next: int | None = Field(
        default=None,
        description="Of a log: the `after`, or with `before` the `before`, of the next page; null on the last",
    )


class RunProgressReply(BaseModel):
    """Activations of a run: decided so far, ready or running, and waiting for a slot."""

    activated: int
    active: int
    queued: int


class KeysetRunRow(RunListRow):
    """A run as a row of a list by key. Rows of numbered pages have the fields of RunListRow only."""

    agent_title: str | None = None
    version_title: str | None = None
    version_number: int | None = None
    conversation_name: str | None = None
    user_id: str | None = None
    query: str | None = None
    failed_node: str | None = None
    waits: str | None = Field(default=None, description="person, budget or null")
    progress: RunProgressReply | None = None


class RunListReply(BaseModel):
    """A page of runs, the newest first."""

    runs: list[KeysetRunRow]
    total: int | None = None
    total_is_capped: bool | None = None
    next: str | None = Field(default=None, description="The `before` of the next page; null on the last")
    searched_until: str | None = Field(default=None, description="The time that the search reached, if it is not done")
    now: int | None = None


class RunStateRow(BaseModel):
    """What changes of a run in a list."""

    id: str
    status: str
    finished_at: str | None
    elapsed_ms: int | None
    progress: RunProgressReply
    usage: dict[str, Any]
    waits: str | None
    error: str | None


class RunStatesReply(BaseModel):
    """The states of runs."""

    now: int
    runs: list[RunStateRow]
    newer: int | None = Field(default=None, description="With `newer_than`: runs that are newer, at most 100")


class StartedReply(BaseModel):
    """A turn that was accepted: its run, session and message."""

    run_id: str
    session_id: str
    message_id: str


class EndedTurnReply(StartedReply):
    """With `Prefer: wait`, a turn that has ended: the data of its last event, and what it answered."""

    model_config = ConfigDict(extra="allow")

    status: str | None = Field(default=None, description="succeeded, waiting or cancelled")
    content: str | None = None
    reference: dict[str, Any] | None = None


class RepeatedNode(BaseModel):
    """A node that a fork would run again; the figures are those of the source."""

    node_id: str
    name: str
    count: int
    effect: str | None
    tokens: int
    cost: dict[str, float] | None
    unpriced_calls: int
    ms: int


class ForkEstimate(BaseModel):
    """What the steps that would run again have cost in the source."""

    tokens: int
    cost: dict[str, float] | None
    unpriced_calls: int
    ms: int


class ForkPreviewReply(BaseModel):
    """With `dry_run`: what a fork would do."""

    reused: int
    runs_again: list[RepeatedNode]
    may_run: list[str] = Field(description="Nodes behind those that run again which have not run yet")
    never_ran: list[str]
    estimate: ForkEstimate
    confirm: list[str] = Field(description="Nodes that `confirm_unsafe` has to name")


class CancelledRunReply(BaseModel):
    """The run whose cancel was requested."""

    run_id: str
    status: str


class CancelledRunsReply(BaseModel):
    """The ids of a request to cancel many runs, each once."""

    cancelled: list[str]
    over: list[str]
    unknown: list[str]


class RunFileReply(BaseModel):
    """A run as one document; docs/http.md describes its members."""

    format: str
    exported_at: str
    run: dict[str, Any]
    version: dict[str, Any] | None
    graph: dict[str, Any] | None
    activations: list[dict[str, Any]]
    values: list[dict[str, Any]]
    variables: list[dict[str, Any]]
    attempts: list[AttemptReply]
    model_calls: list[dict[str, Any]]
    call_parts: list[dict[str, Any]]
    tool_calls: list[ToolCallReply]
    events: list[dict[str, Any]]
    message_streams: list[dict[str, Any]]


class ShareRow(BaseModel):
    """A share of a run."""

    id: str
    run_id: str
    created_by: str = Field(description="The token that made it")
    created_at: str
    expires_at: str
    hide: list[str]
    may_answer: bool
    note: str
    revoked_at: str | None
    last_used_at: str | None = Field(description="To the minute")
    uses: int = Field(description="How often a browser signed in with it")
    is_over: bool


class NewShareReply(ShareRow):
    """A new share, with its secret, which is shown once."""

    url: str = Field(description="The link, from the root of the host")
    secret: str


class ShareListReply(BaseModel):
    """The shares of a run, the oldest first."""

    now: str
    shares: list[ShareRow]
    next: str | None = Field(description="The `after` of the next page; null on the last")
