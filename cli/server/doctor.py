"""`easel doctor`: check every service and setting, and print advice about each defect."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

import typer

from canvas.errors import ExecutorError
from cli.server import checks
from cli.server.checks import CheckResult, Level
from cli.shell import output, servers
from cli.shell.connection import POOL, configure_logging, ensure_migrated
from cli.shell.exit_codes import Exit
from cli.shell.options import AsJson
from cli.shell.output import GREEN, RED, YELLOW
from cli.shell.servers import CommandServers
from scheduler.messaging.celery_app import make_app
from settings import InvalidSettings, load
from store.db.database import Database

COLOURS = {Level.OK: GREEN, Level.WARN: YELLOW, Level.FAIL: RED}


def doctor(as_json: AsJson = False) -> None:
    """Check every service and setting. Exit code 1 if something fails."""
    has_failed = False
    for finding in examine():
        has_failed = has_failed or finding.level is Level.FAIL
        if as_json:
            output.print_json(asdict(finding))
        else:
            output.print_in_colour(COLOURS[finding.level], f"{finding.level:<4}", f"  {finding.about}: {finding.found}")
            if finding.advice:
                output.print_line(f"      {finding.advice}")
    if has_failed:
        raise typer.Exit(Exit.FAILED)


def examine() -> Iterator[CheckResult]:
    """Yield all findings. Checks that depend on something that failed are left out."""
    yield checks.release()
    yield checks.python()
    try:
        settings = load()
    except InvalidSettings as error:
        yield CheckResult(Level.FAIL, "settings", str(error), "Correct them, then run this command again.")
        return
    yield CheckResult(Level.OK, "settings", "are valid")
    configure_logging(settings)
    yield checks.writable_home(settings)
    yield checks.secret_key(settings)
    yield checks.models_file(settings)
    yield from checks.find_unread_variables(os.environ, settings)
    yield from checks.local_sandbox(settings)
    try:
        with servers.open_servers(settings) as found:
            yield from _examine_servers(found)
    except ExecutorError as error:
        yield CheckResult(Level.FAIL, "servers", error.message)


def _examine_servers(found: CommandServers) -> Iterator[CheckResult]:
    database_url, redis_url, broker_url = found.settings.servers()
    yield checks.server_source(found)
    if found.is_embedded:
        ensure_migrated(found)
    app = make_app(broker_url, publishers=POOL)
    with closing(Database(database_url, pool_size=1, application="easel-doctor")) as database:
        findings = list(checks.database(database, found.settings))
        yield from findings
        yield checks.redis_server(redis_url)
        broker = checks.broker(app)
        yield broker
        if broker.level is Level.OK:
            yield checks.workers(app, found)
        yield checks.metrics(found.settings)
        if all(finding.level is not Level.FAIL for finding in findings):
            yield checks.sweeper(database, found)
            yield checks.models(database, found.settings)
            yield checks.secrets_of_canvases(database)
            yield checks.share_links(database)
            yield checks.pgvector(database)
    app.close()
