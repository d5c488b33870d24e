"""A private PostgreSQL and Valkey for a machine on which no server is named. Nothing else knows how they come about.

    with services(home) as servers:
        ...  # servers.database_url, servers.redis_url; now and then servers.tend()

`home.py` says who owns the servers of a home and who is a guest there, `server.py` runs a process, `postgres.py` and
`valkey.py` say which one; their programs are found in `programs.py`, and `accounts.py` knows who may run them.
"""

from embedded.home import Services, services
from embedded.postgres import OLDEST_POSTGRES
from embedded.server import die_with_parent

__all__ = ["OLDEST_POSTGRES", "Services", "die_with_parent", "services"]
