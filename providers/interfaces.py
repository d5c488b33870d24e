"""Protocols of the services that a node may use besides models, and the values that they take and return.

The services are HTTP, knowledge bases, sandboxes, databases, MCP servers, mail, speech and memories. The other modules
of `providers` implement the protocols. A worker combines the implementations of one tenant in `Services`; tests and
the conformance runner provide their own. All methods are async, and cancelling the caller cancels the call. A failure
of the other side is raised as a ToolError whose message may be shown to users.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.rate_limits import VendorRateLimit

MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # default limit for the body of one response


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One outgoing HTTP request. At most one of `json`, `form` and `content` is set.

    `timeout` is in seconds for the whole request, redirects included. `redirects` is the number of redirects that are
    followed; each address is checked like the first one. `trusted` is for addresses from the deployment's own settings:
    they may be private, but the addresses that they redirect to may not. `rate_limit` is the limit of a vendor for all
    callers together; the wait for it comes before the request and does not count towards `timeout`. `as_browser` is for
    vendors that only answer browsers.
    """

    method: str
    url: str = field(repr=False)  # may contain keys, like every part of a request
    params: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    json: Any = field(default=None, repr=False)
    form: Mapping[str, Any] | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    has_json: bool = False  # send `json` even if it is null
    timeout: float = 15.0
    redirects: int = 0
    proxy: str | None = None
    trusted: bool = False
    max_bytes: int = MAX_RESPONSE_BYTES
    rate_limit: VendorRateLimit | None = None
    as_browser: bool = False


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response of any status with its whole body. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str  # the last address, after redirects

    @property
    def is_success(self) -> bool:
        """Return whether the status is 2xx."""
        return 200 <= self.status < 300


class Http(Protocol):
    """The only client for outgoing HTTP. It checks each address and connects to exactly the address that it checked."""

    async def send(self, call: HttpCall) -> HttpResponse:
        """Send a request and return the response.

        Raises AddressRefused, and HttpFailed if no complete response came; its `retryable` says whether to try again.
        """
        ...


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """An HTTP response of any status whose body is still being received. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]  # decompressed; raises HttpFailed like `Http.send`


class StreamingHttp(Http, Protocol):
    """An `Http` that can also return a response while its body is being received."""

    def stream(self, call: HttpCall) -> AbstractAsyncContextManager[StreamedResponse]:
        """Return the response to a request without following redirects; leaving the block closes the connection.

        Raises like `send`.
        """
        ...


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A question to knowledge bases or memories; `options` has the other parameters of the node by name."""

    question: str
    dataset_ids: Sequence[str] = ()
    memory_ids: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Retriever(Protocol):
    """Searches knowledge bases."""

    async def search(self, search: RetrievalQuery) -> Mapping[str, Any]:
        """Return {"chunks": [chunk], "doc_aggs": [aggregate]}, best first, with the keys of RAGFlow's Retrieval."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """Code to run: `language` is `python` or `nodejs`, `arguments` are those of `main`, `timeout` is in seconds."""

    language: str
    script: str
    arguments: Mapping[str, Any]
    timeout: float
    key: str  # the same for every attempt at the same execution


@dataclass(frozen=True, slots=True)
class ProducedFile:
    """A file that a program wrote or a browser downloaded."""

    name: str
    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that a program wrote and that is not returned, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of a program. `has_value` distinguishes a structured result of null from a missing one."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    value: Any = None
    has_value: bool = False
    files: Sequence[ProducedFile] = ()
    skipped: Sequence[SkippedFile] = ()


class Sandbox(Protocol):
    """Runs untrusted code outside of the worker process."""

    @property
    def is_repeatable(self) -> bool:
        """Return whether a program cannot change anything outside of the sandbox, so that it may be run again."""
        ...

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded its timeout."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of a statement: the names of the columns, and the first rows as the driver's own Python values."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement whose values are sent separately from its text: one value between every two `parts`."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]


class DatabaseSession(Protocol):
    """A read-only database session, for one caller at a time."""

    async def execute(self, sql: str | BoundStatement, most_rows: int) -> Rows:
        """Execute one statement and return its first rows.

        Raises ToolError with the server's message; the session stays usable.
        """
        ...


class Databases(Protocol):
    """Opens sessions on the databases that ExeSQL queries."""

    def connect(self, params: Mapping[str, Any]) -> AbstractAsyncContextManager[DatabaseSession]:
        """Open a session on {db_type, host, port, database, username, password}; `timeout` is seconds per statement.

        Entering the block raises AddressRefused for a host that is not allowed, and ToolError if no session was opened.
        """
        ...


@dataclass(frozen=True, slots=True)
class McpCall:
    """A call of a tool of an MCP server, with the description and schema that the model was given.

    `headers` come from the caller and override the headers that the tenant has stored for the server.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class McpToolDescription:
    """The description and schema of an MCP tool as a model is given them."""

    description: str
    schema: Mapping[str, Any]


