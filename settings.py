"""All settings, read from the environment once per process.

The variable of a setting is EASEL_ and the field's name in capitals. DATABASE_URL, REDIS_URL, CELERY_BROKER_URL and the
limits of RAGFlow deployments (COMPONENT_EXEC_TIMEOUT..., LLM_...) are read under these names too. An empty value counts
as unset. A duration is a number of seconds, or a number followed by ms, s, m, h or d. Only the entry points of
processes read this module; other code gets values as arguments.
"""

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from math import inf
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

MIN_SECRET_CHARS = 16
MAX_LEASE = timedelta(minutes=10)
"""Sweepers treat a lease that ends over 15 minutes from now as a clock error (store/monitoring/sweep_queries.py)."""
_ORIGIN = re.compile(r"https?://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:\d{1,5})?", re.ASCII)
UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}  # in seconds

RENAMED: Mapping[str, str] = {  # former name: present name; former names are read until the release after 0.1
    "EASEL_RIDE_ALONG": "EASEL_INLINE_ADVANCE",
    "EASEL_EAGER_FOR": "EASEL_CONTINUE_LOCALLY_FOR",
    "EASEL_DEAF_AFTER": "EASEL_UNRESPONSIVE_AFTER",
    "EASEL_CANARY_EVERY": "EASEL_PROBE_INTERVAL",
    "EASEL_GRACE": "EASEL_SHUTDOWN_GRACE",
    "EASEL_MAX_SPEECH": "EASEL_MAX_STREAM_CHARS",
}

TIME_LIMITS: Mapping[str, float] = {  # seconds; COMPONENT_EXEC_TIMEOUT does not apply to components in this table
    **dict.fromkeys(("Begin", "UserFillUp", "Iteration", "IterationItem", "Loop", "LoopItem", "ExitLoop"), inf),
    **dict.fromkeys(("Switch", "VariableAggregator", "Invoke", "ExeSQL"), 3),
    **dict.fromkeys(("Retrieval", "TavilySearch", "DuckDuckGo", "ArXiv", "GitHub", "Google", "GoogleScholar"), 12),
    **dict.fromkeys(("PubMed", "SearXNG", "QWeather", "DeepL", "AkShare", "WenCai", "KeenableSearch"), 12),
    **dict.fromkeys(("QueritSearch",), 12),
    **dict.fromkeys(("BGPT", "Jin10", "TuShare"), 30),  # the last two have no limit upstream
    **dict.fromkeys(("Wikipedia", "YahooFinance", "Email"), 60),
    **dict.fromkeys(("QueritContents",), 70),
    **dict.fromkeys(("LLM", "Categorize", "Message", "CodeExec", "Crawler", "TavilyExtract", "DataOperations"), 600),
    **dict.fromkeys(
        ("Answer", "ListOperations", "StringTransform", "VariableAssigner", "DocGenerator", "ExcelProcessor"), 600
    ),
    **dict.fromkeys(("Agent", "Browser", "DeepResearch"), 1200),
}


def _parse_duration(value: Any) -> Any:
    """Parse "90", "1.5h" or "250ms" as a duration. Return any other value unchanged, so that pydantic rejects it."""
    written = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|[smhd]?)\s*", str(value))
    return timedelta(seconds=float(written[1]) * UNITS[written[2]]) if written else value


