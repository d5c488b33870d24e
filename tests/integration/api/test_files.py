"""Files from outside: upload, download, and what a browser is told about them."""

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
def storing(lonely_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The application with a folder for files. Of this machine it may reach 127.0.0.1, not `localhost`."""
    folder: Path = tmp_path_factory.mktemp("files")
    config = with_settings(lonely_server.config, files_dir=folder, ssrf_allow="127.0.0.1")
    with serving(config) as url:
        yield Server(url, lonely_server.database, config)


@pytest.fixture
def client(storing: Server) -> Iterator[Client]:
    client = storing.client()
    yield client
    client.http.close()


@pytest.fixture
def agent(client: Client) -> str:
    return client.agent(ECHO)


def upload(client: Client, agent: str, *sent: tuple[str, bytes], **params: str) -> httpx2.Response:
    parts = [("file", (name, data)) for name, data in sent]
    return client.http.post(f"/api/v1/agents/{agent}/upload", params=params, files=parts)


def stored(client: Client, agent: str, data: bytes = b"bytes", name: str = "a.txt") -> str:
    return upload(client, agent, (name, data)).json()["data"]["id"]


def test_an_upload_says_what_a_canvas_wants_to_know(client: Client, agent: str) -> None:
    reply = upload(client, agent, ("C:\\a\\Übersicht.PDF", b"%PDF-1"))

    assert reply.json()["code"] == 0
    told = reply.json()["data"]
    assert told.pop("created_at") > 1_700_000_000
    assert len(told["id"]) == 32
    assert told == {
        "id": told["id"],
        "name": "Übersicht.PDF",
        "size": 6,
        "extension": "pdf",
        "mime_type": "application/pdf",
        "created_by": client.tenant_id.hex,
        "preview_url": None,
    }


def test_several_files_come_back_as_a_list(client: Client, agent: str) -> None:
    told = upload(client, agent, ("a.txt", b"1"), ("b", b"22")).json()["data"]

    assert [(file["name"], file["size"], file["extension"]) for file in told] == [("a.txt", 1, "txt"), ("b", 2, "")]


def test_what_was_uploaded_comes_back_as_it_was(client: Client, agent: str) -> None:
    data = bytes(range(256)) * 20_000
    reply = client.http.get("/api/v1/agents/download", params={"id": stored(client, agent, data, "a b.html")})

    assert reply.content == data
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == 'attachment; filename="a_b.html"'
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_share_link_may_upload_and_fetch_what_runs_produce(client: Client, storing: Server) -> None:
    agent = client.agent(ECHO)
    with storing.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "share", "beta", canvas_id=UUID(agent))
    guest = storing.client_of(client.tenant_id, token)
    file_id = stored(guest, agent)

    assert guest.http.get(f"/api/v1/agents/attachments/{file_id}/download").content == b"bytes"
    assert guest.http.get(f"/api/v1/agents/attachments/{file_id}/preview").status_code == 401
    assert guest.http.get("/api/v1/agents/download", params={"id": file_id}).status_code == 401
    guest.http.close()


@pytest.mark.parametrize("path", ["/v1/document/download/{}", "/api/v1/document/download/{}"])
def test_old_paths_lead_to_the_download(client: Client, agent: str, path: str) -> None:
    reply = client.http.get(path.format(stored(client, agent)), params={"ext": "pdf", "filename": "r.pdf"})

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
def test_no_page_is_ever_shown_inline(
    client: Client, agent: str, route: str, params: dict[str, str], kind: str, disposition: str
) -> None:
    reply = client.http.get(f"/api/v1/agents/attachments/{stored(client, agent)}/{route}", params=params)

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
def test_what_a_program_left_is_where_its_links_point(
    client: Client, storing: Server, name: str, kind: str, disposition: str
) -> None:
    run_id = new_id()
    link = f"/api/v1/documents/artifact/{produced(client, storing, run_id, name, kind)}?session_id={run_id.hex}"

    reply = client.http.get(link)

    assert (reply.status_code, reply.content) == (200, b"bytes")
    assert (reply.headers["content-type"], reply.headers["content-disposition"]) == (kind, disposition)
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_what_a_program_left_is_for_its_tenant_and_by_its_run(client: Client, storing: Server) -> None:
    other = storing.client()
    run_id, theirs = new_id(), new_id()
    link = f"/api/v1/documents/artifact/{produced(client, storing, run_id, 'a.png', 'image/png')}"

    assert client.http.get(link).content == b"bytes"
    assert httpx2.get(f"{storing.url}{link}").status_code == 401
    for asking, session in ((other, run_id.hex), (client, theirs.hex), (client, "nonsense")):
        reply = asking.http.get(link, params={"session_id": session})
        assert reply.json() == {"code": 102, "message": "document not found", "data": None}
    assert client.http.get("/api/v1/documents/artifact/nonsense.png").json()["code"] == 102
    other.http.close()


def produced(client: Client, storing: Server, run_id: UUID, name: str, kind: str) -> str:
    """A file that a run has produced, as links name it."""
    blobs, file_id = LocalBlobs(storing.config.settings.files_dir), new_id()
    with storing.database.transaction() as tx:
        kept = uploads.store_content(blobs, name, kind.partition(";")[0], b"bytes")
        uploads.put_row(tx, client.tenant_id, file_id, kept, run_id=run_id)
    return f"{file_id.hex}.{name.rpartition('.')[2]}"


@pytest.mark.parametrize(
    "path", ["agents/download?id={id}&", "agents/attachments/{id}/download?", "document/download/{id}?"]
)
def test_a_download_that_names_the_creator_gives_files_of_that_creator_alone(
    client: Client, agent: str, path: str
) -> None:
    upload = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"Hello")}).json()["data"]
    url = f"/api/v1/{path.format(id=upload['id'])}"

    for creator in (upload["created_by"], str(client.tenant_id), ""):
        assert client.http.get(f"{url}created_by={creator}").content == b"Hello"
    other = client.http.get(f"{url}created_by={new_id().hex}")

    assert other.json() == {"code": 102, "message": "document not found", "data": None}


def test_files_of_others_and_files_that_are_gone_are_not_there(
    client: Client, storing: Server, agent: str, tmp_path: Path
) -> None:
    other = storing.client()
    theirs = stored(other, other.agent(ECHO))
    other.http.close()
    with storing.database.transaction() as tx:
        gone = uploads.register(
            tx, client.tenant_id, uploads.store_content(LocalBlobs(tmp_path), "gone.txt", "text/plain", b"elsewhere")
        ).id.hex

    for file_id in (theirs, gone, "0" * 32, "nonsense", ""):
        reply = client.http.get("/api/v1/agents/download", params={"id": file_id})
        assert reply.json() == {"code": 102, "message": "document not found", "data": None}
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


def test_an_upload_ends_where_it_is_too_large(client: Client, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.uploads.MAX_UPLOAD_BYTES", 1000)
    url, kind = f"/api/v1/agents/{agent}/upload", {"Content-Type": "multipart/form-data; boundary=x"}
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    announced = client.http.post(url, content=head + b"x" * 2000, headers=kind)
    endless = client.http.post(url, content=iter([head, *([b"x" * 500] * 4)]), headers=kind)

    for reply in (announced, endless):
        message = "request body too large: more than the 1000 bytes that an upload may have."
        assert (reply.status_code, reply.json()) == (413, {"code": 101, "message": message, "data": None})


def test_what_lies_at_an_address_is_stored_in_place_of_the_one_file(
    client: Client, agent: str, httpserver: HTTPServer
) -> None:
    httpserver.expect_request("/first").respond_with_data(status=302, headers={"Location": "/report.csv"})
    httpserver.expect_request("/report.csv").respond_with_data(b"a,b", content_type="text/csv")
    address = f"http://127.0.0.1:{httpserver.port}/first"

    told = upload(client, agent, ("a.txt", b"x"), url=address).json()["data"]

    assert (told["name"], told["mime_type"], told["size"]) == ("report.csv", "text/csv", 3)
    assert client.http.get("/api/v1/agents/download", params={"id": told["id"]}).content == b"a,b"
    several = upload(client, agent, ("a.txt", b"x"), ("b.txt", b"y"), url=address).json()["data"]
    assert [file["name"] for file in several] == ["a.txt", "b.txt"]


def test_an_address_that_leads_inside_is_refused_at_every_hop(
    client: Client, agent: str, httpserver: HTTPServer
) -> None:
    inside = f"http://localhost:{httpserver.port}/secret"
    httpserver.expect_request("/hop").respond_with_data(status=302, headers={"Location": inside})

    for address in (inside, f"http://127.0.0.1:{httpserver.port}/hop", "file:///etc/passwd", "nonsense"):
        reply = upload(client, agent, ("a.txt", b"x"), url=address).json()
        assert reply["code"] == 102, reply
        assert reply["data"] is None
