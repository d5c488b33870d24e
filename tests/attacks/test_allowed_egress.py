"""Only listed modules connect, start programs or unpack files."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.attacks.allowed_egress import OURS, WAYS_OUT

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "canvas", "components", "providers", "scheduler", "store", "worker")

LIBRARIES = frozenset({
    "aiohttp", "aiosmtplib", "anthropic", "asyncpg", "asyncssh", "boto3", "botocore", "cloudpickle", "ctypes",
    "curl_cffi", "dill",
    "docx", "ftplib", "google", "http.client", "httpcore2", "httpx", "httpx2", "imaplib", "importlib", "kreuzberg",
    "lxml", "marshal", "mcp", "multiprocessing", "openai", "openpyxl", "oracledb", "paramiko", "pickle", "playwright",
    "poplib", "psycopg", "pty", "pymysql", "pyodbc", "pypdf", "redis", "requests", "runpy", "shelve", "smtplib",
    "socket", "socketserver", "ssl", "subprocess", "tarfile", "telnetlib", "trino", "urllib.request", "urllib3",
    "websockets", "xml", "yfinance", "yaml", "zipfile",
})  # fmt: skip
CALLS = frozenset({
    "__import__", "create_connection", "create_datagram_endpoint", "create_subprocess_exec", "create_subprocess_shell",
    "eval", "exec", "compile", "execv", "execve", "fork", "getaddrinfo", "import_module", "open_connection",
    "open_unix_connection", "popen", "posix_spawn", "spawnv", "start_server", "system", "unpack_archive",
})  # fmt: skip
METHODS = CALLS - {"compile", "eval", "exec"}  # methods with these names are harmless


def find_uses(source: str) -> set[str]:
    """Return the listed names that a source uses, also in functions and under TYPE_CHECKING."""
    return {name for node in ast.walk(ast.parse(source)) for name in _uses_of(node)}


def _uses_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (library for each in names for library in _libraries(each.name))
        case ast.ImportFrom(module=str() as module, names=names, level=0):
            yield from (library for each in names for library in _libraries(f"{module}.{each.name}"))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield f"{name}()"
        case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
            yield f"{name}()"
        case _:
            return


def _libraries(imported: str) -> Iterator[str]:
    return (library for library in LIBRARIES if f"{imported}.".startswith(f"{library}."))


@cache
def modules() -> dict[str, set[str]]:
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)): find_uses(path.read_text("utf-8")) for path in found}


def test_only_listed_modules_use_network_process_and_archive_libraries():
    unlisted = {
        path: sorted(unlisted_names)
        for path, names in modules().items()
        if (
            unlisted_names := names
            - OURS.get(path.partition("/")[0], set())
            - getattr(WAYS_OUT.get(path), "names", set())
        )
    }

    assert unlisted == {}


def test_list_of_ways_out_contains_only_used_names():
    known = modules()
    unused = {path: sorted(way.names - known[path]) for path, way in WAYS_OUT.items() if path in known}

    assert {path: names for path, names in unused.items() if names} == {}
    assert all(way.reason for way in WAYS_OUT.values())


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import httpx2", "httpx2"),
        ("import http.client as web", "http.client"),
        ("from urllib import request", "urllib.request"),
        ("from urllib.request import urlopen", "urllib.request"),
        ("def f():\n    from requests.sessions import Session", "requests"),
        ("if TYPE_CHECKING:\n    import socket", "socket"),
        ("await asyncio.open_connection(host, 80)", "open_connection()"),
        ("os.system(text)", "system()"),
        ("importlib.import_module(name)", "import_module()"),
        ("eval(text)", "eval()"),
        ("import pickle", "pickle"),
        ("from lxml import etree", "lxml"),
    ],
)
def test_import_or_call_that_reaches_out_is_detected(source: str, name: str):
    assert find_uses(source) == {name}


@pytest.mark.parametrize(
    "source", ["re.compile('a')", "tx.exec(sql)", "from urllib.parse import quote", "import socketry"]
)
def test_harmless_import_or_call_is_not_detected(source: str):
    assert find_uses(source) == set()
