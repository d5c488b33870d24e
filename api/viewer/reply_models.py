"""Models of the replies for pages. They describe the replies in OpenAPI; replies are built without them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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


class Figures(BaseModel):
    """Counts by status, durations of runs that have succeeded or failed, and usage."""

    succeeded: int
    failed: int
    cancelled: int
    active: int = Field(description="Neither over nor refused: queued, running, waiting or stopping")
    p50_ms: int | None
    p95_ms: int | None
    tokens: int
    cost: dict[str, float] = Field(description="By currency")
    unpriced_calls: int = Field(description="Model calls whose price is unknown, which `cost` does not include")


class OverviewTiles(Figures):
    """Figures of all runs, and how many runs wait now, whenever they began."""

    runs: int
    failure_rate: float | None = Field(description="Failed runs among those that succeeded or failed")
    waiting: int
    waiting_is_capped: bool


class OverviewBucket(Figures):
    """Figures of a part of the range."""

    t: int = Field(description="When it begins, in milliseconds since 1970")


class OverviewAgent(Figures):
    """Figures of an agent."""

    agent_id: str
    title: str | None = Field(description="Null if the agent was deleted")
    runs: int
    failure_rate: float | None


class OverviewNode(BaseModel):
    """Steps of a node of one version."""

    agent_id: str
    version_id: str
    node_id: str
    count: int
    failed: int
    p50_ms: int | None
    p95_ms: int | None
    tokens: int


class OverviewWaiting(BaseModel):
    """A run that waits."""

    run_id: str
    agent_id: str
    agent: str | None
    waits_for: str = Field(description="As in `GET /runs/{id}/explain`")
    since: str | None
    sentence: str


class OverviewModel(BaseModel):
    """Calls to one model of one account, and what they used (`total_tokens`, `cost` by currency, …)."""

    model_config = ConfigDict(extra="allow")

    model: str
    account: str
    calls: int
    failed: int = Field(description="Calls that failed, were cancelled or cut")
    waited_ms: int = Field(description="For rate limits")


class OverviewReply(Reply):
    """Figures of a tenant's runs."""

    begin: str = Field(alias="from")
    to: str
    capped: bool = Field(description="Whether the range has more runs than were counted")
    counted_from: str | None = Field(description="If it is capped, when the oldest counted run was accepted")
    tiles: OverviewTiles
    buckets: list[OverviewBucket]
    agents: list[OverviewAgent] = Field(description="Those with the most runs, 20 at most")
    agents_cut: bool
    nodes: list[OverviewNode] = Field(description="Of the latest 200 runs: the most failures first, then the slowest")
    nodes_cut: bool
    nodes_of_runs: int = Field(description="How many runs `nodes` are of; of each, 2000 steps at most")
    models: list[OverviewModel] | None = Field(
        description="Those with the most calls, 20 at most; null if counting them takes too long"
    )
    models_cut: bool
    models_of_runs: int | None = Field(description="How many runs `models` are of; of each, 1000 calls at most")
    runs_without_model_calls: int | None = Field(
        description="Runs among those that used models and whose calls are not stored, or were deleted"
    )
    waiting: list[OverviewWaiting] = Field(description="The oldest 20 runs that wait")


class SystemQueue(BaseModel):
    """A queue of the broker."""

    name: str
    length: int | None = Field(description="Task messages that no process has fetched")
    probe_at: str | None = Field(description="When the latest queue probe that returned was sent")
    is_moving: bool | None = Field(
        description="Whether that is at most 15 seconds ago; null for a queue without probes"
    )


class SystemActivations(BaseModel):
    """Activations of all tenants by status, each 10,000 at most."""

    ready: int
    running: int
    reported: int
    is_capped: bool


class SystemSweeper(BaseModel):
    """Since when sweepers have worked without interruption, and when one was last seen."""

    since: str | None
    seen_at: str | None
    is_running: bool


class SystemSetting(BaseModel):
    """A setting of the API process."""

    name: str
    value: bool | int | float | str | None


