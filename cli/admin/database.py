"""The database: `easel migrate`."""

from sqlalchemy.exc import OperationalError

from canvas.errors import ExecutorError
from cli.shell import output, servers
from cli.shell.connection import configure_logging
from settings import load
from store.maintenance import migrate as migrations


def migrate() -> None:
    """Migrate the database to this release. Safe to repeat, and safe while the previous release still runs."""
    settings = load()
    configure_logging(settings)
    with servers.open_servers(settings, need_redis=False) as found:
        database_url = found.settings.database_url
        assert database_url is not None
        try:
            applied = migrations.upgrade(
                database_url,
                on_applied=lambda revision: output.print_line(f"applied {revision}"),
                on_wait=lambda: output.print_message("Waiting for another migration of this database to end."),
                on_advice=output.print_message,
            )
        except OperationalError as error:
            reason = " ".join(str(error.orig).split())
            raise ExecutorError(
                f"The database cannot be migrated: {reason} Check DATABASE_URL and the server."
            ) from error
    output.print_message(f"The database is at {migrations.newest_revision()}{'' if applied else ' already'}.")
