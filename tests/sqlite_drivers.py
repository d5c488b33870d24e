"""Drivers over SQLite for the processes of database sessions, by the names of the databases that they replace."""

import os
import sqlite3
from collections.abc import Mapping
from typing import Any

from providers.databases.drivers import Driver, Target


def connect(target: Target) -> Any:
    """Open an in-memory database with a table of its target. The address 8.8.4.4 refuses connections."""
    if target.address == "8.8.4.4" or target.username == "nobody":
        raise OSError("connection refused")
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.create_function("process_id", 0, os.getpid)
    database.create_function("crash", 0, os.abort)
    database.execute("CREATE TABLE target(host TEXT, address TEXT, port INTEGER)")
    database.execute("INSERT INTO target VALUES (?, ?, ?)", (target.host, target.address, target.port))
    database.execute("CREATE TABLE t(n INTEGER)")
    database.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (3,)])
    database.commit()
    return database


DRIVERS: Mapping[str, Driver] = {
    "postgres": Driver(connect, cancel=lambda connection: connection.interrupt()),
    "mysql": Driver(connect, cancel=lambda connection: None),  # a driver without interruption
}