class SystemReply(Reply):
    """The state of the deployment."""

    release: str
    uptime_s: int = Field(description="Of this API process")
    checks: dict[str, str] = Field(description="As `GET /readyz`")
    queues: list[SystemQueue]
    activations: SystemActivations | None
    sweeper: SystemSweeper | None
    settings: list[SystemSetting]
    flower_url: str | None


class ComparedRun(BaseModel):
    """One of two runs that are compared."""

    id: str
    agent_id: str | None
    version_id: str | None
    status: str
    error: str | None
    query: str = Field(description="The beginning, 200 characters at most")
    query_cut: bool
    origin: dict[str, Any] | None
    steps: int
    usage: dict[str, Any]
    created_at: str
    started_at: str | None
    finished_at: str | None
    elapsed_ms: int | None


class FirstDivergence(BaseModel):
    """The first step in canonical order that differs."""

    node_id: str
    name: str
    component: str
    scope: str
    ordinal: int
    what: int
    a_id: str | None
    b_id: str | None
    sentence: str = Field(description="In what it differs, in words")


class VersionChange(BaseModel):
    """A parameter, or another property of a node, that differs. Sides that have no value are null."""

    path: str
    kind: str = Field(description="changed, only_a or only_b")
    a: dict[str, Any] | None = Field(description="`{value, chars, cut}`")
    b: dict[str, Any] | None
    diff: str | None = Field(default=None, description="Unified diff of longer texts")
    diff_cut: bool | None = None


class ChangedNode(BaseModel):
    """A node of both versions, or of one."""

    node_id: str
    name: str
    component: str
    changes: list[VersionChange] | None = None


class VersionDifferences(BaseModel):
    """In what two versions differ, as far as it runs; secrets are masked."""

    same: bool
    unavailable: str | None = Field(description="Why the versions cannot be compared; then nothing else is there")
    changed: list[ChangedNode] | None = None
    only_a: list[ChangedNode] | None = None
    only_b: list[ChangedNode] | None = None
    edges: dict[str, list[dict[str, str]]] | None = Field(default=None, description="`only_a` and `only_b`")
    variables: list[VersionChange] | None = None
    cut: bool | None = Field(default=None, description="Whether there are more than a thousand differences")


class ComparisonReply(Reply):
    """Two runs side by side, and a page of their steps."""

    same: bool = Field(description="Whether no step differs, nor the status, nor what runs in the versions")
    a: ComparedRun
    b: ComparedRun
    same_version: bool
    versions: VersionDifferences | None = Field(description="Null with the same version, and on later pages")
    first_divergence: FirstDivergence | None
    totals: dict[str, int] = Field(description="Steps by result: same, differs, only_a, only_b")
    columns: list[str]
    rows: list[list[Any]] = Field(
        description="`what`: inputs 1, outputs 2, outcome 4, error 8, attempts 16, only in A 32, only in B 64, status "
        "128"
    )
    names: dict[str, str] = Field(description="Display names of the nodes of the page")
    next: str | None = Field(description="The `after` of the next page; null on the last")


class ComparedValues(BaseModel):
    """Values of both sides by name, those that differ first."""

    values: list[dict[str, Any]] = Field(description="`{name, kind, a, b, diff, diff_cut}`")
    cut: bool = Field(description="Whether there are more than a hundred")


class ComparedStepReply(Reply):
    """A step in both runs, with what it has read and written."""

    node_id: str
    name: str
    component: str
    scope: str
    ordinal: int
    what: int
    sentence: str
    a: dict[str, Any] | None
    b: dict[str, Any] | None
    inputs: ComparedValues
    outputs: ComparedValues
    variables: ComparedValues
    prompts: ComparedValues = Field(description="What its models were asked, by call and message")


class SharedRunReply(BaseModel):
    """What a visitor of a share sees."""

    run_id: str
    hide: list[str]
    may_answer: bool
    expires_at: str


