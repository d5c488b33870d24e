"""What processes tell about themselves: logs, one line per fact, and counters for Prometheus.

    configure("info", "json")
    log = structlog.get_logger()
    with structlog.contextvars.bound_contextvars(run_id=run_id):
        log.info("activation_finished", outcome="Chose", elapsed_ms=41)

A fact is an event with fields, never a sentence. Entry points call this; code below them is handed `count_...` where
it has something to count. Labels come from closed sets, never from canvases or tenants: each value is a time series.
"""

import errno
import logging
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest, start_http_server
from structlog.typing import EventDict, Processor


def _installed_version() -> str:
    try:
        return version("easel")
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"


VERSION = _installed_version()
METRICS_PORTS = 20  # ports from EASEL_METRICS_PORT on, one for each process of a machine

PROCESS = Gauge("easel_process_info", "What this process is, and of which release", ["process", "version"])
RUNS = Counter("easel_runs", "Runs that ended, by their last status", ["status"])
ACTIVATIONS = Counter("easel_activations", "Attempts reported, by component and outcome", ["component", "outcome"])
MODEL_ERRORS = Counter(
    "easel_model_errors", "Steps whose answer is the error of their model, in runs that go on", ["component"]
)
REFUSALS = Counter("easel_budget_refusals", "Calls of models that a budget has refused", ["scope", "measure"])
LOST = Counter("easel_attempts_lost", "Attempts whose worker fell silent")
FOLD_SECONDS = Histogram(
    "easel_fold_seconds",
    "Time of one fold: lock, read, decide, write, commit; the count is the number of folds",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
CANARY_SECONDS = Histogram(
    "easel_canary_seconds",
    "Time of a message from this process through the broker back to a free thread of its own",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
CALLS_WAITED = Counter("easel_model_calls_waited", "Calls to models that had to wait for the allowance of an account")
CALLS_POSTPONED = Counter("easel_model_calls_postponed", "Attempts that gave their place up until a call was its turn")
CALLS_REFUSED = Counter("easel_model_calls_refused", "Calls that a vendor refused (429), of accounts with limits")


def configure(level: str, log_format: str) -> None:
    """Set up logging of this process, once: `level` debug to error, `log_format` console or json, both to stderr.

    Records of libraries take the same way, so that Celery's and uvicorn's lines look like ours.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    last: list[Processor]
    if log_format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback  # the prettier one prints local variables, keys and prompts among them
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _without_empty, *last],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(log_format == "json")  # Python prints its warnings otherwise, as lines that are no JSON
    for talkative in ("httpx2", "httpcore2", "openai"):  # a line for every request, with its URL
        logging.getLogger(talkative).setLevel(max(logging.WARNING, logging.getLogger().level))


def _without_empty(_logger: Any, _method: str, fields: EventDict) -> EventDict:
    """Fields that say nothing are left out."""
    return {name: value for name, value in fields.items() if value is not None}


def count_run(status: str) -> None:
    """A run has ended: succeeded, failed or cancelled."""
    RUNS.labels(status).inc()


def count_activation(component: str, outcome: str) -> None:
    """An attempt was reported. `component` is a name out of the registry."""
    ACTIVATIONS.labels(component, outcome).inc()


def count_model_error(component: str) -> None:
    """A model has failed, and its error was given as the answer."""
    MODEL_ERRORS.labels(component).inc()


def count_lost(attempts: int = 1) -> None:
    """The sweeper has reported attempts in the name of silent workers."""
    LOST.inc(attempts)


def count_fold(seconds: float) -> None:
    """A run was held and its reports taken in, or there was nothing to do."""
    FOLD_SECONDS.observe(seconds)


def count_canary(seconds: float) -> None:
    """A message that this process has sent to itself has come back."""
    CANARY_SECONDS.observe(seconds)


def count_refusal(scope: str, measure: str) -> None:
    """A budget has refused a call of a model."""
    REFUSALS.labels(scope, measure).inc()


def count_waited() -> None:
    """A call to a model could not leave at once."""
    CALLS_WAITED.inc()


def count_postponed() -> None:
    """An attempt was given back until its call may leave."""
    CALLS_POSTPONED.inc()


def count_refused() -> None:
    """A vendor has refused a call although we thought that it was allowed."""
    CALLS_REFUSED.inc()


def counting() -> dict[str, Callable[..., None]]:
    """The functions above by what they count, for `scheduler.metrics.Metrics`."""
    return {
        "run": count_run,
        "activation": count_activation,
        "model_error": count_model_error,
        "lost": count_lost,
        "fold": count_fold,
        "canary": count_canary,
        "refusal": count_refusal,
        "waited": count_waited,
        "postponed": count_postponed,
        "refused": count_refused,
    }


def keep_level(level: str, of_celery: int) -> None:
    """Log what `level` says, after Celery has given the process its own level (`-l`, warning by default).

    Celery's lines keep that one: at info there are two for each node.
    """
    logging.getLogger().setLevel(level.upper())
    for name in ("celery", "kombu", "amqp"):
        logging.getLogger(name).setLevel(max(of_celery, logging.getLogger().level))


def introduce(process: str) -> None:
    """Log what this process is ("worker") and of which release, as its first line, and show it among its counters."""
    PROCESS.labels(process, VERSION).set(1)
    structlog.get_logger("telemetry").info("process_started", process=process, version=VERSION)


def serve_counters(port: int, host: str = "127.0.0.1") -> int | None:
    """Show this process's counters at http://host:port/metrics, from a thread of its own; return the port.

    Where the port is taken, the next free one is used, so that the processes of a machine share a setting. A process
    whose counters cannot be shown works all the same: the reason is logged, and the result is None.
    """
    log = structlog.get_logger("telemetry")
    for candidate in range(port, min(port + METRICS_PORTS, 65536)):
        try:
            start_http_server(candidate, host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            log.error("metrics_not_served", host=host, port=candidate, error=str(error))
            return None
        log.info("metrics_served", host=host, port=candidate)
        return candidate
    log.error("metrics_not_served", host=host, port=port, error=f"{METRICS_PORTS} ports from there on are taken")
    return None


def counters() -> tuple[bytes, str]:
    """This process's counters as a page, and the page's content type."""
    return generate_latest(), CONTENT_TYPE_LATEST
