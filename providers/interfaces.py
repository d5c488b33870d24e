"""What a node may reach besides models: HTTP, knowledge bases, sandboxes, databases, mail, speech and memories.

Here are the promises only, and the plain values that go in and out. The modules beside this one keep them; a worker
puts them together for each tenant (`Services`), and tests and the conformance runner give their own. Everything waits
and is cancelled by cancelling the caller. What goes wrong outside is raised as a ToolError whose message may be shown.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from canvas.errors import ToolError
from providers.http.address_policy import Guard
from providers.models.types.rate_limits import VendorRateLimit

MOST_BYTES = 16 * 1024 * 1024  # of one reply, unless the caller says otherwise


@dataclass(frozen=True, slots=True)
class Call:
    """One outgoing HTTP request. Of `json`, `form` and `content` at most one is given.

    `timeout` is in seconds for the whole request, redirects included. `redirects` is how many are followed; each is
    checked like the first address. `trusted` is for addresses that a deployment's own settings name: they may be
    private, their redirects may not. `pace` is what the vendor asks of all its callers together; the wait for it comes
    before the request and is no part of `timeout`. `as_browser` is for vendors that answer browsers only.
    """

    method: str
    url: str = field(repr=False)  # may hold keys, as may everything that is sent
    params: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    json: Any = field(default=None, repr=False)
    form: Mapping[str, Any] | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    has_json: bool = False  # `json` is meant even if it is null
    timeout: float = 15.0
    redirects: int = 0
    proxy: str | None = None
    trusted: bool = False
    most_bytes: int = MOST_BYTES
    pace: VendorRateLimit | None = None
    as_browser: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer of any status, read whole. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str  # where it came from in the end

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Http(Protocol):
    """The one way out. Addresses are checked (tools 1.11), and the connection goes to the address that was checked."""

    async def send(self, call: Call) -> Reply:
        """Raises AddressRefused, or HttpFailed when no whole answer came (`retryable` says whether more may help)."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer of any status whose body is still on its way. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]  # unpacked; raises HttpFailed like `Http.send`


class Streaming(Http, Protocol):
    """The one way out, for answers that are read as they come."""

    def stream(self, call: Call) -> AbstractAsyncContextManager[Answer]:
        """The answer to a call, redirects not followed. Leaving it closes what is still open. Raises like `send`."""
        ...


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A question to knowledge bases or memories (tools 6); `options` has the node's other parameters by name."""

    question: str
    dataset_ids: Sequence[str] = ()
    memory_ids: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Retriever(Protocol):
    """Searches knowledge bases."""

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        """{"chunks": [chunk], "doc_aggs": [agg]}, best first, keys as in tools 6."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """Code to run: `language` is `python` or `nodejs`, `arguments` is what `main` gets, `timeout` in seconds."""

    language: str
    script: str
    arguments: Mapping[str, Any]
    timeout: float
    key: str  # the same for every attempt at the same execution


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file that a program or a browser left behind."""

    name: str
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that a program left behind and that is not taken, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What a program did. `has_value` tells a structured result of null from none."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    value: Any = None
    has_value: bool = False
    files: Sequence[ProducedFile] = ()
    skipped: Sequence[SkippedFile] = ()


class Sandbox(Protocol):
    """Runs untrusted code somewhere else."""

    @property
    def repeatable(self) -> bool:
        """Whether nothing outside can have changed by what a program did, so that it may be run again."""
        ...

    async def run(self, program: Program) -> ProgramResult:
        """Raises ToolError when it could not be run, or ran out of time."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """What a statement gave: the names of its columns, and the first rows as the driver's own Python values."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement whose values are sent apart from its text: one between every two `parts`."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]


class Connection(Protocol):
    """A session that may only read, for one caller at a time."""

    async def execute(self, sql: str | BoundStatement, most_rows: int) -> Rows:
        """Carry out one statement. Raises ToolError in the server's words; the session goes on after it."""
        ...


