"""What drivers are told, with modules that only listen. That a server understands it is not shown here."""

import importlib
import ssl
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer

from canvas.errors import ToolError
from providers.databases import drivers
from providers.databases.drivers import DRIVERS, Driver, Target
from tests.certificates import self_signed

TARGET = Target(
    host="db.example.com", address="8.8.8.8", port=1234, database="shop", username="ann", password="p;w}d", timeout=2.5
)


class Listener:
    """A connection and its cursor, which note what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.settings: dict[str, Any] = {}
        self.text = ""
        self.timeout = 0

    def connect(self, text: str = "", *_: Any, **settings: Any) -> "Listener":
        self.text, self.settings = text, settings
        return self

    def cursor(self, *_: Any) -> "Listener":
        return self

    def execute(self, sql: str, **_: Any) -> None:
        self.told.append(sql)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def installed(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> Listener:
    listener = Listener()
    module = ModuleType(name)
    vars(module).update({"connect": listener.connect, **members})
    monkeypatch.setitem(sys.modules, name, module)
    return listener


@pytest.mark.parametrize(
    ("db_type", "limit"),
    [
        ("mysql", "SET SESSION max_execution_time = 2500"),
        ("mariadb", "SET SESSION max_statement_time = 2.5"),
        ("oceanbase", "SET SESSION ob_query_timeout = 2500000"),
    ],
)
def test_a_mysql_session_reads_only_for_a_limited_time(monkeypatch: pytest.MonkeyPatch, db_type: str, limit: str):
    listener = installed(monkeypatch, "pymysql")
    installed(monkeypatch, "pymysql.cursors", SSCursor=object)

    connection = DRIVERS[db_type].connect(TARGET)
    DRIVERS[db_type].execute(connection, "SELECT 1", (), 7)

    assert (listener.settings["host"], listener.settings["port"], listener.settings["charset"]) == (
        "8.8.8.8",
        1234,
        "utf8mb4",
    )
    assert listener.told == [
        "SET SESSION sql_mode = ''",
        limit,
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION sql_select_limit = 7",
        "SELECT 1",
    ]


def test_no_value_begins_another_setting_of_odbc(monkeypatch: pytest.MonkeyPatch):
    listener = installed(monkeypatch, "pyodbc", drivers=lambda: ["ODBC Driver 17 for SQL Server"])

    DRIVERS["mssql"].connect(TARGET)

    assert listener.text == (
        "DRIVER={ODBC Driver 17 for SQL Server};SERVER={8.8.8.8,1234};DATABASE={shop};UID={ann};PWD={p;w}}d};"
        "ApplicationIntent={ReadOnly}"
    )
    assert listener.timeout == 3


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["}", "{}", "};UID={sa", "=;"])


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_a_connection_string_says_what_was_given_and_nothing_else(database: str, username: str, password: str):
    with pytest.MonkeyPatch.context() as monkeypatch:
        listener = installed(monkeypatch, "pyodbc", drivers=lambda: ["ODBC Driver 18 for SQL Server"])

        DRIVERS["mssql"].connect(Target("db.example.com", "8.8.8.8", 1433, database, username, password, 3))

    assert parts_of(listener.text) == {
        "DRIVER": "ODBC Driver 18 for SQL Server",
        "SERVER": "8.8.8.8,1433",
        "DATABASE": database,
        "UID": username,
        "PWD": password,
        "ApplicationIntent": "ReadOnly",
        "HostnameInCertificate": "db.example.com",
    }


def parts_of(text: str) -> dict[str, str]:
    """A connection string as a driver manager reads it: a value in braces ends at a brace that is not doubled."""
    found: dict[str, str] = {}
    while text:
        name, _, rest = text.partition("={")
        value = ""
        while True:
            part, _, rest = rest.partition("}")
            value += part
            if not rest.startswith("}"):
                break
            value, rest = f"{value}}}", rest[1:]
        assert name not in found
        assert rest == "" or rest.startswith(";")
        found[name], text = value, rest[1:]
    return found


def test_sql_server_needs_microsofts_driver(monkeypatch: pytest.MonkeyPatch):
    installed(monkeypatch, "pyodbc", drivers=list)

    with pytest.raises(ToolError, match="Missing dependency 'ODBC Driver 18 for SQL Server'"):
        DRIVERS["mssql"].connect(TARGET)


def test_a_driver_whose_system_library_is_missing_says_so(monkeypatch: pytest.MonkeyPatch):
    def halted(name: str) -> ModuleType:
        raise ImportError("libodbc.so.2: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(drivers.importlib, "import_module", halted)

    with pytest.raises(ToolError) as failed:
        DRIVERS["mssql"].connect(TARGET)

    assert str(failed.value) == (
        "The dependency 'pyodbc' is installed but cannot be loaded: libodbc.so.2: cannot open shared object file: "
        "No such file or directory. Install unixODBC (on Debian and Ubuntu: apt-get install unixodbc) on every worker."
    )


def test_no_value_begins_another_setting_of_db2(monkeypatch: pytest.MonkeyPatch):
    installed(monkeypatch, "ibm_db_dbi")

    with pytest.raises(ToolError, match="semicolon"):
        DRIVERS["IBM DB2"].connect(TARGET)


@pytest.mark.parametrize(
    ("database", "catalog", "schema"),
    [("hive.sales", "hive", "sales"), ("hive/sales", "hive", "sales"), ("hive", "hive", "default")],
)
def test_a_trino_database_is_a_catalog_and_a_schema(
    monkeypatch: pytest.MonkeyPatch, database: str, catalog: str, schema: str
):
    installed(monkeypatch, "trino")
    listener = installed(monkeypatch, "trino.dbapi")
    installed(monkeypatch, "trino.auth", BasicAuthentication=SimpleNamespace)

    DRIVERS["trino"].connect(Target("t.example.com", "8.8.8.8", 8080, database, "ann", "", 3))

    assert (listener.settings["catalog"], listener.settings["schema"]) == (catalog, schema)
    assert (listener.settings["host"], listener.settings["http_scheme"]) == ("t.example.com", "http")


@pytest.mark.parametrize(
    ("db_type", "text"),
    [
        ("mysql", "SELECT '50%%' LIKE %s, %s"),
        ("postgres", "SELECT '50%%' LIKE %s, %s"),
        ("mssql", "SELECT '50%' LIKE ?, ?"),
        ("IBM DB2", "SELECT '50%' LIKE ?, ?"),
        ("trino", "SELECT '50%' LIKE ?, ?"),
    ],
)
def test_values_stand_where_each_driver_looks_for_them(db_type: str, text: str):
    assert DRIVERS[db_type].insert_placeholders(("SELECT '50%' LIKE ", ", ", "")) == text
    assert DRIVERS[db_type].insert_placeholders(("SELECT '50%'",)) == "SELECT '50%'"


def test_a_trino_session_reaches_its_server_and_nothing_else(httpserver: HTTPServer):
    requests = importlib.import_module("requests")
    port = httpserver.port
    named = Target("t.example.com", "127.0.0.1", port, "hive", "ann", "", 3)
    httpserver.expect_request("/v1/next", headers={"Host": f"t.example.com:{port}"}).respond_with_data("more")
    elsewhere = {"Location": f"http://localhost:{port}/secret"}
    httpserver.expect_request("/v1/moved").respond_with_data(status=302, headers=elsewhere)
    httpserver.expect_request("/secret").respond_with_data("secret")
    session = drivers.http_session_for(named, tls=False)

    with session:
        for host in ("t.example.com", "127.0.0.1"):
            reply = session.get(f"http://{host}:{port}/v1/next")
            assert reply.text == "more"
        for url in (f"http://localhost:{port}/secret", f"http://127.0.0.1:{port}/v1/moved", "http://8.8.8.8/"):
            with pytest.raises(requests.exceptions.InvalidSchema):
                session.get(url)


def test_a_trino_session_under_tls_goes_to_the_checked_address_and_wants_the_names_certificate(tmp_path: Path):
    requests = importlib.import_module("requests")
    certificate = self_signed(tmp_path / "server.pem", "t.example.com")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    with HTTPServer(ssl_context=tls) as server:
        server.expect_request("/v1/next", headers={"Host": f"t.example.com:{server.port}"}).respond_with_data("more")
        for name, is_its_own in (("t.example.com", True), ("other.example.com", False)):
            with drivers.http_session_for(
                Target(name, "127.0.0.1", server.port, "hive", "ann", "", 3), tls=True
            ) as session:
                session.verify = str(certificate)
                refused = nullcontext() if is_its_own else pytest.raises(requests.exceptions.SSLError)
                with refused:
                    for host in (name, "127.0.0.1"):
                        assert session.get(f"https://{host}:{server.port}/v1/next").text == "more"


def test_a_trino_database_without_a_catalog_is_none():
    with pytest.raises(ToolError, match=r"^For Trino, `database` must be 'catalog\.schema' or at least 'catalog'\.$"):
        DRIVERS["trino"].connect(Target("t.example.com", "8.8.8.8", 8080, ".sales", "ann", "", 3))


@pytest.mark.parametrize(
    ("db_type", "module", "package"),
    [
        ("mysql", "pymysql", "pymysql"),
        ("mssql", "pyodbc", "pyodbc"),
        ("trino", "trino.dbapi", "trino"),
        ("IBM DB2", "ibm_db_dbi", "ibm_db"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, db_type: str, module: str, package: str
):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ToolError, match=f"^Missing dependency '{package}'. Please install: pip install {package}$"):
        DRIVERS[db_type].connect(TARGET)


def test_errors_have_the_servers_message():
    assert drivers.mysql_reason(Exception(1146, "Table 'shop.nope' doesn't exist")) == "Table 'shop.nope' doesn't exist"
    assert drivers.mysql_reason(Exception("gone")) == "gone"
    assert drivers.postgres_reason(Exception()) == "Exception"
    assert Driver(connect=lambda _: None).reason(ValueError("no")) == "no"
