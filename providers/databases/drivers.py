"""Connects to each kind of database and executes statements, with PEP 249 drivers that are imported on first use.

Each session is read-only and each statement has a time limit, as far as the database supports that. The connection
goes to the address that was checked.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from canvas.errors import ToolError

CONNECT_TIMEOUT = 10.0  # at most, for one address
_SYSTEM_LIBRARIES: Mapping[str, str] = {
    "pyodbc": "Install unixODBC (on Debian and Ubuntu: apt-get install unixodbc) on every worker."
}
_PYMYSQL = ("pymysql", "pymysql.cursors")
_ODBC_DRIVERS = ("ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server")


@dataclass(frozen=True, slots=True)
class Target:
    """A database at one address of its host. `timeout` is in seconds, for each statement."""

    host: str
    address: str
    port: int
    database: str
    username: str
    password: str = field(repr=False)
    timeout: float
    tls: bool = False  # for Trino only; the other drivers negotiate TLS or always use it

    @property
    def connect_timeout(self) -> int:
        """Return the timeout for connecting, in whole seconds as drivers require."""
        return max(1, ceil(min(self.timeout, CONNECT_TIMEOUT)))


def _execute(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    cursor = connection.cursor()
    cursor.execute(sql, *_execute_arguments(values))
    return cursor


def _execute_arguments(values: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Return the arguments for `execute`: the values, or none, so that the driver looks for no placeholders."""
    return (tuple(values),) if values else ()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Driver:
    """The functions of one kind of database.

    `execute` executes a statement and returns its cursor; `cancel` cancels a statement from another thread.
    `placeholder` stands for a value in a statement, `%s` or `?` as in PEP 249. `modules` are needed by `connect`;
    `is_fork_safe`: a process that has imported them may fork.
    """

    connect: Callable[[Target], Any]
    execute: Callable[[Any, str, Sequence[Any], int], Any] = _execute
    reason: Callable[[Exception], str] = _reason
    cancel: Callable[[Any], object] = lambda connection: connection.cancel()
    placeholder: str = "?"
    modules: tuple[str, ...] = ()
    is_fork_safe: bool = True

    def insert_placeholders(self, parts: Sequence[str]) -> str:
        """Return a statement with a placeholder between every two parts."""
        if len(parts) > 1 and self.placeholder == "%s":
            parts = [part.replace("%", "%%") for part in parts]
        return self.placeholder.join(parts)


def connect_postgres(target: Target) -> Any:
    psycopg = _import_driver("psycopg", "psycopg[binary]")
    milliseconds = ceil(target.timeout * 1000)
    connection = psycopg.connect(
        host=target.host,
        hostaddr=target.address,
        port=target.port,
        dbname=target.database,
        user=target.username,
        password=target.password,
        connect_timeout=max(2, target.connect_timeout),  # the minimum of libpq
        application_name="easel",
        **_private_settings(psycopg.pq.version()),
        options=f"-c statement_timeout={milliseconds} -c default_transaction_read_only=on "
        "-c standard_conforming_strings=on",
    )
    connection.read_only = True
    _load_any_date(connection)
    return connection


def _private_settings(version: int) -> dict[str, str]:
    """Return settings that keep libpq from sending Kerberos tickets and certificates of the worker's user."""
    settings = {"gssencmode": "disable"}
    if version >= 160_000:  # older versions do not have these settings
        settings |= {"require_auth": "password,md5,scram-sha-256,none", "sslcertmode": "disable"}
    return settings


def _load_any_date(connection: Any) -> None:
    """Load dates that Python cannot represent (`infinity`, years BC) as text instead of failing the statement."""
    moments = _import_driver("psycopg.types.datetime", "psycopg[binary]")
    error = _import_driver("psycopg", "psycopg[binary]").DataError
    loaders = {
        "date": moments.DateLoader,
        "timestamp": moments.TimestampLoader,
        "timestamptz": moments.TimestamptzLoader,
    }
    for name, loader in loaders.items():
        connection.adapters.register_loader(name, _lenient_loader(loader, error))


def _lenient_loader(loader: Any, error: Any) -> Any:
    """Return a psycopg loader that returns the text where the given loader fails."""

    def load(self: Any, data: Any) -> Any:
        try:
            return loader.load(self, data)
        except error:
            return bytes(data).decode()

    return type("Lenient", (loader,), {"load": load})


