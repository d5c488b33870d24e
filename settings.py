"""Everything that can be set, read from the environment once per process.

A name is EASEL_ and the field's name in capitals; DATABASE_URL, REDIS_URL, CELERY_BROKER_URL and the limits that
RAGFlow deployments know (COMPONENT_EXEC_TIMEOUT..., LLM_...) are understood as they are. An empty value counts as
unset. A duration is a number of seconds, or a number with ms, s, m, h or d after it. Only the entry points of
processes read this; code below them gets values as arguments.
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

SECRET_CHARACTERS = 16
LONGEST_LEASE = timedelta(
    minutes=10
)  # store/monitoring/sweep_queries.py: what ends later than 15 minutes from now is no lease
UNITS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}  # in seconds

RENAMED: Mapping[str, str] = {  # former name: name; the former one is read until the release after 0.1
    "EASEL_RIDE_ALONG": "EASEL_INLINE_ADVANCE",
    "EASEL_EAGER_FOR": "EASEL_CONTINUE_LOCALLY_FOR",
    "EASEL_DEAF_AFTER": "EASEL_UNRESPONSIVE_AFTER",
    "EASEL_CANARY_EVERY": "EASEL_PROBE_INTERVAL",
    "EASEL_GRACE": "EASEL_SHUTDOWN_GRACE",
    "EASEL_MAX_SPEECH": "EASEL_MAX_STREAM_CHARS",
}

TIME_LIMITS: Mapping[str, float] = {  # seconds; a component named here does not ask COMPONENT_EXEC_TIMEOUT
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


def _duration(value: Any) -> Any:
    """ "90", "1.5h" or "250ms" as a duration; what is none goes on, for pydantic to complain about."""
    written = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|[smhd]?)\s*", str(value))
    return timedelta(seconds=float(written[1]) * UNITS[written[2]]) if written else value


def _expanded(path: Path) -> Path:
    """The path with ~ resolved."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError("there is no home directory for ~ to stand for: set EASEL_HOME") from error


def _driven(url: str) -> str:
    """The URL of a PostgreSQL under the name that makes SQLAlchemy use psycopg 3."""
    return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)


def _or(name: str) -> AliasChoices:
    """A variable that is understood with our prefix and without."""
    return AliasChoices(f"EASEL_{name}", name)


def _renamed(name: str) -> AliasChoices:
    """A variable whose former name is still read; `renamed_variables` lists those in use."""
    return AliasChoices(f"EASEL_{name}", *(old for old, new in RENAMED.items() if new == f"EASEL_{name}"))


def _whole_seconds(written: str | None) -> int | None:
    """A limit of the COMPONENT_EXEC_TIMEOUT family; what is no positive whole number counts as not written."""
    return int(written) if written and re.fullmatch(r"\s*0*[1-9][0-9]{0,8}\s*", written) else None


def _limits_in_environment() -> Mapping[str, int]:
    """Limits by what follows COMPONENT_EXEC_TIMEOUT in the variable: "" for all, "_EXESQL" for one component."""
    family = {name.removeprefix("COMPONENT_EXEC_TIMEOUT"): _whole_seconds(value) for name, value in os.environ.items()}
    return {name: limit for name, limit in family.items() if limit is not None and name[:1] in ("", "_")}


def _tool_urls_in_environment() -> Mapping[str, str]:
    """Other places where tools find their vendors: a private mirror, or a test's server."""
    named = (re.fullmatch(r"TOOL_([A-Z0-9_]+?)_BASE_URL(?:_([A-Z0-9_]+))?", name) for name in os.environ)
    found = {"_".join(filter(None, match.groups())): os.environ[match[0]] for match in named if match}
    return {name: url for name, url in found.items() if url}


def _says_how_to_verify(url: str) -> str:
    """The URL of a Redis or a broker, whose `ssl_cert_reqs` every library reads alike."""
    for value in parse_qs(urlsplit(url).query).get("ssl_cert_reqs", []):
        if value not in ("required", "none"):
            raise ValueError("ssl_cert_reqs takes required, which is the default, or none")
    return url