class Databases(Protocol):
    """Opens the databases that ExeSQL asks."""

    def connect(self, params: Mapping[str, Any]) -> AbstractAsyncContextManager[Connection]:
        """A session on {db_type, host, port, database, username, password}; `timeout` is in seconds for a statement.

        Entering it raises AddressRefused for a host that may not be reached, and ToolError when there is no session.
        """
        ...


@dataclass(frozen=True, slots=True)
class McpCall:
    """A call of an MCP server's tool, with the words in which a model was told of it.

    `headers` are the caller's own; they go to the server last, over those that the tenant has stored for it.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class McpWords:
    """What a model is told of a tool of an MCP server."""

    description: str
    schema: Mapping[str, Any]


class Mcp(Protocol):
    """The MCP servers of a tenant, for one attempt: a session opens with the first call that needs it (tools 7)."""

    async def call(self, call: McpCall) -> str:
        """What a model reads of the call, also where the tool or its server failed. Raises ToolError and NodeFailure.

        Those say that nothing was called: the server is unknown or away, the tool is not allowed, or has changed.
        """
        ...

    async def pinned(self, server: str, tool: str) -> McpWords | None:
        """What a tool was when somebody saw it; None if nobody has. Raises ToolError for an unknown server."""
        ...

    async def close(self) -> None:
        """Close the sessions, within two seconds."""
        ...


class Speech(Protocol):
    """A text-to-speech model."""

    async def synthesize(self, text: str) -> bytes:
        """Audio of a cleaned sentence. Raises ModelError."""
        ...


class Memories(Protocol):
    """Where Messages remember what was said (components 5)."""

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str) -> None:
        """Keep {user_id, agent_id, session_id, user_input, agent_response}; twice with one key is once.

        Raises ToolError that names the memories that do not exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class MailAccount:
    """Whom to hand letters to, and as whom. `tls`: from the first byte on, else by STARTTLS; never without.

    `timeout` is in seconds for everything, `trusted` for servers that a deployment's own settings name.
    """

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: bool
    timeout: float
    trusted: bool = False


class DeliveryUnknown(ToolError):
    """A letter was handed over, and no answer came: it may have been delivered, and must not be sent once more."""

    def __init__(self) -> None:
        super().__init__("delivery state unknown")


class MailSession(Protocol):
    """A conversation with a mail server, for one letter."""

    async def address(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        """Say from whom and to whom; the recipients that the server refuses, and why. Raises ToolError: all of them."""
        ...

    async def deliver(self, message: bytes) -> None:
        """Hand over the letter. Raises ToolError if the server does not take it, DeliveryUnknown if nobody knows."""
        ...


class Mail(Protocol):
    """Hands letters to mail servers."""

    def connect(self, account: MailAccount) -> AbstractAsyncContextManager[MailSession]:
        """A session that is logged in. Entering it raises AddressRefused, and ToolError when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The browser that the component Browser drives, and what it may reach.

    `executable` None: wherever a Chromium usually is. `profiles` is the tenant's folder of what its browsers remember
    from run to run (cookies, logins); None: they remember nothing. `upload_url_max_bytes` is the largest file that is
    fetched from an address in order to offer it on a page.
    """

    guard: Guard
    executable: str | None = None
    profiles: Path | None = None
    upload_url_max_bytes: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Services:
    """All of it for one tenant. What is None is not configured, and a node that needs it says so."""

    http: Http
    retriever: Retriever | None = None
    sandbox: Sandbox | None = None
    databases: Databases | None = None
    speech: Speech | None = None
    memories: Memories | None = None
    browser: BrowserSettings | None = None
    mcp: Mcp | None = None
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where a tool's vendor answers, by class in capitals, where the deployment says so (TOOL_<CLASS>_BASE_URL)."""
    vendor_keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The deployment's own keys for tools' vendors, by vendor in capitals: they count where a node has none."""
    mail: Mail | None = None
