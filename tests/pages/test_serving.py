"""The documents and files of the web pages over HTTP, without a browser."""

import gzip
import http.client
import re
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client import REGISTRY

from tests.integration.api.conftest import NO_TLS, Server, start_server, with_settings
from tests.pages.conftest import Deployment

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGES = (
    "/",
    "/runs",
    "/runs/0123",
    "/open",
    "/agents/0123/edit",
    "/compare/a/b",
    "/login",
    "/s",
    "/settings",
    "/chat/0123",
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'self'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types default"
)


@pytest.fixture
def http_client(deployment: Deployment) -> httpx2.Client:
    """A client without a token."""
    return client_of(deployment.server)


def client_of(server: Server) -> httpx2.Client:
    return httpx2.Client(base_url=server.url, verify=NO_TLS, timeout=20)


def entry_script(client: httpx2.Client) -> str:
    found = re.search(r'src="\./(assets/[^"]+\.js)"', client.get("/open", headers=HTML).text)
    assert found
    return f"/ui/{found[1]}"


@pytest.mark.parametrize("path", PAGES)
def test_page_address_gives_the_document_to_a_browser_only(http_client: httpx2.Client, path: str):  # T004
    document = http_client.get(path, headers=HTML)
    machine = http_client.get(path, headers={"Accept": "application/json"})

    assert (document.status_code, document.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert '<base href="/ui/" />' in document.text
    assert "<script>" not in document.text
    assert machine.status_code == 404
    assert machine.json()["message"] == f"Not Found: {path}"


def test_document_has_the_headers_of_the_policy(http_client: httpx2.Client):  # T004, T007
    headers = http_client.get("/open", headers=HTML).headers

    assert headers["content-security-policy"] == POLICY
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["permissions-policy"] == "camera=(), microphone=(), geolocation=()"


def test_entry_script_is_kept_for_ever_and_compressed(http_client: httpx2.Client):  # T005
    path = entry_script(http_client)
    plain = http_client.get(path, headers={"Accept-Encoding": "identity"})
    with http_client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
        raw = b"".join(packed.iter_raw())
    known = http_client.get(path, headers={"If-None-Match": plain.headers["etag"]})

    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert packed.headers["content-encoding"] == "gzip"
    assert len(raw) < len(plain.content) / 2
    assert gzip.decompress(raw) == plain.content
    assert (known.status_code, known.content) == (304, b"")
    assert plain.headers["vary"] == "Accept-Encoding"


def test_start_script_is_never_kept(http_client: httpx2.Client):  # T007
    assert http_client.get("/ui/start.js").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/assets/nothing-00000000.js",
        "/ui/../settings.py",
        "/ui/%2e%2e/settings.py",
        "/ui/..%2fsettings.py",
        "/ui/assets/../../../settings.py",
        "/ui//start.js",
        "/ui/.vite/manifest.json",
        "/ui/index.html",
        "/ui/",
        "/ui/start.js%00",
        "/ui/%00",
    ],
)
def test_file_of_no_build_is_a_404_that_is_not_html(deployment: Deployment, path: str):  # T006
    address = urlsplit(deployment.server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
    connection.request("GET", path, headers=HTML)  # as it is: clients of a higher level shorten `..`
    reply = connection.getresponse()

    assert reply.status == 404
    assert (reply.getheader("content-type") or "").startswith("text/plain")
    connection.close()


def test_chat_is_shown_in_no_frame_unless_origins_are_set(http_client: httpx2.Client):
    headers = http_client.get("/chat/0123", headers=HTML).headers

    assert (headers["content-security-policy"], headers["x-frame-options"]) == (POLICY, "DENY")


OWN_HEADERS = ("date", "content-length", "x-request-id")  # of each reply


def test_chat_alone_is_shown_in_frames_of_the_origins_that_are_set(deployment: Deployment):
    origins = "https://shop.example, http://127.0.0.1:9"
    with start_server(with_settings(deployment.server.config, embed_origins=origins)) as server:
        chat, runs = (client_of(server).get(path, headers=HTML).headers for path in ("/chat/0123", "/runs"))

    assert chat["content-security-policy"] == POLICY.replace(
        "frame-ancestors 'none'", "frame-ancestors https://shop.example http://127.0.0.1:9"
    )
    assert "x-frame-options" not in chat
    assert {name: value for name, value in runs.items() if name not in OWN_HEADERS} == {
        **{name: value for name, value in chat.items() if name not in OWN_HEADERS},
        "content-security-policy": POLICY,
        "x-frame-options": "DENY",
    }


@pytest.mark.parametrize("path", ["/api/nothing", "/v1/x", "/docs", "/redoc", "/unknown", "/runs/a/b"])
def test_other_paths_stay_the_404_of_the_api(http_client: httpx2.Client, path: str):  # T108
    reply = http_client.get(path, headers=HTML)

    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/json"


def test_routes_of_the_api_answer_as_before(http_client: httpx2.Client):  # T108
    assert http_client.get("/healthz", headers=HTML).json()["status"] == "ok"
    assert http_client.get("/metrics", headers=HTML).status_code == 401
    assert http_client.get("/openapi.json", headers=HTML).status_code == 401
    assert http_client.get("/api/v1/runs", headers=HTML).status_code == 401
    assert http_client.post("/mcp", headers=HTML, json={}).status_code == 401


def test_pages_are_not_in_the_openapi_document(deployment: Deployment):
    paths = deployment.producer.client.http.get("/openapi.json").json()["paths"]

    assert "/api/v1/runs" in paths
    assert not {"/", "/open", "/runs", "/ui/{path}"} & paths.keys()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_page_address_answers_no_other_method(http_client: httpx2.Client, method: str):  # T109
    reply = http_client.request(method, "/runs", headers=HTML)

    assert reply.status_code in (404, 405)
    assert "html" not in reply.headers["content-type"]


def test_head_of_a_page_has_no_body(http_client: httpx2.Client):
    reply = http_client.head("/open", headers=HTML)

    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize("removes_path", [False, True])
def test_below_a_path_document_and_files_name_it(server_below_path: Server, removes_path: bool):  # T008
    prefix = "" if removes_path else "/easel"
    client = client_of(server_below_path)

    document = client.get(f"{prefix}/open", headers=HTML)

    assert '<base href="/easel/ui/" />' in document.text
    assert client.get(f"{prefix}/ui/start.js").status_code == 200
    assert client.get(f"{prefix}/healthz").status_code == 200
    assert client.get(f"{prefix}/api/v1/runs").status_code == 401
    assert client.get(f"{prefix}/", headers=HTML).status_code == 200


def test_without_viewer_there_are_no_pages(deployment: Deployment):  # T009
    with start_server(with_settings(deployment.server.config, viewer=False)) as server:
        client = client_of(server)

        paths = "/", "/runs", "/open", "/ui/start.js", "/api/v1/viewer"
        assert [client.get(path, headers=HTML).status_code for path in paths] == [404] * len(paths)
        assert client.get("/healthz").status_code == 200


def test_documents_are_counted_by_page_address(http_client: httpx2.Client):
    def counted() -> float:
        return REGISTRY.get_sample_value("easel_viewer_requests_total", {"page": "/runs/{run_id}"}) or 0.0

    before = counted()

    http_client.get("/runs/0123", headers=HTML)
    http_client.get("/runs/0123", headers={"Accept": "application/json"})

    assert counted() - before == 1
