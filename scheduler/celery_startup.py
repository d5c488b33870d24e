"""Startup of processes that run Celery: checks of the database connection, control commands, less output."""

import os
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import celery.apps.worker as celery_program
import structlog
from celery.exceptions import SecurityWarning
from celery.signals import after_setup_logger, celeryd_init

from scheduler.bootstrap import refuse_pooler
from scheduler.messaging import pool_controls
from store.db.database import Database

log = structlog.get_logger()


def connect_start(
    process: str,
    *,
    log_format: str,
    database_url: str,
    keep_level: Callable[[int], None],
    introduce: Callable[[str], None],
) -> None:
    """Connect the startup of a process to Celery's signals: its first log line (`introduce`), `begin`, the log level.

    `keep_level` gets the level that Celery has set. Our control commands are registered at once. Call this when the
    process's module is imported.
    """

    def level_is_set(loglevel: int, **_: Any) -> None:
        keep_level(loglevel)

    def process_begins(instance: Any, **_: Any) -> None:
        introduce(process)
        begin(process, instance, log_format, database_url)

    after_setup_logger.connect(level_is_set, weak=False)
    celeryd_init.connect(process_begins, weak=False)
    pool_controls.register()


def begin(process: str, instance: Any, log_format: str, database_url: str) -> None:
    """Suppress Celery's output, and exit if the database is behind a pooler that Easel cannot work with."""
    begin_quietly(instance, log_format)
    with closing(Database(database_url, pool_size=1, application=f"easel-{process}")) as database:
        refuse_pooler(database)  # the process's own pool is created later, after any fork


def begin_quietly(instance: Any, log_format: str) -> None:
    """Suppress what Celery prints about itself, so that a JSON log has only JSON lines.

    One line replaces Celery's page about pickle and root: tasks are JSON here, but nodes do run as root.
    """
    warnings.filterwarnings("ignore", category=SecurityWarning)
    if os.geteuid() == 0:
        log.warning("process_runs_as_root")
    if log_format == "json":
        instance.quiet = True  # no banner
        celery_program.safe_say = _print_nothing  # shutdown messages, which Celery writes directly to stderr


def _print_nothing(*_: Any) -> None:
    """Replace Celery's messages for a person at a terminal."""
