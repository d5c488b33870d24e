"""How a process that Celery starts begins: what it refuses, and without what Celery prints about itself."""

import os
import warnings
from contextlib import closing
from typing import Any

import celery.apps.worker as celery_program
import structlog
from celery.exceptions import SecurityWarning

from scheduler.process import refuse_pooler
from store.database import Database

log = structlog.get_logger()


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
