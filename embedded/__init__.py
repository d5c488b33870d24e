"""Embedded servers: a private PostgreSQL and Valkey, for use without configured servers.

    with run_servers(home) as servers:
        ...  # servers.database_url, servers.redis_url; call servers.restart_ended() regularly

`home.py` decides which process of a home owns its servers and which are guests, `server.py` runs a server process,
`postgres.py` and `valkey.py` configure one, `programs.py` finds the programs, and `os_user.py` the account to run them.
"""

from embedded.home import EmbeddedServers, run_servers
from embedded.postgres import MIN_POSTGRES_VERSION
from embedded.server import die_with_parent

__all__ = ["MIN_POSTGRES_VERSION", "EmbeddedServers", "die_with_parent", "run_servers"]
