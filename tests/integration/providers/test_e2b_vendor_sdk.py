"""The requests of our E2B sandbox are those of the vendor's SDK, and a server of the vendor's library understands them.

If a test fails after an upgrade of the SDK, the vendor's protocol has moved: adapt providers/sandboxes/e2b.py.
"""

import asyncio
import json
import socket
from asyncio import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from e2b import AsyncSandbox
from e2b.envd.process import process_connect
from e2b.envd.process.process_pb import ProcessEvent, StartRequest, StartResponse
from protobuf import Oneof
from werkzeug import Request

from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import Program
from providers.sandboxes.e2b import GRACE, MAX_ARGUMENT_BYTES, E2BSandbox, E2BSettings, EnvelopeParser
from tests.integration.providers.e2b_vendor import DEADLINE_S, KEY, Vendor, e2b_vendor

OF_HTTP = frozenset({"accept", "accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
OF_LIBRARIES = frozenset(
    {"lang", "lang-version", "package-version", "publisher", "sdk-runtime", "system", "user-agent"}
)
NO_COMPRESSION = frozenset({"connect-accept-encoding", "connect-content-encoding"})  # as without these headers


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with e2b_vendor(tmp_path) as vendor:
        yield vendor


@pytest.mark.parametrize("envd_version", ["0.3.0", "0.6.9"])
def test_requests_of_a_program_are_those_of_the_vendors_sdk(
    vendor: Vendor, envd_version: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_PROXY", "*")  # the SDK's HTTP client uses proxies of the environment
    vendor.envd_version = envd_version

    asyncio.run(_run_with_ours(vendor))
    ours = _drain_requests(vendor)
    asyncio.run(_run_with_sdk(vendor))
    theirs = _drain_requests(vendor)

    assert ours == theirs
    assert [path for path, *_ in ours] == [
        "POST /v2/sandboxes",
        "POST /sbx-1/files",
        "POST /sbx-1/process.Process/Start",
        "DELETE /sandboxes/sbx-1",
    ]


def test_server_of_the_vendors_library_runs_a_program(vendor: Vendor):
    script = (
        "import sys\n"
        "print('é' * 3)\n"
        "print('w', file=sys.stderr)\n"
        "def main(a):\n"
        "    if a: return a\n"
        "    raise SystemExit(3)\n"
    )

    async def run_twice() -> None:
        async with _daemon() as url:
            target = _sandbox(vendor, url)
            result = await target.run(Program("python", script, {"a": [1, "é"]}, DEADLINE_S, "key"))
            failed = await target.run(Program("python", script, {"a": None}, DEADLINE_S, "key"))
        assert (result.value, result.stdout, result.stderr, result.exit_code) == ([1, "é"], "ééé\n", "w\n", 0)
        assert (failed.has_value, failed.exit_code) == (False, 3)

    asyncio.run(run_twice())


def _sandbox(vendor: Vendor, daemon_url: str) -> E2BSandbox:
    settings = {"api_key": KEY, "api_url": vendor.server.url_for(""), "sandbox_url": daemon_url}
    return E2BSandbox(HttpClient(Guard()), E2BSettings.model_validate(settings))


async def _run_with_ours(vendor: Vendor) -> None:
    script = "#" * MAX_ARGUMENT_BYTES + "\ndef main(): return 1"
    target = _sandbox(vendor, vendor.server.url_for("/{id}"))
    result = await target.run(Program("python", script, {}, DEADLINE_S, "key"))
    assert result.value == 1


async def _run_with_sdk(vendor: Vendor) -> None:
    sandbox = await AsyncSandbox.create(
        "base",
        int(DEADLINE_S + 3 * GRACE),
        allow_internet_access=False,
        api_key=KEY,
        api_url=vendor.server.url_for(""),
        sandbox_url=vendor.server.url_for("/sbx-1"),
        domain="e2b.app",
        debug=False,
    )
    await sandbox.files.write("easel-code/program.py", "print(1)")
    result = await sandbox.commands.run(
        "python3 ~/easel-code/program.py", envs={"MPLBACKEND": "Agg"}, timeout=DEADLINE_S + GRACE
    )
    assert (result.stdout, result.exit_code) == ("1\n", 0)
    await sandbox.kill()


def _drain_requests(vendor: Vendor) -> list[tuple[str, Any, Any, Any]]:
    """Return the requests since the last call: path, parameters, headers, and the body without the program."""
    log = [request for request, _ in vendor.server.log]
    vendor.server.clear_log()
    return [
        (f"{request.method} {request.path}", request.args.to_dict(), _headers(request), _body(request))
        for request in log
    ]


def _headers(request: Request) -> Mapping[str, str]:
    ignored = OF_HTTP | OF_LIBRARIES | NO_COMPRESSION
    headers = {name.lower().replace("_", "-"): value for name, value in request.headers.items()}
    return {name: value.partition("; boundary=")[0] for name, value in headers.items() if name not in ignored}


def _body(request: Request) -> Any:
    if request.path.endswith("/files"):
        return [(name, file.filename) for name, file in request.files.items(multi=True)]
    if request.path.endswith("/Start"):
        [(flags, data)] = EnvelopeParser().feed(request.data)
        start = json.loads(data)
        process = start["process"]
        return flags, start | {"process": process | {"args": process["args"][:2]}}
    return request.get_json() if request.data else None


class _Daemon(process_connect.Process):
    """The service of a sandbox's daemon, over the vendor's messages."""

    async def start(self, request: StartRequest, ctx: Any) -> AsyncIterator[StartResponse]:
        asked = request.process
        assert asked is not None
        yield _response("start", ProcessEvent.StartEvent(pid=7))
        process = await asyncio.create_subprocess_exec(
            asked.cmd, *asked.args, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        stdout, stderr = await process.communicate()
        yield _response("keepalive", ProcessEvent.KeepAlive())
        for name, text in (("stdout", stdout), ("stderr", stderr)):
            for byte in range(0, len(text), 1000):
                yield _response("data", ProcessEvent.DataEvent(output=Oneof(name, text[byte : byte + 1000])))
        code = process.returncode or 0
        yield _response("end", ProcessEvent.EndEvent(exit_code=code, exited=True, status=f"exit status {code}"))


def _response(name: str, event: Any) -> StartResponse:
    return StartResponse(event=ProcessEvent(event=Oneof(name, event)))


@asynccontextmanager
async def _daemon() -> AsyncIterator[str]:
    """Serve a daemon over the vendor's library; yields its URL."""
    application = process_connect.ProcessASGIApplication(_Daemon())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off"))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
