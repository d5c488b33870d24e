"""What database drivers send, recorded with fake driver modules. No real server is involved."""

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
from tests.certificates import create_self_signed

TARGET = Target(
    host="db.example.com", address="8.8.8.8", port=1234, database="shop", username="ann", password="p;w}d", timeout=2.5
)


class Recorder:
    """A connection and its cursor, which record the statements and settings that they receive."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.settings: dict[str, Any] = {}
        self.text = ""
        self.timeout = 0

    def connect(self, text: str = "", *_: Any, **settings: Any) -> "Recorder":
        self.text, self.settings = text, settings
        return self

    def cursor(self, *_: Any) -> "Recorder":
        return self

    def execute(self, sql: str, **_: Any) -> None:
        self.statements.append(sql)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def install_module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> Recorder:
    recorder = Recorder()
    module = ModuleType(name)
    vars(module).update({"connect": recorder.connect, **members})
    monkeypatch.setitem(sys.modules, name, module)
    return recorder


@pytest.mark.parametrize(
    ("db_type", "limit"),
    [
        ("mysql", "SET SESSION max_execution_time = 2500"),
        ("mariadb", "SET SESSION max_statement_time = 2.5"),
        ("oceanbase", "SET SESSION ob_query_timeout = 2500000"),
    ],
)
def test_mysql_session_is_read_only_and_has_a_time_limit(monkeypatch: pytest.MonkeyPatch, db_type: str, limit: str):
    recorder = install_module(monkeypatch, "pymysql")
    install_module(monkeypatch, "pymysql.cursors", SSCursor=object)

    connection = DRIVERS[db_type].connect(TARGET)
    DRIVERS[db_type].execute(connection, "SELECT 1", (), 7)

    assert (recorder.settings["host"], recorder.settings["port"], recorder.settings["charset"]) == (
        "8.8.8.8",
        1234,
        "utf8mb4",
    )
    assert recorder.statements == [
        "SET SESSION sql_mode = ''",
        limit,
        "SET SESSION TRANSACTION READ ONLY",
        "SET SESSION sql_select_limit = 7",
        "SELECT 1",
    ]


def test_special_characters_in_an_odbc_value_do_not_start_another_setting(monkeypatch: pytest.MonkeyPatch):
    recorder = install_module(monkeypatch, "pyodbc", drivers=lambda: ["ODBC Driver 17 for SQL Server"])

    DRIVERS["mssql"].connect(TARGET)

    assert recorder.text == (
        "DRIVER={ODBC Driver 17 for SQL Server};SERVER={8.8.8.8,1234};DATABASE={shop};UID={ann};PWD={p;w}}d};"
        "ApplicationIntent={ReadOnly}"
    )
    assert recorder.timeout == 3


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["}", "{}", "};UID={sa", "=;"])


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_odbc_connection_string_contains_exactly_the_target_values(database: str, username: str, password: str):
    with pytest.MonkeyPatch.context() as monkeypatch:
        recorder = install_module(monkeypatch, "pyodbc", drivers=lambda: ["ODBC Driver 18 for SQL Server"])

        DRIVERS["mssql"].connect(Target("db.example.com", "8.8.8.8", 1433, database, username, password, 3))

    assert parts_of(recorder.text) == {
        "DRIVER": "ODBC Driver 18 for SQL Server",
        "SERVER": "8.8.8.8,1433",
        "DATABASE": database,
        "UID": username,
        "PWD": password,
        "ApplicationIntent": "ReadOnly",
        "HostnameInCertificate": "db.example.com",
    }


def parts_of(text: str) -> dict[str, str]:
    """Parse a connection string like a driver manager: a value in braces ends at a brace that is not doubled."""
    parts: dict[str, str] = {}
    while text:
        name, _, rest = text.partition("={")
        value = ""
        while True:
            part, _, rest = rest.partition("}")
            value += part
            if not rest.startswith("}"):
                break
            value, rest = f"{value}}}", rest[1:]
        assert name not in parts
        assert rest == "" or rest.startswith(";")
        parts[name], text = value, rest[1:]
    return parts


def test_sql_server_needs_microsofts_driver(monkeypatch: pytest.MonkeyPatch):
    install_module(monkeypatch, "pyodbc", drivers=list)

    with pytest.raises(ToolError, match="Missing dependency 'ODBC Driver 18 for SQL Server'"):
        DRIVERS["mssql"].connect(TARGET)


def test_missing_system_library_of_a_driver_is_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch):
    def fail_to_load(name: str) -> ModuleType:
        raise ImportError("libodbc.so.2: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(drivers.importlib, "import_module", fail_to_load)

    with pytest.raises(ToolError) as failed:
        DRIVERS["mssql"].connect(TARGET)

    assert str(failed.value) == (
        "The dependency 'pyodbc' is installed but cannot be loaded: libodbc.so.2: cannot open shared object file: "
        "No such file or directory. Install unixODBC (on Debian and Ubuntu: apt-get install unixodbc) on every worker."
    )


def test_db2_value_with_a_semicolon_is_refused(monkeypatch: pytest.MonkeyPatch):
    install_module(monkeypatch, "ibm_db_dbi")

    with pytest.raises(ToolError, match="semicolon"):
        DRIVERS["IBM DB2"].connect(TARGET)


@pytest.mark.parametrize(
    ("database", "catalog", "schema"),
    [("hive.sales", "hive", "sales"), ("hive/sales", "hive", "sales"), ("hive", "hive", "default")],
)
def test_trino_database_name_is_split_into_catalog_and_schema(
    monkeypatch: pytest.MonkeyPatch, database: str, catalog: str, schema: str
):
    install_module(monkeypatch, "trino")
    recorder = install_module(monkeypatch, "trino.dbapi")
    install_module(monkeypatch, "trino.auth", BasicAuthentication=SimpleNamespace)

    DRIVERS["trino"].connect(Target("t.example.com", "8.8.8.8", 8080, database, "ann", "", 3))

    assert (recorder.settings["catalog"], recorder.settings["schema"]) == (catalog, schema)
    assert (recorder.settings["host"], recorder.settings["http_scheme"]) == ("t.example.com", "http")


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
def test_placeholders_have_the_style_of_each_driver(db_type: str, text: str):
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


def test_trino_tls_session_uses_the_checked_address_and_requires_the_hosts_certificate(tmp_path: Path):
    requests = importlib.import_module("requests")
    certificate = create_self_signed(tmp_path / "server.pem", "t.example.com")
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


def test_trino_database_without_a_catalog_is_refused():
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
def test_driver_that_is_not_installed_is_reported_with_its_package(
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
