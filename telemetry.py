"""Telemetry of a process: logs, one line per event, and metrics for Prometheus.

    configure("info", "json")
    log = structlog.get_logger()
    with structlog.contextvars.bound_contextvars(run_id=run_id):
        log.info("activation_finished", outcome="Routed", elapsed_ms=41)

A log line is an event name with fields, not a sentence. Entry points configure this module and pass the `count_...`
functions to the code below them. Labels come from closed sets, never from canvases or tenants: each value is a time
series.
"""

import errno
import logging
import sys
from collections.abc import Callable, Mapping
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

PROCESS = Gauge("easel_process_info", "Kind and release of this process", ["process", "version"])
RUNS = Counter("easel_runs", "Runs that ended, by final status", ["status"])
ACTIVATIONS = Counter("easel_activations", "Attempts reported, by component and outcome", ["component", "outcome"])
MODEL_ERRORS = Counter(
    "easel_model_errors", "Nodes whose answer is an error message of their model, in runs that continued", ["component"]
)
REFUSALS = Counter("easel_budget_refusals", "Model calls refused by a budget", ["scope", "measure"])
CALLBACKS = Counter("easel_callbacks", "Attempts to send a callback, by what came of it", ["result"])
LOST = Counter("easel_attempts_lost", "Attempts whose worker stopped renewing its lease")
_UP_TO_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_UP_TO_HALF_A_MINUTE = (*_UP_TO_SECONDS, 5, 10, 30)
ADVANCE_SECONDS = Histogram(
    "easel_advance_seconds",
    "Duration of one advance of a run: lock, read, decide, write, commit; the count is the number of advances",
    buckets=_UP_TO_SECONDS,
)
PROBE_SECONDS = Histogram(
    "easel_probe_seconds",
    "Round trip of a probe message from this process through the broker to a free thread of the same process",
    buckets=_UP_TO_HALF_A_MINUTE,
)
# Former names, for one release.
_FOLD_SECONDS = Histogram("easel_fold_seconds", "Deprecated: use easel_advance_seconds", buckets=_UP_TO_SECONDS)
_CANARY_SECONDS = Histogram("easel_canary_seconds", "Deprecated: use easel_probe_seconds", buckets=_UP_TO_HALF_A_MINUTE)
SIGN_INS = Counter("easel_viewer_sessions", "Sign-ins of browsers, by token, code or share", ["by"])
SCHEDULE_SLOTS = Counter(
    "easel_schedule_slots", "Slots of schedules, by started, skipped, refused or missed", ["outcome"]
)
CALLS_WAITED = Counter("easel_model_calls_waited", "Model calls that waited for the rate limit of their account")
CALLS_POSTPONED = Counter("easel_model_calls_postponed", "Attempts rescheduled because of a rate limit")
CALLS_REFUSED = Counter("easel_model_calls_refused", "Model calls refused by a vendor (429), of accounts with limits")
PAGE_REQUESTS = Counter("easel_viewer_requests", "Documents of web pages that were sent, by page address", ["page"])
LIVE_STREAMS = Gauge("easel_live_streams", "Open live streams of runs")
LIVE_SNAPSHOTS = Counter("easel_live_snapshots", "Snapshots of runs that were taken for live streams")
LIVE_SNAPSHOT_SECONDS = Histogram(
    "easel_live_snapshot_seconds", "Duration of a snapshot for live streams", buckets=_UP_TO_SECONDS
)


FORMER_EVENTS = {  # log event: its former name, which each line carries as `formerly` for one release
    "advance_failed": "fold_failed",
    "answer_not_spoken": "not_spoken",
    "attempt_abandoned": "attempt_left_behind",
    "cancel_subscription_lost": "calls_not_heard",
    "client_disconnected": "client_has_left",
    "continuation_failed": "node_not_followed",
    "document_retried": "document_waits",
    "event_notifications_not_sent": "echoes_not_sent",
    "file_storage_missing": "files_out_of_reach",
    "large_value_stored_in_row": "large_value_kept_in_row",
    "maintenance_done": "house_kept",
    "maintenance_failed": "housekeeping_failed",
    "memory_not_saved": "not_remembered",
    "memory_retried": "memory_waits",
    "message_malformed": "message_not_understood",
    "model_error_as_answer": "model_error_is_the_answer",
    "partition_not_created": "week_not_made",
    "process_exiting_unresponsive": "process_gives_up",
    "rate_limiter_unavailable": "pace_not_known",
    "report_retried": "report_tried_again",
    "retention_applied": "runs_let_go",
    "run_stalled": "run_stands_still",
    "start_requeued": "start_put_back",
    "stream_not_claimed": "turn_not_taken",
    "stream_not_read": "stream_cannot_read",
    "stream_not_written": "turn_not_written",
    "streams_not_polled": "streams_cannot_look",
    "task_messages_not_sent": "hints_not_sent",
    "text_delta_not_sent": "piece_not_sent",
    "watchdog_failed": "watch_failed",
}


