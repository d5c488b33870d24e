"""Addresses of pages, asked for from a running API: with a one-time code, or of a run without one."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from canvas.errors import ExecutorError, NotFound
from canvas.ids import RunId
from cli.shell.home import Up

TIMEOUT = 10.0  # seconds
SHORT_TIMEOUT = 1.0  # seconds for an address that is only nice to have
ABOUT = "/api/v1/viewer"
CODES = "/api/v1/viewer/codes"


@dataclass(frozen=True, slots=True)
class PageServer:
    """An API as pages see it: its address, its base path, and whether it serves pages."""

    url: str
    token: str
    base: str
    has_pages: bool

    def address(self, run: str | None = None) -> str:
        """Return the address of the list of runs, or of a run by id or external id, which signs in once.

        Raises NotFound for an unknown run.
        """
        path = "/"
        if run is not None:
            status, found = _request(self.url, self.token, "GET", f"/api/v1/runs/{quote(run, '')}?activations=none")
            if status == 404:
                raise NotFound(found["message"])
            path = f"/runs/{_require(status, found, 200)['id']}"
        status, made = _request(self.url, self.token, "POST", CODES)
        return f"{self.url}{self.base}{path}#c={_require(status, made, 201)['code']}"


def find_page_server(url: str, token: str, timeout: float = TIMEOUT) -> PageServer | None:
    """Return the API at a URL; None if EASEL_VIEWER is off there. Raises ExecutorError if it does not answer."""
    status, about = _request(url, token, "GET", ABOUT, timeout)
    if status == 404:
        return None
    found = _require(status, about, 200)
    return PageServer(url, token, found["base"], found["build"] is not None)


def find_run_address(up: Up | None, run_id: RunId) -> str | None:
    """Return the address of a run's page at the running `easel up`; None if none runs, or it serves no pages.

    The address contains no code for signing in, so it can be stored and passed on.
    """
    if up is None:
        return None
    try:
        server = find_page_server(up.url, up.token, SHORT_TIMEOUT)
    except ExecutorError:  # the run is stored all the same
        return None
    return f"{up.url}{server.base}/runs/{run_id.hex}" if server is not None and server.has_pages else None


def _require(status: int, body: dict[str, Any], expected: int) -> dict[str, Any]:
    if status != expected:
        raise ExecutorError(f"The API answered with status {status}: {body.get('message', '')}".rstrip(": "))
    return body


def _request(url: str, token: str, method: str, path: str, timeout: float = TIMEOUT) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        reply = connection.getresponse()
        body = json.loads(reply.read())
        return reply.status, body if isinstance(body, dict) else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExecutorError(f"The API at {url} does not answer: {error}") from error
    finally:
        connection.close()