class Mcp(Protocol):
    """The MCP servers of a tenant, for one attempt. The first call to a server opens its session."""

    async def call(self, call: McpCall) -> str:
        """Call a tool and return the text for the model, also if the tool or its server failed.

        Raises ToolError or NodeFailure if the tool was not called: the server is unknown or does not answer, or the
        tool is not allowed or has changed.
        """
        ...

    async def load_pinned_description(self, server: str, tool: str) -> McpToolDescription | None:
        """Return the description and schema that were stored when the tool was listed; None if there are none.

        Raises ToolError for an unknown server.
        """
        ...

    async def close(self) -> None:
        """Close the sessions, within two seconds."""
        ...


class Speech(Protocol):
    """A text-to-speech model."""

    async def synthesize(self, text: str) -> bytes:
        """Return the audio of a sentence without markup. Raises ModelError."""
        ...


class Memories(Protocol):
    """The memories in which Message nodes store turns of a conversation."""

    async def save(self, memory_ids: Sequence[str], record: Mapping[str, Any], key: str) -> None:
        """Store {user_id, agent_id, session_id, user_input, agent_response}; saving twice with one key stores it once.

        Raises a ToolError that names the memories that do not exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class MailAccount:
    """An SMTP server and a login. `tls` True: TLS from the first byte on; False: STARTTLS. Plain text is never used.

    `timeout` is in seconds for the whole session. `trusted` is for servers from the deployment's own settings.
    """

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: bool
    timeout: float
    trusted: bool = False


class DeliveryUnknown(ToolError):
    """A message was sent and the server did not answer: it may have been delivered and must not be sent again."""

    def __init__(self) -> None:
        super().__init__("delivery state unknown")


class MailSession(Protocol):
    """A session with a mail server, for one message."""

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        """Send sender and recipients; return the refused recipients with the server's answers.

        Raises ToolError if the server refuses all recipients.
        """
        ...

    async def deliver(self, message: bytes) -> None:
        """Send the message. Raises ToolError if the server refuses it, DeliveryUnknown if the result is not known."""
        ...


class Mail(Protocol):
    """Sends messages to mail servers."""

    def connect(self, account: MailAccount) -> AbstractAsyncContextManager[MailSession]:
        """Open a session and log in. Entering the block raises AddressRefused or ToolError."""
        ...


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The browser that the component Browser drives, and the addresses that it may reach.

    `executable` None means the usual places of Chromium. `profiles` is the tenant's folder of browser profiles, which
    keep cookies and logins from run to run; None: nothing is kept. `upload_url_max_bytes` limits a file that is fetched
    from a URL in order to upload it on a page.
    """

    guard: Guard
    executable: str | None = None
    profiles: Path | None = None
    upload_url_max_bytes: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one tenant. None means not configured; a node that needs the service fails with that reason."""

    http: Http
    retriever: Retriever | None = None
    sandbox: Sandbox | None = None
    databases: Databases | None = None
    speech: Speech | None = None
    memories: Memories | None = None
    browser: BrowserSettings | None = None
    mcp: Mcp | None = None
    base_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    """Base URLs of tool vendors that the deployment overrides, by tool class in capitals (TOOL_<CLASS>_BASE_URL)."""
    vendor_keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The deployment's own keys of tool vendors, by vendor in capitals, for nodes that have no key."""
    mail: Mail | None = None