class AboutReply(BaseModel):
    """The release, and for a caller with a token or a cookie who it is. A visitor of a share has no tenant."""

    build: str | None = Field(description="The build of the pages; null if none are served")
    release: str
    base: str = Field(description="The path below which the API is served; empty: the root")
    signed_in: bool
    flower_url: str | None = None
    tenant: dict[str, Any] | None = Field(default=None, description="`{id, name}`")
    user_id: str | None = None
    kind: str | None = Field(default=None, description="api, admin, viewer or share")
    scopes: list[str] | None = Field(default=None, description="Of the token: read, run, edit, admin")
    agent_id: str | None = Field(default=None, description="The only agent that the token opens; null: all")
    may: list[str] | None = Field(default=None, description="Of read, change, share, administer; a visitor: answer")
    model_calls: str | None = Field(default=None, description="What is stored of model calls: full, usage or off")
    limits: dict[str, int] | None = Field(default=None, description="Bytes of bodies, canvases, uploads; days")
    share: SharedRunReply | None = None


class SignInRow(BaseModel):
    """A browser that is signed in."""

    id: str
    kind: str
    created_at: str
    last_seen_at: str = Field(description="To the minute")
    expires_at: str
    agent: str = Field(description="The browser, as it calls itself")
    is_current: bool


class SignInListReply(Reply):
    """The browsers that are signed in with the caller's token, the newest first."""

    sessions: list[SignInRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")


class CodeReply(BaseModel):
    """A code with which a browser signs in once."""

    code: str
    expires_at: str


class PublishedVersion(BaseModel):
    """The version that was published last."""

    version_id: str
    digest: str


class FindingRow(BaseModel):
    """A defect of a canvas. `code` is stable; `node` is null for the canvas as a whole."""

    severity: str
    node: str | None
    field: str | None
    message: str
    code: str


class SavedDraftReply(BaseModel):
    """A draft that was saved. `etag` is the `If-Match` of the next change."""

    etag: str
    digest: str
    findings: list[FindingRow]


class AgentTitleReply(BaseModel):
    """The title and description of an agent, as they are stored now."""

    id: str
    title: str
    description: str | None
    updated_at: str


class DraftReply(SavedDraftReply):
    """A draft with its document. `updated_by`: the id of the token that saved it last, if it is known."""

    document: dict[str, Any] = Field(description="With masks in place of secrets")
    updated_at: str
    updated_by: str | None
    published: PublishedVersion | None


class NewAgentReply(BaseModel):
    """An agent that was made. `etag` is the `If-Match` of its first change."""

    id: str
    title: str
    etag: str
    findings: list[FindingRow]


class TokenRow(BaseModel):
    """A token without its text."""

    id: str
    prefix: str | None = Field(description="How its text begins; null for tokens of earlier releases")
    name: str
    kind: str = Field(description="api, admin, viewer or beta, as in earlier releases")
    scopes: list[str] = Field(description="Of read, run, edit, admin; or share alone")
    agent_id: str | None = Field(description="The only agent that the token opens; null: all")
    may_share: bool
    created_at: str
    created_by: str | None = Field(description="The token that made it; null: the command line")
    expires_at: str | None
    last_used_at: str | None = Field(description="To the minute")
    revoked_at: str | None
    is_over: bool = Field(description="Whether it was revoked or has expired")


class NewTokenReply(TokenRow):
    """A new token, with its text, which is shown once."""

    token: str


class TokenListReply(BaseModel):
    """Tokens, the newest first."""

    now: str
    tokens: list[TokenRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")


class AuditActor(BaseModel):
    """Who did it."""

    kind: str = Field(description="token, sign_in, share_link, share or command_line")
    id: str | None = Field(description="Of the token, the sign-in or the share")
    token_id: str | None = Field(description="The token, also of a sign-in")
    name: str = Field(description="Of the token at that time, or the user of the command line")


class AuditObject(BaseModel):
    """What it was done to."""

    kind: str
    id: str | None


class AuditRow(BaseModel):
    """An entry of the audit log. Saves of a draft within ten minutes share one, from `at` to `last_at`."""

    id: str
    at: str
    last_at: str
    times: int
    actor: AuditActor
    action: str
    object: AuditObject
    details: dict[str, Any]
    request_id: str | None = Field(description="The X-Request-Id of the request")


class AuditReply(BaseModel):
    """The audit log, the newest first."""

    now: str
    entries: list[AuditRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")
