"""Every module that connects, starts a program, or reads a format that is known for bombs, and why it may.

`names` are the libraries that it imports and the calls that it makes; all other modules go through these.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WayOut:
    """The names that a module uses, and the reason why that is safe."""

    names: frozenset[str]
    reason: str


def _way_out(names: str, reason: str) -> WayOut:
    return WayOut(frozenset(names.split()), reason)


OURS: Mapping[str, frozenset[str]] = {
    "api": frozenset({"redis"}),
    "scheduler": frozenset({"redis"}),
    "worker": frozenset({"redis"}),
    "store": frozenset({"psycopg"}),
}
"""Packages that talk to the deployment's own servers, which no canvas can name."""

SESSIONS = "a process for each database session, which its kernel limits and its worker ends"
LIMITED = "a child process for data of others, with limits of memory and time"
CHECKED = "connects to addresses that providers/address_policy.py has checked"
MODEL = "asks models over providers/models/transport/, at addresses that connect.py there has checked"
TYPES_ONLY = "takes types and errors from the library, and connects to nothing"
OUTPUT = "writes a file, and reads none"
MEASURED = "reads a file whose unpacked size was measured before (components/text/extraction/file_kinds.py)"

WAYS_OUT: Mapping[str, WayOut] = {
    # -- the network
    "providers/address_policy.py": _way_out(
        "socket getaddrinfo()", "looks names up for all others, connects to checked addresses"
    ),
    "cli/shell/page_server.py": _way_out("http", "asks the API of the running `easel up` of this home"),
    "providers/http/client.py": _way_out("httpcore2 httpx2 ssl importlib", CHECKED),
    "providers/http/guarded_transport.py": _way_out("httpcore2 httpx2", CHECKED),
    "providers/http/browser_proxy.py": _way_out("open_connection() start_server()", CHECKED),
    "components/tools/finance/yahoo_session.py": _way_out(
        "curl_cffi yfinance", "asks the vendor's own hosts, which the library names, in a child process"
    ),
    "providers/mail.py": _way_out("aiosmtplib socket ssl", CHECKED),
    "providers/databases/session_process.py": _way_out("ctypes fork() import_module() importlib socket", SESSIONS),
    "providers/databases/sessions.py": _way_out("socket subprocess", SESSIONS),
    "providers/isolation/limited_process.py": _way_out("socket subprocess", LIMITED),
    "providers/isolation/limited_process_child.py": _way_out("ctypes import_module() importlib socket", LIMITED),
    "providers/isolation/limited_process_frames.py": _way_out("socket", LIMITED),
    "providers/databases/drivers.py": _way_out("importlib import_module()", CHECKED),
    "providers/sandboxes/ssh_execution.py": _way_out("asyncssh", CHECKED),
    "providers/mcp/session.py": _way_out(
        "httpx2 mcp", "the SDK's client, over the transport of providers/http/guarded_transport.py"
    ),
    "providers/http/redirects.py": _way_out("httpx2", TYPES_ONLY),
    "providers/models/wires/event_stream.py": _way_out("httpx2", TYPES_ONLY),
    "providers/models/transport/connect.py": _way_out("aiohttp socket", CHECKED),
    "providers/models/transport/transport.py": _way_out(
        "aiohttp httpx2 ssl", "connects to addresses that providers/models/transport/connect.py has checked"
    ),
    "providers/models/transport/proxy_clients.py": _way_out(
        "httpx2 ssl", "goes by a proxy that the deployment has chosen; follows no redirect"
    ),
    "providers/models/transport/clients.py": _way_out(
        "anthropic google httpx2 openai ssl urllib.request importlib import_module()", MODEL
    ),
    "providers/models/wires/anthropic.py": _way_out("anthropic httpx2 ssl", MODEL),
    "providers/models/wires/gemini.py": _way_out("google httpx2", MODEL),
    "providers/models/transport/open_responses.py": _way_out("httpx2", TYPES_ONLY),
    "providers/models/wires/openai.py": _way_out("httpx2", MODEL),
    "providers/models/limits/rate_limiter.py": _way_out(
        "redis", "a script on the deployment's own Redis, which it is given"
    ),
    "providers/models/wires/openai_sdk.py": _way_out("httpx2 openai ssl", MODEL),
    "providers/models/wires/json_post.py": _way_out("httpx2 ssl", MODEL),
    "providers/models/wires/aws.py": _way_out("botocore httpx2 importlib", MODEL),
    "providers/models/wires/bedrock.py": _way_out("httpx2", MODEL),
    "store/files/s3_blobs.py": _way_out("importlib import_module()", "the deployment's own bucket"),
    "scheduler/messaging/amqp_transport.py": _way_out("ssl", "options of TLS to the deployment's own broker"),
    "scheduler/messaging/celery_app.py": _way_out("ssl", "options of TLS to the deployment's own broker"),
    "scheduler/messaging/celery_message.py": _way_out("socket", "the name of this machine"),
    "scheduler/health/broker_probe.py": _way_out("socket", "options of connections to the deployment's own Redis"),
    "worker/bootstrap.py": _way_out("socket", "the name of this machine"),
    "components/plugins.py": _way_out("importlib", "loads packages that the deployment has installed and named"),
    "api/mcp/server.py": _way_out("mcp", "answers requests; it asks nobody"),
    # -- programs
    "providers/sandboxes/local.py": _way_out("create_subprocess_exec() socket", "the local sandbox, behind its walls"),
    "providers/sandboxes/bubblewrap.py": _way_out("subprocess", "tries bubblewrap, which builds these walls"),
    "providers/sandboxes/inside/seccomp.py": _way_out("ctypes", "builds these walls from inside"),
    "providers/sandboxes/inside/child.py": _way_out(
        "ctypes execv() fork() importlib socket", "builds these walls from inside"
    ),
    "providers/sandboxes/inside/mounts.py": _way_out("ctypes", "builds these walls from inside"),
    "providers/sandboxes/inside/wrapper.py": _way_out("compile() exec()", "runs behind the walls, and nowhere else"),
    "components/browsing/chromium.py": _way_out("playwright", "starts Chromium behind providers/http/browser_proxy.py"),
    "components/browsing/session.py": _way_out("playwright", "whether the library is there"),
    "components/browsing/downloads.py": _way_out("playwright", "drives that Chromium"),
    "components/browsing/page.py": _way_out("playwright", "drives that Chromium"),
    "components/browsing/tabs.py": _way_out("playwright", "drives that Chromium"),
    # -- files
    "components/text/extraction/file_kinds.py": _way_out("zipfile", "measures archives, and unpacks none"),
    "components/text/extraction/office.py": _way_out("kreuzberg", MEASURED),
    "components/text/extraction/word.py": _way_out("docx", MEASURED),
    "components/text/extraction/spreadsheets.py": _way_out("openpyxl", MEASURED),
    "components/text/extraction/pdf.py": _way_out("pypdf", "the library bounds what a stream may unpack to"),
    "components/documents/formats/sheets.py": _way_out("openpyxl", OUTPUT),
    "components/documents/formats/word.py": _way_out("docx", OUTPUT),
    "components/documents/formats/word_frame.py": _way_out("docx", OUTPUT),
    "components/tools/framework/xml_tree.py": _way_out("xml", "reads XML without entities of its own"),
    "components/tools/academic/arxiv.py": _way_out("xml", TYPES_ONLY),
    "components/tools/academic/pubmed.py": _way_out("xml", TYPES_ONLY),
}
