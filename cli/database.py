"""The database: `easel migrate`."""

from cli import output, servers
from cli.connection import only_errors
from settings import load
from store import migrate as migrations


def migrate() -> None:
    """Bring the database up to this release. Safe to repeat, and while the previous release still runs."""
    settings = load()
    only_errors(settings)
    with servers.found(settings, need_redis=False) as found:
        database_url = found.settings.database_url
        assert database_url is not None
        applied = migrations.upgrade(database_url)
    for revision in applied:
        output.say(f"applied {revision}")
    output.tell(f"The database is at {migrations.head()}{'' if applied else ' already'}.")
