"""File upload and download, and the response headers for browsers."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from pytest_httpserver import HTTPServer

from store.files.blobs import LocalBlobs
from store.primitives.ids import new_id
from store.tenants import tenants, uploads
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import ECHO, Client


@pytest.fixture(scope="module")
def server_with_files(workerless_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with a folder for files. It may connect to 127.0.0.1, and not to `localhost`."""
    folder: Path = tmp_path_factory.mktemp("files")
    config = with_settings(workerless_server.config, files_dir=folder, ssrf_allow="127.0.0.1")
    with serving(config) as url:
        yield Server(url, workerless_server.database, config)


@pytest.fixture
def client(server_with_files: Server) -> Iterator[Client]:
    client = server_with_files.client()
    yield client
    client.http.close()


@pytest.fixture
def agent(client: Client) -> str:
    return client.agent(ECHO)


def upload(client: Client, agent: str, *sent: tuple[str, bytes], **params: str) -> httpx2.Response:
    parts = [("file", (name, data)) for name, data in sent]
    return client.http.post(f"/api/v1/agents/{agent}/upload", params=params, files=parts)


def upload_file(client: Client, agent: str, data: bytes = b"bytes", name: str = "a.txt") -> str:
    return upload(client, agent, (name, data)).json()["data"]["id"]


def test_upload_returns_the_id_name_size_and_type_of_the_file(client: Client, agent: str) -> None:
    reply = upload(client, agent, ("C:\\a\\Übersicht.PDF", b"%PDF-1"))

    assert reply.json()["code"] == 0
    file = reply.json()["data"]
    assert file.pop("created_at") > 1_700_000_000
    assert len(file["id"]) == 32
    assert file == {
        "id": file["id"],
        "name": "Übersicht.PDF",
        "size": 6,
        "extension": "pdf",
        "mime_type": "application/pdf",
        "created_by": client.tenant_id.hex,
        "preview_url": None,
    }


def test_upload_of_several_files_returns_a_list(client: Client, agent: str) -> None:
    files = upload(client, agent, ("a.txt", b"1"), ("b", b"22")).json()["data"]

    assert [(file["name"], file["size"], file["extension"]) for file in files] == [("a.txt", 1, "txt"), ("b", 2, "")]


def test_download_returns_the_uploaded_bytes_as_an_attachment(client: Client, agent: str) -> None:
    data = bytes(range(256)) * 20_000
    reply = client.http.get("/api/v1/agents/download", params={"id": upload_file(client, agent, data, "a b.html")})

    assert reply.content == data
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == 'attachment; filename="a_b.html"'
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_share_link_can_upload_and_download_attachments_only(client: Client, server_with_files: Server) -> None:
    agent = client.agent(ECHO)
    with server_with_files.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "share", "beta", canvas_id=UUID(agent))
    guest = server_with_files.client_of(client.tenant_id, token)
    file_id = upload_file(guest, agent)

    assert guest.http.get(f"/api/v1/agents/attachments/{file_id}/download").content == b"bytes"
    assert guest.http.get(f"/api/v1/agents/attachments/{file_id}/preview").status_code == 401
    assert guest.http.get("/api/v1/agents/download", params={"id": file_id}).status_code == 401
    guest.http.close()


@pytest.mark.parametrize("path", ["/v1/document/download/{}", "/api/v1/document/download/{}"])
def test_old_download_paths_return_the_file(client: Client, agent: str, path: str) -> None:
    reply = client.http.get(path.format(upload_file(client, agent)), params={"ext": "pdf", "filename": "r.pdf"})

    assert reply.content == b"bytes"
    assert reply.headers["content-type"] == "application/pdf"
    assert reply.headers["content-disposition"] == 'attachment; filename="r.pdf"'


