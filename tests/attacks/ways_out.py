"""Every module that connects, starts a program, or reads a format that is known for bombs, and why it may.

`names` are libraries it imports and calls it makes; whatever is not here goes through one of these modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """What a module uses of the world outside, and what makes that safe."""

    names: frozenset[str]
    reason: str


def _way(names: str, reason: str) -> Way:
    return Way(frozenset(names.split()), reason)


OURS: Mapping[str, frozenset[str]] = {
    "api": frozenset({"redis"}),
    "scheduler": frozenset({"redis"}),
    "worker": frozenset({"redis"}),
    "store": frozenset({"psycopg"}),
}
"""Packages that talk to the deployment's own servers, which no canvas can name."""

SESSIONS = "a process for each database session, which its kernel limits and its worker ends"
LIMITED = "a child process for data of others, with limits of memory and time"
CHECKED = "connects to addresses that providers/http/address_policy.py has checked"
MODEL = "asks models over providers/models/transport/, at addresses that connect.py there has checked"
SHAPES = "takes types and errors from the library, and connects to nothing"
OUTPUT = "writes a file, and reads none"
MEASURED = "reads a file whose unpacked size was measured before (components/text/extraction/file_kinds.py)"

WAYS_OUT: Mapping[str, Way] = {
    # -- the network
    "providers/http/address_policy.py": _way("socket getaddrinfo()", "looks names up; all the others ask it"),
    "providers/http/client.py": _way("httpcore2 httpx2 ssl importlib", CHECKED),
    "providers/http/guarded_transport.py": _way("httpcore2 httpx2", CHECKED),
    "providers/http/browser_proxy.py": _way("open_connection() start_server()", CHECKED),
    "providers/mail.py": _way("smtplib socket ssl", CHECKED),
    "providers/databases/session_process.py": _way("ctypes fork() import_module() importlib socket", SESSIONS),
    "providers/databases/sessions.py": _way("socket subprocess", SESSIONS),
    "providers/isolation/limited_process.py": _way("socket subprocess", LIMITED),
    "providers/isolation/limited_process_child.py": _way("ctypes import_module() importlib socket", LIMITED),
    "providers/isolation/limited_process_frames.py": _way("socket", LIMITED),
    "providers/databases/drivers.py": _way("importlib import_module()", CHECKED),
    "providers/sandboxes/ssh.py": _way("socket create_connection() importlib import_module()", CHECKED),
    "providers/mcp/session.py": _way(
        "httpx2 mcp", "the SDK's client, over the transport of providers/http/guarded_transport.py"
    ),
    "providers/http/redirects.py": _way("httpx2", SHAPES),
    "providers/models/wires/event_stream.py": _way("httpx2", SHAPES),
    "providers/models/transport/connect.py": _way("socket", CHECKED),
    "providers/models/transport/transport.py": _way(
        "httpx2 ssl create_connection()", "takes the sockets of providers/models/transport/connect.py"
    ),
    "providers/models/transport/proxy_clients.py": _way(
        "httpx2 ssl", "goes by a proxy that the deployment has chosen; follows no redirect"
    ),
    "providers/models/transport/clients.py": _way("httpx2 openai ssl urllib.request importlib import_module()", MODEL),
    "providers/models/wires/openai.py": _way("httpx2", MODEL),
    "providers/models/limits/rate_limiter.py": _way(
        "redis", "a script on the deployment's own Redis, which it is given"
    ),
    "providers/models/wires/openai_sdk.py": _way("httpx2 openai ssl", MODEL),
    "providers/models/wires/json_post.py": _way("httpx2 ssl", MODEL),
    "providers/models/wires/aws.py": _way("botocore httpx2 importlib", MODEL),
    "providers/models/wires/bedrock.py": _way("httpx2", MODEL),
    "store/files/s3_blobs.py": _way("importlib import_module()", "the deployment's own bucket"),
    "scheduler/messaging/amqp_transport.py": _way("ssl", "options of TLS to the deployment's own broker"),
    "scheduler/messaging/celery_app.py": _way("ssl", "options of TLS to the deployment's own broker"),
    "scheduler/messaging/celery_message.py": _way("socket", "the name of this machine"),
    "scheduler/health/broker_probe.py": _way("socket", "options of connections to the deployment's own Redis"),
    "worker/bootstrap.py": _way("socket", "the name of this machine"),
    "components/plugins.py": _way("importlib", "loads packages that the deployment has installed and named"),
    "api/mcp/server.py": _way("mcp", "answers requests; it asks nobody"),
    # -- programs
    "providers/sandboxes/local.py": _way("create_subprocess_exec() socket", "the local sandbox, behind its walls"),
    "providers/sandboxes/inside/seccomp.py": _way("ctypes", "builds these walls from inside"),
    "providers/sandboxes/inside/child.py": _way(
        "ctypes execv() fork() importlib socket", "builds these walls from inside"
    ),
    "providers/sandboxes/inside/mounts.py": _way("ctypes", "builds these walls from inside"),
    "providers/sandboxes/inside/wrapper.py": _way("compile() exec()", "runs behind the walls, and nowhere else"),
    "components/browsing/chromium.py": _way("playwright", "starts Chromium behind providers/http/browser_proxy.py"),
    "components/browsing/session.py": _way("playwright", "whether the library is there"),
    "components/browsing/downloads.py": _way("playwright", "drives that Chromium"),
    "components/browsing/page.py": _way("playwright", "drives that Chromium"),
    "components/browsing/tabs.py": _way("playwright", "drives that Chromium"),
    # -- files
    "components/text/extraction/file_kinds.py": _way("zipfile", "measures archives, and unpacks none"),
    "components/text/extraction/word.py": _way("docx", MEASURED),
    "components/text/extraction/spreadsheets.py": _way("openpyxl", MEASURED),
    "components/text/extraction/pdf.py": _way("pypdf", "the library bounds what a stream may unpack to"),
    "components/documents/formats/sheets.py": _way("openpyxl", OUTPUT),
    "components/documents/formats/word.py": _way("docx", OUTPUT),
    "components/documents/formats/word_frame.py": _way("docx", OUTPUT),
    "components/tools/framework/xml_tree.py": _way("xml", "reads XML without entities of its own"),
    "components/tools/academic/arxiv.py": _way("xml", SHAPES),
    "components/tools/academic/pubmed.py": _way("xml", SHAPES),
}
