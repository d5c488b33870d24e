"""How a process that Celery starts begins: what it refuses, and without what Celery prints about itself."""

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
    """Have Celery begin a process of ours: its first log line (`introduce`), what `begin` does, and the log's level.

    `keep_level` gets the level that Celery has set. Call it once, where the module of the process is imported.
    """

    def level_is_set(loglevel: int, **_: Any) -> None:
        keep_level(loglevel)

    def process_begins(instance: Any, **_: Any) -> None:
        introduce(process)
        begin(process, instance, log_format, database_url)

    after_setup_logger.connect(level_is_set, weak=False)
    celeryd_init.connect(process_begins, weak=False)


def begin(process: str, instance: Any, log_format: str, database_url: str) -> None:
    """Keep the log in its form, and end the process if it could not work through the pooler before its database."""
    begin_quietly(instance, log_format)
    with closing(Database(database_url, pool_size=1, application=f"easel-{process}")) as database:
        refuse_pooler(database)  # the process's own pool comes after any fork


def begin_quietly(instance: Any, log_format: str) -> None:
    """Keep what Celery prints about itself out of a log that machines read.

    In place of Celery's page about pickle and root there is one line: tasks are JSON here, but nodes run as root, too.
    """
    warnings.filterwarnings("ignore", category=SecurityWarning)
    if os.geteuid() == 0:
        log.warning("process_runs_as_root")
    if log_format == "json":
        instance.quiet = True  # no banner
        celery_program.safe_say = _say_nothing  # of a shutdown, which it writes past every log


def _say_nothing(*_: Any) -> None:
    """In the place of what Celery says to a person at a terminal."""
