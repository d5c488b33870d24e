"""How each kind of database is connected to and asked: drivers of PEP 249, imported when a node wants one.

Each session is read-only where the database knows such a thing, each statement has a time limit where it knows one, and
the connection goes to the address that was checked.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from canvas.errors import ToolError

CONNECT_SECONDS = 10.0  # at most, for one address
_SYSTEM_LIBRARIES: Mapping[str, str] = {
    "pyodbc": "Install unixODBC (on Debian and Ubuntu: apt-get install unixodbc) on every worker."
}
_PYMYSQL = ("pymysql", "pymysql.cursors")
_ODBC_DRIVERS = ("ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server")


@dataclass(frozen=True, slots=True)
class Target:
    """A database of a node, at one of its host's addresses. `timeout` is in seconds, for each statement."""

    host: str
    address: str
    port: int
    database: str
    username: str
    password: str = field(repr=False)
    timeout: float
    tls: bool = False  # of Trino alone; the others agree on it with the server, or always use it

    @property
    def patience(self) -> int:
        """Seconds for connecting, whole ones, as drivers want them."""
        return max(1, ceil(min(self.timeout, CONNECT_SECONDS)))


def _plainly(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    cursor = connection.cursor()
    cursor.execute(sql, *_given(values))
    return cursor


def _given(values: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """What a statement is carried out with: values, if it has any. Without them nothing in it is a mark."""
    return (tuple(values),) if values else ()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Driver:
    """`ask` gives a cursor on which a statement has been carried out, `call_off` ends one from another thread.

    `mark` stands in a statement for a value: `%s` or `?`, as PEP 249 has it. `modules` are those that `connect` needs;
    `is_fork_safe`: a process that has imported them may fork.
    """

    connect: Callable[[Target], Any]
    ask: Callable[[Any, str, Sequence[Any], int], Any] = _plainly
    reason: Callable[[Exception], str] = _reason
    call_off: Callable[[Any], object] = lambda connection: connection.cancel()
    mark: str = "?"
    modules: tuple[str, ...] = ()
    is_fork_safe: bool = True

    def marked(self, parts: Sequence[str]) -> str:
        """A statement with a mark between every two parts."""
        if len(parts) > 1 and self.mark == "%s":
            parts = [part.replace("%", "%%") for part in parts]
        return self.mark.join(parts)


def connect_postgres(target: Target) -> Any:
    psycopg = _module("psycopg", "psycopg[binary]")
    milliseconds = ceil(target.timeout * 1000)
    connection = psycopg.connect(
        host=target.host,
        hostaddr=target.address,
        port=target.port,
        dbname=target.database,
        user=target.username,
        password=target.password,
        connect_timeout=max(2, target.patience),  # libpq counts from 2
        application_name="easel",
        **_nobody_elses(psycopg.pq.version()),
        options=f"-c statement_timeout={milliseconds} -c default_transaction_read_only=on "
        "-c standard_conforming_strings=on",
    )
    connection.read_only = True
    _take_any_moment(connection)
    return connection


def _nobody_elses(version: int) -> dict[str, str]:
    """Settings under which libpq shows no ticket and no certificate of whoever runs the worker to a canvas's server."""
    settings = {"gssencmode": "disable"}
    if version >= 160_000:  # those before know no more
        settings |= {"require_auth": "password,md5,scram-sha-256,none", "sslcertmode": "disable"}
    return settings


def _take_any_moment(connection: Any) -> None:
    """Read dates that Python has none for (`infinity`, years before Christ) as text; they would fail the statement."""
    moments = _module("psycopg.types.datetime", "psycopg[binary]")
    error = _module("psycopg", "psycopg[binary]").DataError
    loaders = {
        "date": moments.DateLoader,
        "timestamp": moments.TimestampLoader,
        "timestamptz": moments.TimestamptzLoader,
    }
    for name, loader in loaders.items():
        connection.adapters.register_loader(name, _lenient(loader, error))


def _lenient(loader: Any, error: Any) -> Any:
    """A loader of psycopg that gives the text where it would fail."""

    def load(self: Any, data: Any) -> Any:
        try:
            return loader.load(self, data)
        except error:
            return bytes(data).decode()

    return type("Lenient", (loader,), {"load": load})


def ask_postgres(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    """A query through a cursor of the server, which takes nothing but queries; the rest as one prepared statement."""
    if sql.lstrip(" \t\r\n(")[:6].upper().startswith(("SELECT", "WITH")):
        cursor = connection.cursor("easel")
        cursor.itersize = most_rows
        cursor.execute(sql, *_given(values))
        return cursor
    cursor = connection.cursor()
    cursor.execute(sql, *_given(values), prepare=True)
    return cursor


def postgres_reason(error: Exception) -> str:
    """The server's own sentence, without its picture of the statement."""
    diagnosis = getattr(error, "diag", None)
    return getattr(diagnosis, "message_primary", None) or _reason(error)


def connect_mysql(target: Target) -> Any:
    return _connect_mysql(target, f"max_execution_time = {ceil(target.timeout * 1000)}")


def connect_mariadb(target: Target) -> Any:
    return _connect_mysql(target, f"max_statement_time = {target.timeout:g}")


def connect_oceanbase(target: Target) -> Any:
    return _connect_mysql(target, f"ob_query_timeout = {ceil(target.timeout * 1_000_000)}")


def _connect_mysql(target: Target, time_limit: str) -> Any:
    pymysql = _module("pymysql", "pymysql")
    connection = pymysql.connect(
        host=target.address,
        port=target.port,
        user=target.username,
        password=target.password,
        database=target.database,
        charset="utf8mb4",
        connect_timeout=target.patience,
        read_timeout=target.patience + ceil(target.timeout),
        write_timeout=target.patience,
        cursorclass=_module("pymysql.cursors", "pymysql").SSCursor,
    )
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")  # quotes mean what they mean to whoever judged the statement
        cursor.execute(f"SET SESSION {time_limit}")
        cursor.execute("SET SESSION TRANSACTION READ ONLY")
    return connection


def ask_mysql(connection: Any, sql: str, values: Sequence[Any], most_rows: int) -> Any:
    """The server stops after so many rows, so that nothing is left to read when the cursor is closed."""
    cursor = connection.cursor()
    cursor.execute(f"SET SESSION sql_select_limit = {most_rows}")
    cursor.execute(sql, *_given(values))
    return cursor


def mysql_reason(error: Exception) -> str:
    """The server's sentence, which the driver puts behind a number."""
    told = error.args[1] if len(error.args) > 1 else None
    return str(told) if told else _reason(error)


def connect_mssql(target: Target) -> Any:
    pyodbc = _module("pyodbc", "pyodbc")
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
    if driver == _ODBC_DRIVERS[0]:  # it speaks TLS and wants a certificate, which has the name and not the address
        parts["HostnameInCertificate"] = target.host
    text = ";".join(f"{name}={_odbc_value(value)}" for name, value in parts.items())
    connection = pyodbc.connect(text, timeout=target.patience, autocommit=False)
    connection.timeout = ceil(target.timeout)
    return connection


def _odbc_value(value: str) -> str:
    """A value in braces, where no character begins another setting."""
    return "{" + value.replace("}", "}}") + "}"


def connect_db2(target: Target) -> Any:
    ibm_db_dbi = _module("ibm_db_dbi", "ibm_db")
    parts = {
        "DATABASE": target.database,
        "HOSTNAME": target.address,
        "PORT": str(target.port),
        "PROTOCOL": "TCPIP",
        "UID": target.username,
        "PWD": target.password,
        "CONNECTTIMEOUT": str(target.patience),
        "QUERYTIMEOUT": str(ceil(target.timeout)),
    }
    if any(";" in value for value in parts.values()):
        raise ToolError("A database, username or password of DB2 cannot have a semicolon in it.")
    return ibm_db_dbi.connect("".join(f"{name}={value};" for name, value in parts.items()), "", "")


def connect_trino(target: Target) -> Any:
    tls = target.tls
    catalog, schema = _catalog_of(target.database)
    trino = _module("trino.dbapi", "trino")
    auth = _module("trino.auth", "trino")
    connection = trino.connect(
        host=_in_url(target.host),
        port=target.port,
        user=target.username,
        catalog=catalog,
        schema=schema,
        http_scheme="https" if tls else "http",
        auth=auth.BasicAuthentication(target.username, target.password) if tls and target.password else None,
        http_session=session_with(target, tls=tls),
        request_timeout=target.timeout,
        session_properties={"query_max_run_time": f"{ceil(target.timeout * 1000)}ms"},
    )
    return TrinoSession(connection)


class TrinoSession:
    """A connection that knows what it is asking: Trino's client calls off statements, and no connections."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._asking: Any = None

    def cursor(self) -> Any:
        self._asking = self._connection.cursor()
        return self._asking

    def cancel(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def rollback(self) -> None:
        """Nothing: each statement is a transaction of its own."""

    def close(self) -> None:
        self._connection.close()


def session_with(target: Target, *, tls: bool) -> Any:
    """A session of `requests` that reaches this server and nothing else, wherever the server says to go on.

    It connects to the address that was checked; under TLS the certificate has to be the name's. A Trino server names
    the addresses at which its answers continue, and the driver asks there, redirects included.
    """
    requests = _module("requests", "requests")
    session = requests.Session()
    session.trust_env = False  # no proxy, no password of somebody's .netrc
    session.adapters.clear()
    scheme, usual = ("https", 443) if tls else ("http", 80)
    plain = requests.adapters.HTTPAdapter()
    if tls:
        plain.init_poolmanager(1, 1, server_hostname=target.host)
    place, name = (f"{_in_url(host)}:{target.port}" for host in (target.address, target.host))
    adapter = _ToAddress(plain, f"{scheme}://{place}", name)
    for host in {target.host, target.address}:
        session.mount(f"{scheme}://{_in_url(host)}:{target.port}/", adapter)
        if target.port == usual:
            session.mount(f"{scheme}://{_in_url(host)}/", adapter)
    return session


class _ToAddress:
    """An adapter of `requests` which goes to the address that was checked, whatever the name leads to by now."""

    def __init__(self, adapter: Any, place: str, name: str) -> None:
        self._adapter = adapter
        self._place = place
        self._name = name

    def send(self, request: Any, *more: Any, **given: Any) -> Any:
        _, _, path = request.url.partition("://")[2].partition("/")
        request.url = f"{self._place}/{path}"
        request.headers["Host"] = self._name
        return self._adapter.send(request, *more, **given)

    def close(self) -> None:
        self._adapter.close()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _catalog_of(database: str) -> tuple[str, str]:
    """`catalog.schema`, `catalog/schema` or a catalog alone."""
    catalog, _, schema = database.strip().replace("/", ".").partition(".")
    if not catalog:
        raise ToolError("For Trino, `database` must be 'catalog.schema' or at least 'catalog'.")
    return catalog, schema or "default"


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ToolError(f"Missing dependency '{package}'. Please install: pip install {package}") from error
    except ImportError as error:  # it is there, and a library of the system that it needs is not
        remedy = _SYSTEM_LIBRARIES.get(name, "Install the system library that it needs on every worker.")
        raise ToolError(f"The dependency '{package}' is installed and cannot be loaded: {error}. {remedy}") from error


DRIVERS: Mapping[str, Driver] = {
    "mysql": Driver(connect_mysql, ask_mysql, mysql_reason, mark="%s", modules=_PYMYSQL),
    "mariadb": Driver(connect_mariadb, ask_mysql, mysql_reason, mark="%s", modules=_PYMYSQL),
    "oceanbase": Driver(connect_oceanbase, ask_mysql, mysql_reason, mark="%s", modules=_PYMYSQL),
    "postgres": Driver(
        connect_postgres, ask_postgres, postgres_reason, mark="%s", modules=("psycopg", "psycopg.types.datetime")
    ),
    "mssql": Driver(connect_mssql, modules=("pyodbc",)),
    "IBM DB2": Driver(connect_db2, modules=("ibm_db_dbi",), is_fork_safe=False),  # its library may start threads
    "trino": Driver(connect_trino, modules=("trino.dbapi", "trino.auth", "requests")),
}
"""By the name that a node's `db_type` has."""