def _long_enough(secret: SecretStr) -> SecretStr:
    """The secret, if nobody can guess it."""
    length = len(secret.get_secret_value())
    if length < SECRET_CHARACTERS:
        raise ValueError(f"{SECRET_CHARACTERS} characters or more are needed, not {length}")
    return secret


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]
PostgresUrl = Annotated[str, Field(pattern=r"^postgres(ql(\+psycopg)?)?://"), AfterValidator(_driven)]
Folder = Annotated[Path, AfterValidator(_expanded)]
RedisUrl = Annotated[str, Field(pattern=r"^rediss?://"), AfterValidator(_says_how_to_verify)]
BrokerUrl = Annotated[str, AfterValidator(_says_how_to_verify)]


class InvalidSettings(Exception):
    """What is set cannot work: one line for each variable, which says what would and never repeats the value."""


class Settings(BaseSettings):
    """The settings of a process. Secrets show neither in its repr nor in what it says about a value it refuses."""

    model_config = SettingsConfigDict(
        env_prefix="EASEL_", env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True,
        hide_input_in_errors=True, validate_default=True,
    )  # fmt: skip

    # -- places ---------------------------------------------------------------------------------------------------
    home: Folder = Path("~/.easel")
    """Folder of everything that is kept on this machine: the embedded servers' data, files, the sealing key."""
    files_dir: Folder = Field(default_factory=lambda data: data["home"] / "files")
    """Folder of uploads and produced documents; API and workers must see the same one."""
    files_url: str | None = Field(default=None, pattern=r"^s3://[^/?#]+(/[^?#]*)?$")
    """A bucket in the folder's place, `s3://bucket/prefix`. Who we are says boto3's chain (AWS_ACCESS_KEY_ID, ...)."""
    s3_endpoint: str | None = Field(default=None, pattern=r"^https?://")
    """The server of that bucket. None: Amazon's."""
    large_values: Literal["files", "rows"] | None = None
    """Where values above 1 MiB go. None: to the file storage where it is named or this machine has the embedded
    database, since every process must see it; else they stay in their rows."""
    models_file: Folder | None = None
    """TOML file of model accounts for every tenant, beside those in the database."""
    prices_file: Folder | None = None
    """TOML file of what models cost, before the prices that come with Easel. None: those alone."""
    budget_answer_tokens: int = Field(default=2048, ge=64)
    """Tokens of an answer that a call reserves where its author sets no limit: more, and fewer calls run side by side
    near the end of a budget; less, and the last one may go further beyond it."""
    database_url: PostgresUrl | None = Field(default=None, repr=False, validation_alias=_or("DATABASE_URL"))
    """PostgreSQL. None: the embedded one."""
    redis_url: RedisUrl | None = Field(default=None, repr=False, validation_alias=_or("REDIS_URL"))
    """Redis or Valkey for hints, echoes and pieces. None: the embedded one."""
    broker_url: BrokerUrl | None = Field(
        default_factory=lambda data: data.get("redis_url"), repr=False, validation_alias=_or("CELERY_BROKER_URL")
    )
    """Celery's broker, where that is not the Redis above."""
    secret_key: Annotated[SecretStr, AfterValidator(_long_enough)] | None = None
    """What secrets in the database are sealed with: 16 characters or more, since a guessable one seals nothing."""

    # -- API ------------------------------------------------------------------------------------------------------
    api_host: str = "127.0.0.1"
    """Address to listen on; this machine alone unless somebody decides otherwise."""
    api_port: int = Field(default=8000, ge=0, le=65535)
    """0 takes a free one."""
    open_metrics: bool = False
    """Whether the API's /metrics needs no token; else one of kind `admin`, since counters are those of all tenants."""
    open_schema: bool = False
    """Whether /openapi.json needs no token."""
    max_canvas_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    """Largest canvas document taken; 2,000 nodes are below 4 MiB."""
    max_body_bytes: int = Field(default=1024 * 1024, gt=0)
    """Largest request that brings no canvas: query, inputs and files' descriptors of a run. Files are uploaded."""

    # -- the protocol's figures -----------------------------------------------------------------------------------
    lease: Duration = timedelta(seconds=10)
    """How long a worker may be silent before its attempts are given to others: the delay after a worker's death.

    `LONGEST_LEASE` at most, since sweepers, which may have other settings, take a longer one for a mistake of a clock.
    """
    renew_every: Duration = timedelta(seconds=3)
    """How often a worker renews its leases: two renewals may be lost before the lease is."""
    cancel_poll: Duration = timedelta(milliseconds=500)
    """How often workers look for other programs' cancel keys; people notice a second, not half of one."""
    shutdown_grace: Duration = Field(default=timedelta(seconds=5), validation_alias=_renamed("SHUTDOWN_GRACE"))
    """How long an attempt may take to stop after a cancel, a deadline or a shutdown. An attempt that takes longer is
    reported as stopped, and its thread is abandoned."""
    probe_interval: Duration = Field(default=timedelta(seconds=5), validation_alias=_renamed("PROBE_INTERVAL"))
    """How often a worker or scheduler sends itself a probe message, to check that it still receives messages."""
    unresponsive_after: Duration = Field(default=timedelta(seconds=30), validation_alias=_renamed("UNRESPONSIVE_AFTER"))
    """How long a process may receive none of its probe messages, or its event loop may be blocked, before the process
    exits so that its supervisor starts it again."""
    max_running: int = Field(default=256, gt=0)
    """Nodes of one run that are ready or running at once, so that one wide run leaves room for others."""
    max_activations: int = Field(default=100_000, gt=0)
    """Activations of one run; one that goes beyond has no end, and fails. Long Iterations need some 10,000."""
    max_output: int = Field(default=64 * 1024 * 1024, gt=0)
    """Characters that one report may store, in all its values; more harms its neighbours before it helps anybody."""
    max_stream_chars: int = Field(default=2 * 1024 * 1024, gt=0, validation_alias=_renamed("MAX_STREAM_CHARS"))
    """Characters that one node may stream. The default is about ten long novels, and stops a model that never ends."""
    max_depth: int = Field(default=200, gt=0, le=200)
    """Levels of objects and lists in each other that one node may store; encoders on the way take 250 in all."""
    form_expiry: Duration = timedelta(days=30)
    """How long a form waits for its person, where the canvas does not say."""
    retention: Duration | None = None
    """How long runs are kept, in days. None: for ever, since nothing may go that nobody has asked to lose."""
    inline_advance: bool = Field(default=True, validation_alias=_renamed("INLINE_ADVANCE"))
    """Whether a worker advances the run in the transaction of its report. This saves a message and a commit per hop.
    Off: the worker only reports, and a scheduler advances the run."""
    continue_locally_for: Annotated[timedelta, BeforeValidator(_duration), Field(ge=timedelta(0))] = Field(
        default=timedelta(seconds=5), validation_alias=_renamed("CONTINUE_LOCALLY_FOR")
    )
    """How long a worker thread continues with the nodes that its own advances made ready, which saves a message and a
    claim per hop. Then the next node goes through the queue, where other runs wait. 0: every node goes through it."""
    fast_path: bool = True
    """Whether workers use what exists only for speed (docs/protocol.md#the-fast-path). Off: EASEL_CONTINUE_LOCALLY_FOR
    counts as 0 and the five settings below as off, whatever they say. For tests, and to rule it out as a cause."""
    cache_run_state: bool = True
    """Whether a thread that continues with a run advances it from the state that its last advance wrote, where nothing
    else of the run is active. This saves the reads of an advance. Off: every advance reads the run."""
    cache_values: bool = True
    """Whether a worker process keeps small outputs, run inputs, histories and lists that its nodes have read or
    written, some 150 MB at most. This saves most reads of a node. Off: every node reads them from the database."""
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
    """Nodes a worker process runs at once; they mostly wait for models, 0.12 MB each. More compute no sooner, and each
    takes a hint off the queue that another process might begin."""
    scheduler_threads: int = Field(default=4, gt=0)
    """Runs a scheduler process advances at once; each holds a database connection while it does."""
    worker_pool: int = Field(default=8, ge=2)
    """Database connections of a worker process, one for renewals not counted: claims use half, so reports find one."""
    api_pool: int = Field(default=8, gt=0)
    """Database connections, and threads for routes, of an API process."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """Port on which workers, schedulers and sweepers show their counters, or the next free one of the 20 from there on;
    None: not at all. The API shows its own at /metrics, to whom `open_metrics` says."""
    metrics_host: str = "127.0.0.1"
    """Address on which they do: this machine alone unless somebody decides otherwise, since they ask for no token."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    """Lines for people, or one JSON object per fact for machines."""

    # -- models and limits ----------------------------------------------------------------------------------------
    llm_timeout: Duration = Field(default=timedelta(seconds=600), validation_alias=_or("LLM_TIMEOUT_SECONDS"))
    """How long one request to a model may take."""
    llm_max_retries: int = Field(default=5, ge=0, validation_alias=_or("LLM_MAX_RETRIES"))
    """Requests after the first one for errors that repeating may mend, where the node does not say."""
    llm_base_delay: Duration = Field(default=timedelta(seconds=2), validation_alias=_or("LLM_BASE_DELAY"))
    """Wait before the first of them; each further one waits twice as long."""
    _limits: Mapping[str, int] = PrivateAttr(default_factory=_limits_in_environment)
    """Seconds by the end of the variable's name; `time_limit` reads them."""

    # -- the outside world ----------------------------------------------------------------------------------------
    allow_any_host: bool = Field(default=False, validation_alias=_or("ALLOW_ANY_HOST"))
    """Whether canvases may reach private addresses. Turns the guard off altogether: for closed networks only."""
    ssrf_allow: str | None = Field(default=None, validation_alias=_or("SSRF_ALLOW"))
    """Hosts and networks (CIDR), separated by commas, that canvases may reach although they are private."""
    private_models: bool = True
    """Whether accounts of models may lead to private addresses and to this machine, as those of vLLM and Ollama do.
    Off: only to those that `ssrf_allow` lists. For deployments whose accounts others write than who runs them."""
    model_proxies: bool = False
    """Whether requests to models go by the proxies of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY. No other request does, and
    none does unasked: a variable that was set for another program must not send prompts and keys somewhere else."""
    http_timeout: Duration = Field(default=timedelta(seconds=15), validation_alias=_or("HTTP_CLIENT_TIMEOUT"))
    """How long one request of a tool may take, where the tool does not say."""
    http_user_agent: str | None = Field(default=None, validation_alias=_or("HTTP_CLIENT_USER_AGENT"))
    """What every request says it comes from. None: Easel, its version and the contact; of tools whose vendors answer
    browsers only, a browser."""
    contact: str | None = Field(default=None, max_length=200, pattern=r"^[!-~]+$")
    """Where vendors reach who runs this deployment, an URL or a mail address; requests say it in their User-Agent."""
    tts_model: str | None = None
    """The model that reads answers aloud (`auto_play`), `model@Factory`. None: the tenant's first with the kind tts."""
    stepfun_tts_voice: str | None = Field(
        default=None, validation_alias=AliasChoices("EASEL_STEPFUN_TTS_VOICE", "STEPFUN_TTS_VOICE")
    )
    """The voice of StepFun's speech models, where an account names none in `tts_voice`. None: cixingnansheng."""
    tts_cache_ttl: int = Field(
        default=604800, validation_alias=AliasChoices("EASEL_TTS_CACHE_TTL", "RAGFLOW_TTS_CACHE_TTL_SECONDS")
    )
    """Seconds for which a sentence that was read aloud is kept in Redis; 0 or less: not at all."""
    ragflow_url: str | None = Field(default=None, pattern=r"^https?://")
    """A RAGFlow server that Retrieval searches for what is no knowledge base here. None: there is none."""
    ragflow_api_key: SecretStr | None = None
    """The API key for that server."""
    knowledge_memory: int = Field(default=512 * 1024 * 1024, gt=0)
    """Bytes of vectors and words of knowledge bases that a worker or API process keeps at hand: 270,000 chunks of 384
    numbers. What is larger by itself is read for each question, which takes seconds."""
    sandbox: Literal["none", "local", "self_managed", "ssh", "e2b", "aliyun_codeinterpreter"] = "none"
    """Where CodeExec runs code: nowhere, in a child process of the worker, with an executor manager, on a machine
    reached by SSH, or with a vendor."""
    sandbox_config: SecretStr | None = None
    """That provider's own settings, a JSON object with its keys among them. What it says wins over the three below."""
    sandbox_url: str | None = Field(default=None, pattern=r"^https?://")
    """The executor manager, for `self_managed`."""
    sandbox_must_isolate: bool = False
    """Whether the local sandbox refuses to run code where the kernel cannot take network and files away from it."""
    sandbox_allow_root: bool = Field(
        default=False, validation_alias=AliasChoices("EASEL_SANDBOX_ALLOW_ROOT", "SANDBOX_LOCAL_ALLOW_ROOT")
    )
    """Whether the local sandbox runs code although the worker is root. For containers that have no other user."""
    trino_use_tls: bool = Field(default=False, validation_alias=_or("TRINO_USE_TLS"))
    """Whether ExeSQL speaks TLS to Trino; without it no password is sent."""
    smtp_ports: str = Field(default="25,465,587,2525", pattern=r"^\s*\d{1,5}(\s*,\s*\d{1,5})*\s*$")
    """Ports on which Email may reach mail servers, separated by commas; the public ones for mail by default."""
    browser_executable: str | None = Field(
        default=None,
        validation_alias=AliasChoices(
            "EASEL_BROWSER_EXECUTABLE",
            "BROWSER_USE_EXECUTABLE_PATH",
            "BROWSER_USE_BROWSER_BINARY_PATH",
            "BROWSER_USE_CHROME_BINARY_PATH",
        ),
    )
    """The Chromium that the component Browser drives. None: where it usually is."""
    browser_upload_bytes: int = Field(
        default=100 * 1024 * 1024,
        gt=0,
        validation_alias=AliasChoices("EASEL_BROWSER_UPLOAD_BYTES", "RAGFLOW_BROWSER_UPLOAD_URL_MAX_BYTES"),
    )
    """Largest file that Browser fetches from an address in order to offer it on a page."""
    plugins: str | None = None
    """Names of the plugins (entry points of the group `easel.tools`) that are loaded, a comma list; `*`: all that are
    installed. They run as this process does, so none is loaded unless it is named."""
    querit_api_key: SecretStr | None = Field(default=None, validation_alias=_or("QUERIT_API_KEY"))
    """The key of QueritSearch and QueritContents where a node has none. Every tenant's nodes use it."""
    keenable_api_url: str | None = Field(default=None, validation_alias=_or("KEENABLE_API_URL"))
    """Where KeenableSearch asks: https, or http on this machine. None: at the vendor's own address."""
    _tool_urls: Mapping[str, str] = PrivateAttr(default_factory=_tool_urls_in_environment)
    """Base URLs of tools' vendors by class in capitals, from TOOL_<CLASS>_BASE_URL; `tool_urls` gives them."""

    @model_validator(mode="after")
    def _hold_together(self) -> "Settings":
        if self.lease <= 2 * self.renew_every:
            raise ValueError("a lease outlives two renewals: make EASEL_LEASE more than twice EASEL_RENEW_EVERY")
        if self.lease > LONGEST_LEASE:
            raise ValueError(
                "sweepers take a longer lease for a mistake of a clock: make EASEL_LEASE 10 minutes or less"
            )
        if self.cancel_poll >= self.lease:
            raise ValueError("cancel keys are looked for within a lease: make EASEL_CANCEL_POLL less than EASEL_LEASE")
        if self.retention is not None and self.retention < timedelta(days=1):
            raise ValueError("idempotency keys name runs for a day: make EASEL_RETENTION one day or more")
        if self.unresponsive_after <= 2 * self.probe_interval:
            raise ValueError("a probe may be lost: make EASEL_UNRESPONSIVE_AFTER more than twice EASEL_PROBE_INTERVAL")
        return self

    def time_limit(self, component: str, asked: float | None = None) -> float:
        """Seconds that one attempt of a component may take; infinite for those that only wait for others.

        The component's own variable wins, then what the node's parameters ask for (Invoke), then the table, then
        COMPONENT_EXEC_TIMEOUT, then 600 s.
        """
        own = self._limits.get(f"_{component.upper()}")
        return own or asked or TIME_LIMITS.get(component) or self._limits.get("", 600)

    @property
    def values_in_files(self) -> bool:
        """Whether values too large for a row go to the file storage."""
        if self.large_values is not None:
            return self.large_values == "files"
        return self.files_url is not None or "files_dir" in self.model_fields_set

    @property
    def tool_urls(self) -> Mapping[str, str]:
        """Where tools find their vendors, by class in capitals, where TOOL_<CLASS>_BASE_URL says so.

        `KEENABLE` is the address that this vendor has a variable of its own for.
        """
        own = {"KEENABLE": self.keenable_api_url} if self.keenable_api_url else {}
        return {**own, **self._tool_urls}

    @property
    def allowed_plugins(self) -> frozenset[str]:
        """The names among `plugins`."""
        return frozenset(filter(None, (name.strip() for name in (self.plugins or "").split(","))))

    @property
    def vendor_keys(self) -> Mapping[str, str]:
        """The deployment's own keys for tools' vendors, by vendor in capitals."""
        return {"QUERIT": self.querit_api_key.get_secret_value()} if self.querit_api_key else {}

    @property
    def mail_ports(self) -> frozenset[int]:
        """Ports of mail servers."""
        return frozenset(int(port) for port in self.smtp_ports.split(","))

    def sealing_secret(self) -> str:
        """The secret that keys are sealed with: as set, else one made at first use and kept in the home."""
        if self.secret_key is not None:
            return self.secret_key.get_secret_value()
        kept = self.home / "secret.key"
        if not kept.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=self.home) as draft:  # 0600 from the start
                draft.write(secrets.token_urlsafe(32))
                draft.flush()
                with suppress(FileExistsError):  # another process was first, and its secret counts
                    os.link(draft.name, kept)
        return kept.read_text()

    def servers(self) -> tuple[str, str, str]:
        """The URLs of PostgreSQL, Redis and the broker, for a process that starts none itself."""
        unset = [name for name in ("database_url", "redis_url", "broker_url") if not getattr(self, name)]
        if unset:
            names = {"database_url": "DATABASE_URL", "redis_url": "REDIS_URL", "broker_url": "CELERY_BROKER_URL"}
            missing = ", ".join(names[name] for name in unset)
            raise InvalidSettings(f"Set {missing}: this process needs servers that are already there.")
        assert self.database_url
        assert self.redis_url
        assert self.broker_url
        return self.database_url, self.redis_url, self.broker_url

    def on(self, database_url: str, redis_url: str) -> "Settings":
        """These settings with servers where none were named."""
        mine = {"database_url": self.database_url or database_url, "redis_url": self.redis_url or redis_url}
        if self.database_url is None and self.large_values is None:  # whoever reaches that one is on this machine
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
        lines = (f"{_variable(defect)}: {defect['msg'].removeprefix('Value error, ')}" for defect in defects)
        raise InvalidSettings("\n".join(lines)) from None


def _variable(defect: ErrorDetails) -> str:
    name = str(defect["loc"][0]) if defect["loc"] else "settings"
    return f"EASEL_{name.upper()}" if name in Settings.model_fields else name