@pytest.mark.parametrize(
    ("route", "params", "kind", "disposition"),
    [
        ("download", {}, "application/octet-stream", 'attachment; filename="a.txt"'),
        ("download", {"ext": "png", "disposition": "inline"}, "image/png", "inline"),
        ("preview", {"mime_type": "application/pdf"}, "application/pdf", "inline"),
        ("preview", {"mime_type": "text/html"}, "text/html; charset=utf-8", 'attachment; filename="a.txt"'),
        ("preview", {"ext": "svg"}, "image/svg+xml", 'attachment; filename="a.txt"'),
        ("preview", {"ext": "js"}, "text/javascript; charset=utf-8", 'attachment; filename="a.txt"'),
        ("preview", {"mime_type": "text/javascript"}, "text/javascript; charset=utf-8", 'attachment; filename="a.txt"'),
        ("preview", {"mime_type": "application/ecmascript"}, "application/ecmascript", 'attachment; filename="a.txt"'),
        (
            "preview",
            {"ext": "mjs", "mime_type": "text/plain"},
            "text/plain; charset=utf-8",
            'attachment; filename="a.txt"',
        ),
        ("preview", {"mime_type": "text/xsl"}, "text/xsl; charset=utf-8", 'attachment; filename="a.txt"'),
        (
            "download",
            {"ext": "html", "mime_type": "text/plain", "disposition": "inline", "filename": 'x"\r\ny.html'},
            "text/plain; charset=utf-8",
            'attachment; filename="x___y.html"',
        ),
        ("preview", {"mime_type": "image/png\r\nX-Evil: 1"}, "application/octet-stream", "inline"),
    ],
)
def test_html_and_scripts_are_never_served_inline(
    client: Client, agent: str, route: str, params: dict[str, str], kind: str, disposition: str
) -> None:
    reply = client.http.get(f"/api/v1/agents/attachments/{upload_file(client, agent)}/{route}", params=params)

    assert reply.status_code == 200
    assert reply.headers["content-type"] == kind
    assert reply.headers["content-disposition"] == disposition
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in reply.headers["content-security-policy"]
    assert "x-evil" not in reply.headers


@pytest.mark.parametrize(
    ("name", "kind", "disposition"),
    [
        ("chart.png", "image/png", "inline"),
        ("photo.jpg", "image/jpeg", "inline"),
        ("chart.svg", "image/svg+xml", 'attachment; filename="chart.svg"'),
        ("page.html", "text/html; charset=utf-8", 'attachment; filename="page.html"'),
        ("report.pdf", "application/pdf", 'attachment; filename="report.pdf"'),
    ],
)
def test_file_produced_by_a_run_is_served_at_its_artifact_link(
    client: Client, server_with_files: Server, name: str, kind: str, disposition: str
) -> None:
    run_id = new_id()
    file_name = store_produced_file(client, server_with_files, run_id, name, kind)
    link = f"/api/v1/documents/artifact/{file_name}?session_id={run_id.hex}"

    reply = client.http.get(link)

    assert (reply.status_code, reply.content) == (200, b"bytes")
    assert (reply.headers["content-type"], reply.headers["content-disposition"]) == (kind, disposition)
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_file_produced_by_a_run_is_served_only_to_its_tenant_and_for_its_run(
    client: Client, server_with_files: Server
) -> None:
    other = server_with_files.client()
    run_id, theirs = new_id(), new_id()
    link = f"/api/v1/documents/artifact/{store_produced_file(client, server_with_files, run_id, 'a.png', 'image/png')}"

    assert client.http.get(link).content == b"bytes"
    assert httpx2.get(f"{server_with_files.url}{link}").status_code == 401
    for caller, session in ((other, run_id.hex), (client, theirs.hex), (client, "nonsense")):
        reply = caller.http.get(link, params={"session_id": session})
        assert reply.json() == {"code": 102, "message": "document not found"}
    assert client.http.get("/api/v1/documents/artifact/nonsense.png").json()["code"] == 102
    other.http.close()


def store_produced_file(client: Client, server_with_files: Server, run_id: UUID, name: str, kind: str) -> str:
    """Store a file as the output of a run; return its name in links."""
    blobs, file_id = LocalBlobs(server_with_files.config.settings.files_dir), new_id()
    with server_with_files.database.transaction() as tx:
        content = uploads.store_content(blobs, name, kind.partition(";")[0], b"bytes")
        uploads.put_row(tx, client.tenant_id, file_id, content, run_id=run_id)
    return f"{file_id.hex}.{name.rpartition('.')[2]}"