def configure(level: str, log_format: str) -> None:
    """Set up logging of this process, once: `level` debug to error, `log_format` console or json, both to stderr.

    Records of libraries take the same way, so that Celery's and uvicorn's lines look like ours.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _with_former_name,
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


def _with_former_name(_logger: Any, _method: str, fields: EventDict) -> EventDict:
    """Add the former name of a renamed event."""
    former = FORMER_EVENTS.get(fields["event"])
    if former is not None:
        fields["formerly"] = former
    return fields


def _without_empty(_logger: Any, _method: str, fields: EventDict) -> EventDict:
    """Drop fields without a value."""
    return {name: value for name, value in fields.items() if value is not None}


def count_run(status: str) -> None:
    """Count a run that has ended: succeeded, failed or cancelled."""
    RUNS.labels(status).inc()


def count_activation(component: str, outcome: str) -> None:
    """Count a reported attempt. `component` is a name from the registry."""
    ACTIVATIONS.labels(component, outcome).inc()


def count_model_error(component: str) -> None:
    """Count a model error that was given as the answer of its node."""
    MODEL_ERRORS.labels(component).inc()


def count_lost(attempts: int = 1) -> None:
    """Count attempts that the sweeper reported on behalf of lost workers."""
    LOST.inc(attempts)


def count_advance(seconds: float) -> None:
    """Observe an advance: the run was locked, and its reports were applied if there were any."""
    ADVANCE_SECONDS.observe(seconds)
    _FOLD_SECONDS.observe(seconds)


def count_probe(seconds: float) -> None:
    """Observe the round trip of a probe message."""
    PROBE_SECONDS.observe(seconds)
    _CANARY_SECONDS.observe(seconds)


def count_callback(result: str) -> None:
    """Count an attempt to send a callback: `delivered`, `retried` or `dead`."""
    CALLBACKS.labels(result=result).inc()


def count_refusal(scope: str, measure: str) -> None:
    """Count a model call that a budget refused."""
    REFUSALS.labels(scope, measure).inc()


def count_page(page: str) -> None:
    """Count a document of a page address, such as `/runs/{run_id}`."""
    PAGE_REQUESTS.labels(page).inc()


def count_sign_in(by: str) -> None:
    """Count a sign-in of a browser: by `token`, `code` or `share`."""
    SIGN_INS.labels(by=by).inc()


def count_schedule_slot(outcome: str) -> None:
    """Count what came of a slot of a schedule; slots that were missed together count as one."""
    SCHEDULE_SLOTS.labels(outcome=outcome).inc()


def count_waited() -> None:
    """Count a model call that had to wait for a rate limit."""
    CALLS_WAITED.inc()


def count_postponed() -> None:
    """Count an attempt that was rescheduled because of a rate limit."""
    CALLS_POSTPONED.inc()


def count_refused() -> None:
    """Count a model call that the vendor refused although the rate limiter permitted it."""
    CALLS_REFUSED.inc()


def count_live_snapshot(seconds: float) -> None:
    """Count a snapshot of a run for live streams, and how long it took."""
    LIVE_SNAPSHOTS.inc()
    LIVE_SNAPSHOT_SECONDS.observe(seconds)


def metric_functions() -> dict[str, Callable[..., None]]:
    """Return the functions above by what they count, for `scheduler.metrics.Metrics`."""
    return {
        "run": count_run,
        "activation": count_activation,
        "model_error": count_model_error,
        "lost": count_lost,
        "advance": count_advance,
        "probe": count_probe,
        "refusal": count_refusal,
        "callback": count_callback,
        "count_rate_limit_wait": count_waited,
        "postponed": count_postponed,
        "count_rate_limit_refusal": count_refused,
    }


def set_level(level: str, of_celery: int) -> None:
    """Set the log level to `level` after Celery has set its own (`-l`, warning by default).

    Celery's loggers keep that level: at info there are two lines for each node.
    """
    logging.getLogger().setLevel(level.upper())
    for name in ("celery", "kombu", "amqp"):
        logging.getLogger(name).setLevel(max(of_celery, logging.getLogger().level))


def introduce(process: str, renamed: Mapping[str, str] | None = None) -> None:
    """Log the kind of this process ("worker") and its release as its first line, and set its info metric.

    `renamed` maps former names of settings that are in use to the present ones: each gets a warning.
    """
    log = structlog.get_logger("telemetry")
    PROCESS.labels(process, VERSION).set(1)
    log.info("process_started", process=process, version=VERSION)
    for old, new in (renamed or {}).items():
        log.warning("setting_renamed", setting=old, use=new)


def serve_metrics(port: int, host: str = "127.0.0.1") -> int | None:
    """Serve the metrics of this process at http://host:port/metrics from a thread; return the port.

    If the port is in use, the next free one is taken, so that the processes of a machine can share a setting. If none
    can be served, the reason is logged, the result is None and the process works all the same.
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


def metrics_page() -> tuple[bytes, str]:
    """Return the metrics of this process in the text format of Prometheus, and its content type."""
    return generate_latest(), CONTENT_TYPE_LATEST