def execute_postgres(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    """Execute a query through a server-side cursor, and any other statement as one prepared statement."""
    if sql.lstrip(" \t\r\n(")[:6].upper().startswith(("SELECT", "WITH")):
        cursor = connection.cursor("easel")
        cursor.itersize = most_rows
        cursor.execute(sql, *_execute_arguments(values))
        return cursor
    cursor = connection.cursor()
    cursor.execute(sql, *_execute_arguments(values), prepare=True)
    return cursor


def postgres_reason(error: Exception) -> str:
    """Return the server's primary message, without the excerpt of the statement."""
    diagnosis = getattr(error, "diag", None)
    return getattr(diagnosis, "message_primary", None) or _reason(error)


def connect_mysql(target: Target) -> Any:
    return _connect_mysql(target, f"max_execution_time = {ceil(target.timeout * 1000)}")


def connect_mariadb(target: Target) -> Any:
    return _connect_mysql(target, f"max_statement_time = {target.timeout:g}")


def connect_oceanbase(target: Target) -> Any:
    return _connect_mysql(target, f"ob_query_timeout = {ceil(target.timeout * 1_000_000)}")


def _connect_mysql(target: Target, time_limit: str) -> Any:
    pymysql = _import_driver("pymysql", "pymysql")
    connection = pymysql.connect(
        host=target.address,
        port=target.port,
        user=target.username,
        password=target.password,
        database=target.database,
        charset="utf8mb4",
        connect_timeout=target.connect_timeout,
        read_timeout=target.connect_timeout + ceil(target.timeout),
        write_timeout=target.connect_timeout,
        cursorclass=_import_driver("pymysql.cursors", "pymysql").SSCursor,
    )
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")  # the check of the statement assumes the default quoting rules
        cursor.execute(f"SET SESSION {time_limit}")
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    return connection


def execute_mysql(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    """Execute a statement with a row limit at the server, so that no rows are left to read when the cursor closes."""
    cursor = connection.cursor()
    cursor.execute(f"SET SESSION sql_select_limit = {most_rows}")
    cursor.execute(sql, *_execute_arguments(values))
    return cursor


def mysql_reason(error: Exception) -> str:
    """Return the server's message, which the driver puts after an error number."""
    message = error.args[1] if len(error.args) > 1 else None
    return str(message) if message else _reason(error)


def connect_mssql(target: Target) -> Any:
    pyodbc = _import_driver("pyodbc", "pyodbc")
    installed = pyodbc.drivers()
    driver = next((name for name in _ODBC_DRIVERS if name in installed), None)
    if driver is None:
        raise ToolError(f"Missing dependency '{_ODBC_DRIVERS[0]}'. Install Microsoft's driver on every worker.")
    parts = {
        "DRIVER": driver,
        "SERVER": f"{target.address},{target.port}",
        "DATABASE": target.database,
        "UID": target.username,
        "PWD": target.password,
        "ApplicationIntent": "ReadOnly",
    }
    if driver == _ODBC_DRIVERS[0]:  # it uses TLS; the certificate contains the host name and not the address
        parts["HostnameInCertificate"] = target.host
    text = ";".join(f"{name}={_odbc_value(value)}" for name, value in parts.items())
    connection = pyodbc.connect(text, timeout=target.connect_timeout, autocommit=False)
    connection.timeout = ceil(target.timeout)
    return connection


def _odbc_value(value: str) -> str:
    """Return a value in braces, in which no character can start another setting."""
    return "{" + value.replace("}", "}}") + "}"


def connect_db2(target: Target) -> Any:
    ibm_db_dbi = _import_driver("ibm_db_dbi", "ibm_db")
    parts = {
        "DATABASE": target.database,
        "HOSTNAME": target.address,
        "PORT": str(target.port),
        "PROTOCOL": "TCPIP",
        "UID": target.username,
        "PWD": target.password,
        "CONNECTTIMEOUT": str(target.connect_timeout),
        "QUERYTIMEOUT": str(ceil(target.timeout)),
    }
    if any(";" in value for value in parts.values()):
        raise ToolError("The database, username and password of DB2 cannot contain a semicolon.")
    return ibm_db_dbi.connect("".join(f"{name}={value};" for name, value in parts.items()), "", "")


def connect_trino(target: Target) -> Any:
    tls = target.tls
    catalog, schema = _split_catalog(target.database)
    trino = _import_driver("trino.dbapi", "trino")
    auth = _import_driver("trino.auth", "trino")
    connection = trino.connect(
        host=_url_host(target.host),
        port=target.port,
        user=target.username,
        catalog=catalog,
        schema=schema,
        http_scheme="https" if tls else "http",
        auth=auth.BasicAuthentication(target.username, target.password) if tls and target.password else None,
        http_session=http_session_for(target, tls=tls),
        request_timeout=target.timeout,
        session_properties={"query_max_run_time": f"{ceil(target.timeout * 1000)}ms"},
    )
    return TrinoConnection(connection)


class TrinoConnection:
    """A Trino connection that remembers its cursor: Trino's client cancels statements, not connections."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor: Any = None

    def cursor(self) -> Any:
        self._cursor = self._connection.cursor()
        return self._cursor

    def cancel(self) -> None:
        if self._cursor is not None:
            self._cursor.cancel()

    def rollback(self) -> None:
        """Do nothing: each statement is a transaction of its own."""

    def close(self) -> None:
        self._connection.close()


def http_session_for(target: Target, *, tls: bool) -> Any:
    """Return a `requests` session that can reach only this server.

    It connects to the address that was checked; with TLS the certificate must contain the host name. All other URLs
    fail, because the driver follows redirects and the URLs at which a Trino server says that its result continues.
    """
    requests = _import_driver("requests", "requests")
    session = requests.Session()
    session.trust_env = False  # no proxies, no passwords from .netrc
    session.adapters.clear()
    scheme, default_port = ("https", 443) if tls else ("http", 80)
    plain = requests.adapters.HTTPAdapter()
    if tls:
        plain.init_poolmanager(1, 1, server_hostname=target.host)
    place, name = (f"{_url_host(host)}:{target.port}" for host in (target.address, target.host))
    adapter = _PinnedAdapter(plain, f"{scheme}://{place}", name)
    for host in {target.host, target.address}:
        session.mount(f"{scheme}://{_url_host(host)}:{target.port}/", adapter)
        if target.port == default_port:
            session.mount(f"{scheme}://{_url_host(host)}/", adapter)
    return session


class _PinnedAdapter:
    """A `requests` adapter that connects to the checked address, whatever the name resolves to later."""

    def __init__(self, adapter: Any, place: str, name: str) -> None:
        self._adapter = adapter
        self._place = place
        self._name = name

    def send(self, request: Any, *arguments: Any, **named: Any) -> Any:
        _, _, path = request.url.partition("://")[2].partition("/")
        request.url = f"{self._place}/{path}"
        request.headers["Host"] = self._name
        return self._adapter.send(request, *arguments, **named)

    def close(self) -> None:
        self._adapter.close()


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _split_catalog(database: str) -> tuple[str, str]:
    """Return (catalog, schema) of `catalog.schema`, `catalog/schema` or a catalog alone. Raises ToolError."""
    catalog, _, schema = database.strip().replace("/", ".").partition(".")
    if not catalog:
        raise ToolError("For Trino, `database` must be 'catalog.schema' or at least 'catalog'.")
    return catalog, schema or "default"


def _import_driver(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ToolError(f"Missing dependency '{package}'. Please install: pip install {package}") from error
    except ImportError as error:  # the module is installed, but a system library that it needs is missing
        remedy = _SYSTEM_LIBRARIES.get(name, "Install the system library that it needs on every worker.")
        raise ToolError(f"The dependency '{package}' is installed but cannot be loaded: {error}. {remedy}") from error


DRIVERS: Mapping[str, Driver] = {
    "mysql": Driver(connect_mysql, execute_mysql, mysql_reason, placeholder="%s", modules=_PYMYSQL),
    "mariadb": Driver(connect_mariadb, execute_mysql, mysql_reason, placeholder="%s", modules=_PYMYSQL),
    "oceanbase": Driver(connect_oceanbase, execute_mysql, mysql_reason, placeholder="%s", modules=_PYMYSQL),
    "postgres": Driver(
        connect_postgres,
        execute_postgres,
        postgres_reason,
        placeholder="%s",
        modules=("psycopg", "psycopg.types.datetime"),
    ),
    "mssql": Driver(connect_mssql, modules=("pyodbc",)),
    "IBM DB2": Driver(connect_db2, modules=("ibm_db_dbi",), is_fork_safe=False),  # its library may start threads
    "trino": Driver(connect_trino, modules=("trino.dbapi", "trino.auth", "requests")),
}
"""The drivers by `db_type` of a node."""