@pytest.mark.parametrize(
    "path", ["agents/download?id={id}&", "agents/attachments/{id}/download?", "document/download/{id}?"]
)
def test_download_with_created_by_serves_only_files_of_that_creator(client: Client, agent: str, path: str) -> None:
    upload = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"Hello")}).json()["data"]
    url = f"/api/v1/{path.format(id=upload['id'])}"

    for creator in (upload["created_by"], str(client.tenant_id), ""):
        assert client.http.get(f"{url}created_by={creator}").content == b"Hello"
    other = client.http.get(f"{url}created_by={new_id().hex}")

    assert other.json() == {"code": 102, "message": "document not found"}


def test_files_of_other_tenants_and_missing_files_are_not_found(
    client: Client, server_with_files: Server, agent: str, tmp_path: Path
) -> None:
    other = server_with_files.client()
    theirs = upload_file(other, other.agent(ECHO))
    other.http.close()
    with server_with_files.database.transaction() as tx:
        missing = uploads.register(
            tx, client.tenant_id, uploads.store_content(LocalBlobs(tmp_path), "gone.txt", "text/plain", b"elsewhere")
        ).id.hex

    for file_id in (theirs, missing, "0" * 32, "nonsense", ""):
        reply = client.http.get("/api/v1/agents/download", params={"id": file_id})
        assert reply.json() == {"code": 102, "message": "document not found"}
    for route in ("download", "preview"):
        reply = client.http.get(f"/api/v1/agents/attachments/{theirs}/{route}")
        assert reply.json()["message"] == "document not found"


def test_an_upload_needs_a_file_and_an_agent(client: Client, agent: str) -> None:
    url = f"/api/v1/agents/{agent}/upload"

    missing = [
        client.http.post(url),
        client.http.post(url, json={"file": "x"}),
        client.http.post(url, files={"other": ("a.txt", b"x")}),
        client.http.post(url, files={"file": (None, b"a text field")}),
    ]

    for reply in missing:
        assert reply.json() == {"code": 101, "message": "`file` field is required.", "data": None}
    assert upload(client, "0" * 32, ("a.txt", b"x")).json()["code"] == 103
    broken = client.http.post(
        url, content=b"--x\r\nnonsense", headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert broken.json()["code"] == 101


def test_upload_that_is_too_large_is_refused(client: Client, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.requests.uploads.MAX_UPLOAD_BYTES", 1000)
    url, kind = f"/api/v1/agents/{agent}/upload", {"Content-Type": "multipart/form-data; boundary=x"}
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    announced = client.http.post(url, content=head + b"x" * 2000, headers=kind)
    endless = client.http.post(url, content=iter([head, *([b"x" * 500] * 4)]), headers=kind)

    for reply in (announced, endless):
        message = "request body too large: more than the 1000 bytes that an upload may have."
        assert (reply.status_code, reply.json()) == (413, {"code": 101, "message": message, "data": None})


def test_file_at_a_url_is_stored_instead_of_a_single_uploaded_file(
    client: Client, agent: str, httpserver: HTTPServer
) -> None:
    httpserver.expect_request("/first").respond_with_data(status=302, headers={"Location": "/report.csv"})
    httpserver.expect_request("/report.csv").respond_with_data(b"a,b", content_type="text/csv")
    address = f"http://127.0.0.1:{httpserver.port}/first"

    fetched = upload(client, agent, ("a.txt", b"x"), url=address).json()["data"]

    assert (fetched["name"], fetched["mime_type"], fetched["size"]) == ("report.csv", "text/csv", 3)
    assert client.http.get("/api/v1/agents/download", params={"id": fetched["id"]}).content == b"a,b"
    several = upload(client, agent, ("a.txt", b"x"), ("b.txt", b"y"), url=address).json()["data"]
    assert [file["name"] for file in several] == ["a.txt", "b.txt"]


def test_url_to_an_internal_address_is_refused_at_every_redirect(
    client: Client, agent: str, httpserver: HTTPServer
) -> None:
    internal = f"http://localhost:{httpserver.port}/secret"
    httpserver.expect_request("/hop").respond_with_data(status=302, headers={"Location": internal})

    for address in (internal, f"http://127.0.0.1:{httpserver.port}/hop", "file:///etc/passwd", "nonsense"):
        reply = upload(client, agent, ("a.txt", b"x"), url=address).json()
        assert reply["code"] == 102, reply
        assert set(reply) == {"code", "message"}