def _expand_home(path: Path) -> Path:
    """Return the path with ~ resolved."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError("~ cannot be resolved, since this user has no home directory: set EASEL_HOME") from error


def _split_origins(written: str) -> tuple[str, ...]:
    return tuple(filter(None, (origin.strip() for origin in written.split(","))))


def _check_origins(written: str) -> str:
    """Refuse a list of origins that a Content-Security-Policy would read otherwise, or would not read."""
    origins = _split_origins(written)
    for origin in origins:
        if origin != "*" and _ORIGIN.fullmatch(origin) is None:
            raise ValueError(f"{origin[:100]!r} is not an origin: write https://example.com, without a path")
    if "*" in origins and len(origins) > 1:
        raise ValueError("`*` allows every site: write it alone, or leave it out")
    return written


def _use_psycopg(url: str) -> str:
    """Return a PostgreSQL URL with the scheme for which SQLAlchemy uses psycopg 3."""
    return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)


def _with_prefix(name: str) -> AliasChoices:
    """Return the aliases of a variable that is read with the prefix EASEL_ and without."""
    return AliasChoices(f"EASEL_{name}", name)


def _with_former_name(name: str) -> AliasChoices:
    """Return the aliases of a variable whose former name is still read; `renamed_variables` lists those in use."""
    return AliasChoices(f"EASEL_{name}", *(old for old, new in RENAMED.items() if new == f"EASEL_{name}"))


def _parse_whole_seconds(written: str | None) -> int | None:
    """Parse a limit of the COMPONENT_EXEC_TIMEOUT family. Anything but a positive whole number counts as unset."""
    return int(written) if written and re.fullmatch(r"\s*0*[1-9][0-9]{0,8}\s*", written) else None


def _limits_in_environment() -> Mapping[str, int]:
    """Read limits by the suffix after COMPONENT_EXEC_TIMEOUT: "" for all components, "_EXESQL" for one."""
    family = {
        name.removeprefix("COMPONENT_EXEC_TIMEOUT"): _parse_whole_seconds(value) for name, value in os.environ.items()
    }
    return {name: limit for name, limit in family.items() if limit is not None and name[:1] in ("", "_")}


def _tool_urls_in_environment() -> Mapping[str, str]:
    """Read base URLs of tools' vendors, for a private mirror or a test server."""
    named = (re.fullmatch(r"TOOL_([A-Z0-9_]+?)_BASE_URL(?:_([A-Z0-9_]+))?", name) for name in os.environ)
    found = {"_".join(filter(None, match.groups())): os.environ[match[0]] for match in named if match}
    return {name: url for name, url in found.items() if url}


def _check_cert_reqs(url: str) -> str:
    """Check that `ssl_cert_reqs` of a Redis or broker URL has a value that all libraries read alike; return the URL."""
    for value in parse_qs(urlsplit(url).query).get("ssl_cert_reqs", []):
        if value not in ("required", "none"):
            raise ValueError("ssl_cert_reqs must be required (the default) or none")
    return url


def _check_secret_length(secret: SecretStr) -> SecretStr:
    """Check that a secret is too long to guess, and return it."""
    length = len(secret.get_secret_value())
    if length < MIN_SECRET_CHARS:
        raise ValueError(f"use {MIN_SECRET_CHARS} characters or more, not {length}")
    return secret


Duration = Annotated[timedelta, BeforeValidator(_parse_duration), Field(gt=timedelta(0))]
PostgresUrl = Annotated[str, Field(pattern=r"^postgres(ql(\+psycopg)?)?://"), AfterValidator(_use_psycopg)]
Folder = Annotated[Path, AfterValidator(_expand_home)]
RedisUrl = Annotated[str, Field(pattern=r"^rediss?://"), AfterValidator(_check_cert_reqs)]
BrokerUrl = Annotated[str, AfterValidator(_check_cert_reqs)]


class InvalidSettings(Exception):
    """Settings are not valid. The message has one line per variable, with advice, and never the value."""


