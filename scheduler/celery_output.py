"""What Celery prints about itself, kept out of logs that machines read. For processes that Celery starts."""

import os
import warnings
from typing import Any

import celery.apps.worker as celery_program
import structlog
from celery.exceptions import SecurityWarning

log = structlog.get_logger()


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