class Settings(BaseSettings):
    """The settings of a process. Neither its repr nor its error messages contain secrets."""

    model_config = SettingsConfigDict(
        env_prefix="EASEL_", env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True,
        hide_input_in_errors=True, validate_default=True,
    )  # fmt: skip

    # -- places ---------------------------------------------------------------------------------------------------
    home: Folder = Path("~/.easel")
    """Folder of all local data: the data of the embedded servers, files, the encryption key."""
    files_dir: Folder = Field(default_factory=lambda data: data["home"] / "files")
    """Folder of uploads and produced documents. API and workers must share it."""
    files_url: str | None = Field(default=None, pattern=r"^s3://[^/?#]+(/[^?#]*)?$")
    """A bucket instead of the folder, `s3://bucket/prefix`. Credentials: boto3's chain (AWS_ACCESS_KEY_ID, ...)."""
    s3_endpoint: str | None = Field(default=None, pattern=r"^https?://")
    """The S3 server of that bucket. None: Amazon's."""
    large_values: Literal["files", "rows"] | None = None
    """Where values above 1 MiB are stored. None: in the file storage if it is named or the database is embedded, since
    then every process can reach it; otherwise in their rows."""
    models_file: Folder | None = None
    """TOML file of model accounts for every tenant, in addition to those in the database."""
    prices_file: Folder | None = None
    """TOML file of model prices, which override the prices that come with Easel. None: only those."""
    prices_url: str | None = Field(default=None, pattern=r"^https?://", repr=False)
    """Address of a newer public price list, which each process fetches every hour. None: the installed one."""
    budget_answer_tokens: int = Field(default=2048, ge=64)
    """Tokens of an answer that a call reserves if its author sets no limit. With a higher value, fewer calls run in
    parallel near the end of a budget; with a lower one, the last call may exceed the budget by more."""
    database_url: PostgresUrl | None = Field(default=None, repr=False, validation_alias=_with_prefix("DATABASE_URL"))
    """PostgreSQL. None: the embedded one."""
    redis_url: RedisUrl | None = Field(default=None, repr=False, validation_alias=_with_prefix("REDIS_URL"))
    """Redis or Valkey for task messages, event notifications and text deltas. None: the embedded one."""
    broker_url: BrokerUrl | None = Field(
        default_factory=lambda data: data.get("redis_url"),
        repr=False,
        validation_alias=_with_prefix("CELERY_BROKER_URL"),
    )
    """Celery's broker. None: the Redis above."""
    secret_key: Annotated[SecretStr, AfterValidator(_check_secret_length)] | None = None
    """Key that encrypts secrets in the database: 16 characters or more, so that it cannot be guessed."""

    # -- API ------------------------------------------------------------------------------------------------------
    api_host: str = "127.0.0.1"
    """Address to listen on. The default accepts connections from this machine only."""
    api_port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on. 0: any free one."""
    open_metrics: bool = False
    """Whether the API's /metrics needs no token. Off: it needs one of kind `admin`, since metrics cover all tenants."""
    open_schema: bool = False
    """Whether /openapi.json needs no token."""
    max_canvas_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    """Maximum size of a canvas document in bytes; 2,000 nodes need less than 4 MiB."""
    max_body_bytes: int = Field(default=1024 * 1024, gt=0)
    """Maximum size in bytes of a request without a canvas, such as query, inputs and file descriptors of a run."""

    viewer: bool = True
    """Whether browsers may sign in, and pages are served. Off: these addresses are a 404; the rest of the API stays."""
    shares: bool = True
    """Whether runs may be shared with people without an account. Off: existing shares open nothing either."""
    base_path: str | None = Field(default=None, pattern=r"^(/[A-Za-z0-9._~-]+)+$", max_length=200)
    """Path below which a reverse proxy serves API and pages, such as `/easel`, whether the proxy removes it or not."""
    embed_origins: Annotated[str, AfterValidator(_check_origins)] | None = None
    """Origins, separated by commas, whose pages may show the chat of a share link in a frame; `*`: every site. None: no
    page of ours is shown in a frame."""
    cors_origins: Annotated[str, AfterValidator(_check_origins)] | None = None
    """Origins, separated by commas, whose pages may call the API with a token; `*`: every site. None: pages of other
    origins cannot read its replies."""
    rate_limit: int | None = Field(default=None, gt=0)
    """Requests that each token may send a minute, counted in Redis for all API processes. None: no limit."""
    streams_per_token: int = Field(default=500, gt=0)
    """Streams that an API process serves for one token at once."""
    flower_url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#@]+([/?#]\S*)?$")
    """Address of Flower, which pages link to. It has no user name or password, since readers see it."""

    # -- execution ------------------------------------------------------------------------------------------------
    lease: Duration = timedelta(seconds=10)
    """How long a worker keeps an attempt without renewing its lease: the delay until others take over after a crash.

    At most `MAX_LEASE`: sweepers, which may have other settings, treat a longer lease as a clock error.
    """
    renew_every: Duration = timedelta(seconds=3)
    """How often a worker renews its leases. Two renewals may be lost before a lease expires."""
    cancel_poll: Duration = timedelta(milliseconds=500)
    """How often workers check the cancel keys of other programs; people notice a delay of a second, not of half."""
    shutdown_grace: Duration = Field(default=timedelta(seconds=5), validation_alias=_with_former_name("SHUTDOWN_GRACE"))
    """How long an attempt may take to stop after a cancel, a deadline or a shutdown. An attempt that takes longer is
    reported as stopped, and its thread is abandoned."""
    schedule_poll: Duration = timedelta(seconds=3)
    """How long a sweeper sleeps between two looks for due schedules, at most: what a lost message about a changed
    schedule costs. An idle sweeper sends one statement each time."""
    probe_interval: Duration = Field(default=timedelta(seconds=5), validation_alias=_with_former_name("PROBE_INTERVAL"))
    """How often a worker or scheduler sends itself a probe message, to check that it still receives messages."""
    unresponsive_after: Duration = Field(
        default=timedelta(seconds=30), validation_alias=_with_former_name("UNRESPONSIVE_AFTER")
    )
    """How long a process may receive none of its probe messages, or its event loop may be blocked, before the process
    exits so that its supervisor starts it again."""
    max_running: int = Field(default=256, gt=0)
    """Nodes of one run that are ready or running at the same time, so that a wide run leaves capacity to others."""
    max_activations: int = Field(default=100_000, gt=0)
    """Activations of one run. A run that exceeds this probably never ends, and fails. Long Iterations need 10,000."""
    max_output: int = Field(default=64 * 1024 * 1024, gt=0)
    """Characters that one report may store in all its values, so that one run does not slow down others."""
    max_stream_chars: int = Field(default=2 * 1024 * 1024, gt=0, validation_alias=_with_former_name("MAX_STREAM_CHARS"))
    """Characters that one node may stream. The default is about ten long novels, and stops a model that never ends."""
    max_depth: int = Field(default=200, gt=0, le=200)
    """Levels of nested objects and lists that one node may store; the JSON encoders on the way accept 250."""
    form_expiry: Duration = timedelta(days=30)
    """How long a form waits for an answer, if the canvas does not say."""
    retention: Duration | None = None
    """How long runs are kept, in days. None: forever, since data must not be deleted without a decision."""
    model_calls: Literal["full", "usage", "off"] = "full"
    """What is stored of the model calls of runs: figures, requests and answers; figures only; nothing."""
    model_calls_hide: str | None = None
    """Ids of nodes and names of components, separated by commas, whose requests and answers are never stored."""
    model_calls_retention: Duration = timedelta(days=30)
    """How long model calls are kept, a day or more. They are much larger than the rest of a run."""
    audit_retention: Duration = timedelta(days=180)
    """How long the audit log is kept, a day or more. Half a year is what security reviews usually ask for."""
    callback_retry_delay: Duration = timedelta(seconds=5)
    """Time until a callback that failed is sent again; each further delay is three times as long, up to 6 hours."""
    callback_retry_for: Duration = timedelta(hours=24)
    """How long a callback is tried. A day outlives a night without anybody who repairs the receiver."""
    callback_timeout: Annotated[Duration, Field(le=timedelta(seconds=45))] = timedelta(seconds=10)
    """How long a receiver of a callback may take to answer, 45 s at most: after a minute another sweeper sends it."""
    callback_requests: int = Field(default=16, ge=1, le=256)
    """Requests of callbacks that one sweeper makes at once; less than half of them, or one, to one callback."""
    callback_retention: Duration = timedelta(days=30)
    """How long deliveries of callbacks are kept after they ended, for those who look why one failed and replay it."""
    public_url: str | None = Field(default=None, pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$", max_length=500)
    """Address at which browsers find the pages, with its path if they have one, for links in callbacks. None: callbacks
    have no link."""
    inline_advance: bool = Field(default=True, validation_alias=_with_former_name("INLINE_ADVANCE"))
    """Whether a worker advances the run in the transaction of its report. This saves a message and a commit per hop.
    Off: the worker only reports, and a scheduler advances the run."""
    continue_locally_for: Annotated[timedelta, BeforeValidator(_parse_duration), Field(ge=timedelta(0))] = Field(
        default=timedelta(0), validation_alias=_with_former_name("CONTINUE_LOCALLY_FOR")
    )
    """How long a worker thread continues with the nodes that its own advances made ready, which saves a message and a
    read of values per hop. Then the next node goes through the queue, where other runs wait. 0: every ready node is a
    task message of its own."""
    fast_path: bool = True
    """Whether workers use what exists only for speed (docs/protocol.md#the-fast-path). Off: EASEL_CONTINUE_LOCALLY_FOR
    counts as 0 and the six settings below as off, whatever they say. For tests, and to rule it out as a cause."""
    cache_run_state: bool = True
    """Whether a thread that continues with a run advances it from the state that its last advance wrote, where nothing
    else of the run is active. This saves the reads of an advance. Off: every advance reads the run."""
    cache_values: bool = True
    """Whether a worker process keeps small outputs, run inputs, histories and lists that its nodes have read or
    written, some 150 MB at most. This saves most reads of a node. Off: every node reads them from the database."""
    defer_claims: bool = True
    fetch_next: bool = True
    """Whether a worker begins a node that only computes with the claim that its task message carries, and writes that
    claim with the report, or after a quarter of a second. Off: every node is claimed before it begins."""
    batch_claims: bool = True
    """Whether claims that wait for a database connection are made together, in one statement. Off: one by one."""
    batch_reports: bool = True
    """Whether reports of one run that arrive while the process reports for it are stored together, with one advance.
    Off: one by one."""
    admission_control: bool = True
    """Whether a worker takes no further task message while as many threads compute as it has connections. Off: it takes
    messages while it has a free thread. Redis only; RabbitMQ delivers by prefetch count."""

    # -- processes ------------------------------------------------------------------------------------------------
    worker_threads: int = Field(default=128, gt=0)
    """Nodes that a worker process runs at the same time; they mostly wait for models and need 0.12 MB each. More
    threads do not speed up computation, and each one takes a task that another process could have started."""
    scheduler_threads: int = Field(default=4, gt=0)
    """Runs that a scheduler process advances at the same time; each uses a database connection meanwhile."""
    worker_pool: int = Field(default=8, ge=2)
    """Database connections of a worker process, in addition to the one for lease renewals. Claims use at most half of
    them, so that there is one for reports."""
    api_pool: int = Field(default=8, gt=0)
    """Database connections of an API process, and threads for its routes."""
    live_streams: int = Field(default=200, ge=0)
    """Live streams of runs that an API process serves at once. Above it clients get a 503 and may poll."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """Port on which workers, schedulers and sweepers serve metrics, or the next free one of the 20 from there on. None:
    they serve none. The API serves its own at /metrics (`open_metrics`)."""
    metrics_host: str = "127.0.0.1"
    """Address for that. The default accepts connections from this machine only, since metrics need no token."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object per event for machines."""

    # -- models and limits ----------------------------------------------------------------------------------------
    llm_timeout: Duration = Field(default=timedelta(seconds=600), validation_alias=_with_prefix("LLM_TIMEOUT_SECONDS"))
    """How long a model may take to begin its answer, and between two parts of it."""
    llm_max_retries: int = Field(default=5, ge=0, validation_alias=_with_prefix("LLM_MAX_RETRIES"))
    """Retries after errors that a retry may resolve, if the node does not say."""
    llm_base_delay: Duration = Field(default=timedelta(seconds=2), validation_alias=_with_prefix("LLM_BASE_DELAY"))
    """Delay before the first retry; each further one waits twice as long."""
    _limits: Mapping[str, int] = PrivateAttr(default_factory=_limits_in_environment)
    """Seconds by the suffix of the variable; `time_limit` reads them."""

    # -- external services ----------------------------------------------------------------------------------------
    allow_any_host: bool = Field(default=False, validation_alias=_with_prefix("ALLOW_ANY_HOST"))
    """Whether canvases may reach private addresses. This disables the address check: for closed networks only."""
    ssrf_allow: str | None = Field(default=None, validation_alias=_with_prefix("SSRF_ALLOW"))
    """Private hosts and networks (CIDR), separated by commas, that canvases may reach."""
    private_models: bool = True
    """Whether model accounts may use private addresses and this machine, as those of vLLM and Ollama do. Off: only
    addresses in `ssrf_allow`, for deployments in which the tenants and not the operators write accounts."""
    model_proxies: bool = False
    """Whether requests to models use the proxies of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY. Other requests never do. Off
    by default: a variable that was set for another program must not send prompts and keys to its proxy."""
    http_timeout: Duration = Field(default=timedelta(seconds=15), validation_alias=_with_prefix("HTTP_CLIENT_TIMEOUT"))
    """How long one request of a tool may take, if the tool does not say."""
    http_user_agent: str | None = Field(default=None, validation_alias=_with_prefix("HTTP_CLIENT_USER_AGENT"))
    """User-Agent of every request. None: Easel, its version and the contact; for tools whose vendors only answer
    browsers, that of a browser."""
    contact: str | None = Field(default=None, max_length=200, pattern=r"^[!-~]+$")
    """URL or e-mail address of the operators of this deployment, for vendors; requests send it in their User-Agent."""
    tts_model: str | None = None
    """The model that reads answers aloud (`auto_play`), `model@Factory`. None: the tenant's first of the kind tts."""
    stepfun_tts_voice: str | None = Field(
        default=None, validation_alias=AliasChoices("EASEL_STEPFUN_TTS_VOICE", "STEPFUN_TTS_VOICE")
    )
    """The voice of StepFun's speech models, if an account names none in `tts_voice`. None: cixingnansheng."""
    tts_cache_ttl: int = Field(
        default=604800, validation_alias=AliasChoices("EASEL_TTS_CACHE_TTL", "RAGFLOW_TTS_CACHE_TTL_SECONDS")
    )
    """Seconds for which the audio of a sentence is cached in Redis; 0 or less: it is not cached."""
    ragflow_url: str | None = Field(default=None, pattern=r"^https?://")
    """A RAGFlow server that Retrieval searches for knowledge bases that the tenant does not have. None: no server."""
    ragflow_api_key: SecretStr | None = None
    """The API key for that server."""
    sandbox: Literal["none", "local", "self_managed", "ssh", "e2b", "aliyun_codeinterpreter"] = "none"
    """Where CodeExec runs code: nowhere, in a child process of the worker, with an executor manager, on a machine
    reached by SSH, or with a vendor."""
    sandbox_config: SecretStr | None = None
    """Settings of that provider, a JSON object that may contain its keys. They override the three settings below."""
    sandbox_url: str | None = Field(default=None, pattern=r"^https?://")
    """The executor manager, for `self_managed`."""
    sandbox_must_isolate: bool = False
    """Whether the local sandbox refuses to run code if the kernel cannot isolate it from network and files."""
    sandbox_allow_root: bool = Field(
        default=False, validation_alias=AliasChoices("EASEL_SANDBOX_ALLOW_ROOT", "SANDBOX_LOCAL_ALLOW_ROOT")
    )
    """Whether the local sandbox runs code although the worker is root. For containers without another user."""
    trino_use_tls: bool = Field(default=False, validation_alias=_with_prefix("TRINO_USE_TLS"))
    """Whether ExeSQL uses TLS for Trino; without it, no password is sent."""
    smtp_ports: str = Field(default="25,465,587,2525", pattern=r"^\s*\d{1,5}(\s*,\s*\d{1,5})*\s*$")
    """Ports of mail servers that Email may use, separated by commas; by default the public ones for mail."""
    browser_executable: str | None = Field(
        default=None,
        validation_alias=AliasChoices(
            "EASEL_BROWSER_EXECUTABLE",
            "BROWSER_USE_EXECUTABLE_PATH",
            "BROWSER_USE_BROWSER_BINARY_PATH",
            "BROWSER_USE_CHROME_BINARY_PATH",
        ),
    )
    """The Chromium executable for the component Browser. None: the usual places are searched."""
    browser_upload_bytes: int = Field(
        default=100 * 1024 * 1024,
        gt=0,
        validation_alias=AliasChoices("EASEL_BROWSER_UPLOAD_BYTES", "RAGFLOW_BROWSER_UPLOAD_URL_MAX_BYTES"),
    )
    """Maximum size in bytes of a file that Browser fetches from an address to upload it on a page."""
    plugins: str | None = None
    """Names of the plugins to load (entry points of the group `easel.tools`), separated by commas; `*`: all that are
    installed. Plugins have the rights of this process, so none is loaded unless it is named."""
    querit_api_key: SecretStr | None = Field(default=None, validation_alias=_with_prefix("QUERIT_API_KEY"))
    """The key of QueritSearch and QueritContents for nodes without one. Nodes of every tenant use it."""
    keenable_api_url: str | None = Field(default=None, validation_alias=_with_prefix("KEENABLE_API_URL"))
    """Base URL of KeenableSearch: https, or http on this machine. None: the vendor's address."""
    _tool_urls: Mapping[str, str] = PrivateAttr(default_factory=_tool_urls_in_environment)
    """Base URLs of tools' vendors by class in capitals, from TOOL_<CLASS>_BASE_URL; `tool_urls` returns them."""

    @model_validator(mode="after")
    def _check_relations(self) -> "Settings":
        if self.lease <= 2 * self.renew_every:
            raise ValueError("a lease must outlive two renewals: make EASEL_LEASE more than twice EASEL_RENEW_EVERY")
        if self.lease > MAX_LEASE:
            raise ValueError("sweepers treat a longer lease as a clock error: make EASEL_LEASE 10 minutes or less")
        if self.cancel_poll >= self.lease:
            raise ValueError("cancel keys must be checked within a lease: make EASEL_CANCEL_POLL less than EASEL_LEASE")
        if self.retention is not None and self.retention < timedelta(days=1):
            raise ValueError("idempotency keys name runs for a day: make EASEL_RETENTION one day or more")
        if self.model_calls_retention < timedelta(days=1):
            raise ValueError("calls are deleted in weeks: make EASEL_MODEL_CALLS_RETENTION one day or more")
        if self.audit_retention < timedelta(days=1):
            raise ValueError("an audit log must outlive the change: make EASEL_AUDIT_RETENTION one day or more")
        if self.unresponsive_after <= 2 * self.probe_interval:
            raise ValueError("a probe may be lost: make EASEL_UNRESPONSIVE_AFTER more than twice EASEL_PROBE_INTERVAL")
        return self

    def time_limit(self, component: str, requested: float | None = None) -> float:
        """Return the seconds that one attempt of a component may take; infinite if it only waits for other nodes.

        In order of precedence: the component's own variable, the node's parameters (Invoke), the table,
        COMPONENT_EXEC_TIMEOUT, 600 s.
        """
        own = self._limits.get(f"_{component.upper()}")
        return own or requested or TIME_LIMITS.get(component) or self._limits.get("", 600)

    @property
    def values_in_files(self) -> bool:
        """Whether values that are too large for a row are stored in the file storage."""
        if self.large_values is not None:
            return self.large_values == "files"
        return self.files_url is not None or "files_dir" in self.model_fields_set

    @property
    def tool_urls(self) -> Mapping[str, str]:
        """Base URLs of tools' vendors by class in capitals, if TOOL_<CLASS>_BASE_URL is set.

        `KEENABLE` is the base URL from this vendor's own variable.
        """
        own = {"KEENABLE": self.keenable_api_url} if self.keenable_api_url else {}
        return {**own, **self._tool_urls}

    @property
    def allowed_plugins(self) -> frozenset[str]:
        """The names in `plugins`."""
        return frozenset(filter(None, (name.strip() for name in (self.plugins or "").split(","))))

    @property
    def embedders(self) -> tuple[str, ...]:
        """The origins in `embed_origins`."""
        return _split_origins(self.embed_origins or "")

    @property
    def callers(self) -> tuple[str, ...]:
        """The origins in `cors_origins`."""
        return _split_origins(self.cors_origins or "")

    @property
    def hidden_calls(self) -> frozenset[str]:
        """The nodes and components in `model_calls_hide`."""
        return frozenset(filter(None, (name.strip() for name in (self.model_calls_hide or "").split(","))))

    @property
    def vendor_keys(self) -> Mapping[str, str]:
        """The deployment's keys for tools' vendors, by vendor in capitals."""
        return {"QUERIT": self.querit_api_key.get_secret_value()} if self.querit_api_key else {}

    @property
    def mail_ports(self) -> frozenset[int]:
        """The allowed ports of mail servers."""
        return frozenset(int(port) for port in self.smtp_ports.split(","))

    def encryption_secret(self) -> str:
        """Return the secret that encrypts keys: the setting, or one that is created at first use, in the home."""
        if self.secret_key is not None:
            return self.secret_key.get_secret_value()
        file = self.home / "secret.key"
        if not file.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=self.home) as draft:  # 0600 from the start
                draft.write(secrets.token_urlsafe(32))
                draft.flush()
                with suppress(FileExistsError):  # another process was first, and its secret counts
                    os.link(draft.name, file)
        return file.read_text()

    def servers(self) -> tuple[str, str, str]:
        """Return the URLs of PostgreSQL, Redis and the broker. Raises InvalidSettings if one is not set."""
        unset = [name for name in ("database_url", "redis_url", "broker_url") if not getattr(self, name)]
        if unset:
            names = {"database_url": "DATABASE_URL", "redis_url": "REDIS_URL", "broker_url": "CELERY_BROKER_URL"}
            missing = ", ".join(names[name] for name in unset)
            raise InvalidSettings(f"Set {missing}: this process needs servers that already run.")
        assert self.database_url
        assert self.redis_url
        assert self.broker_url
        return self.database_url, self.redis_url, self.broker_url

    def with_servers(self, database_url: str, redis_url: str) -> "Settings":
        """Return these settings with these servers in place of those that are not set."""
        mine = {"database_url": self.database_url or database_url, "redis_url": self.redis_url or redis_url}
        # every process that reaches the embedded database is on this machine
        if self.database_url is None and self.large_values is None:
            mine["large_values"] = "files"
        return self.model_copy(update={**mine, "broker_url": self.broker_url or mine["redis_url"]})


def renamed_variables() -> Mapping[str, str]:
    """Return the former names of settings that the environment uses, with their present names."""
    return {old: new for old, new in RENAMED.items() if os.environ.get(old)}


@cache
def load() -> Settings:
    """Read the settings of this process, once. Raises InvalidSettings."""
    for old, new in renamed_variables().items():
        if os.environ.get(new, os.environ[old]) != os.environ[old]:
            raise InvalidSettings(f"{old}: this is the former name of {new}, which has another value. Remove {old}.")
    try:
        return Settings()
    except ValidationError as error:
        defects = [defect for defect in error.errors() if defect["type"] != "default_factory_not_called"]
        lines = (f"{_variable_name(defect)}: {defect['msg'].removeprefix('Value error, ')}" for defect in defects)
        raise InvalidSettings("\n".join(lines)) from None


def _variable_name(defect: ErrorDetails) -> str:
    name = str(defect["loc"][0]) if defect["loc"] else "settings"
    return f"EASEL_{name.upper()}" if name in Settings.model_fields else name
