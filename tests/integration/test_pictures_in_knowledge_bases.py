"""Pictures and scans in knowledge bases: transcribed by a vision model, and refused with a remedy without one."""

import base64
import io
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from PIL import Image, ImageDraw
from sqlalchemy import text

from knowledge.bases import page_transcripts
from providers.models.chat.catalogue import RequestLimits
from providers.models.vendors.accounts import AccountModel
from store.db.database import Database
from store.knowledge import documents
from store.primitives.ids import new_id
from store.tenants import tenants
from tests.integration.knowledge_bases import EMBEDDING, VISION, KnowledgeTenant, Vendor
from worker.services.models import CachedTenantModels


@pytest.fixture
def tenant(database: Database, model_vendor: Vendor, tmp_path: Path) -> KnowledgeTenant:
    """Return a tenant without a vision model."""
    return create_tenant(database, model_vendor, tmp_path)


@pytest.fixture
def vision_tenant(database: Database, model_vendor: Vendor, tmp_path: Path) -> KnowledgeTenant:
    """Return a tenant with a vision model."""
    return create_tenant(database, model_vendor, tmp_path, has_vision=True)


def create_tenant(
    database: Database, model_vendor: Vendor, folder: Path, *, has_vision: bool = False, **other_models: AccountModel
) -> KnowledgeTenant:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    models = {**model_vendor.account.models, **({"eyes": VISION} if has_vision else {}), **other_models}
    return KnowledgeTenant(database, tenant_id, folder, [replace(model_vendor.account, models=models)])


def picture(text: str = "Refunds take five days.", size: tuple[int, int] = (400, 100)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((10, 40), text, fill="black")
    return image


def encode_image(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def scan(*texts: str) -> bytes:
    """Return a PDF whose pages are pictures."""
    pages = [picture(text) for text in texts]
    return encode_image(pages[0], "PDF", save_all=True, append_images=pages[1:])


RETRY = text("update knowledge_documents set status = 'pending', tries = 0, lease_until = null where id = :id")


def start_processing(tenant: KnowledgeTenant, base_id: UUID, document_id: UUID) -> None:
    with tenant.database.transaction() as tx:
        documents.start_processing(tx, tenant.tenant_id, base_id, [document_id])


def decode_image(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
def test_picture_without_a_vision_model_fails_at_once_with_a_remedy(tenant: KnowledgeTenant, kind: str) -> None:
    added = tenant.add(tenant.base(), f"photo.{kind.lower()}", encode_image(picture(), kind))

    assert tenant.read() == 1

    document = tenant.document(added)
    assert (document.status, document.chunks) == ("failed", 0)
    assert document.error == (
        f'The file "photo.{kind.lower()}" (image) has no text, and no model of the kind vision or ocr is there to read '
        "it. Add a model that sees (easel models add VENDOR --model NAME --kind vision) and read the document again, "
        "or upload its text."
    )


def test_scan_without_a_vision_model_fails_and_stores_no_chunk(tenant: KnowledgeTenant) -> None:
    base = tenant.base()
    added = tenant.add(base, "scan.pdf", scan("Refunds take five days."))
    tenant.add(base, "other.txt", "How to upload images.")

    assert tenant.read() == 2

    document = tenant.document(added)
    assert document.status == "failed"
    assert 'The file "scan.pdf" (PDF) has no text in it (it may be a scan), and no model' in document.error
    assert "--kind vision" in document.error
    assert tenant.names("upload the pages of this PDF as images, it may be a scan") == ["other.txt"]


def test_picture_is_read_by_the_tenants_vision_model(vision_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    added = vision_tenant.add(vision_tenant.base(), "photo.png", encode_image(picture(), "PNG"))
    model_vendor.answers = ["# Refunds\n\nRefunds take five days."]

    vision_tenant.read()

    document = vision_tenant.document(added)
    assert (document.status, document.chunks, document.expected) == ("done", 1, 1)
    assert vision_tenant.names("How long does a refund take?") == ["photo.png"]
    (request,) = model_vendor.chatted
    assert request["model"] == "eyes"
    (image,) = [part for part in request["messages"][-1]["content"] if part["type"] == "image_url"]
    assert decode_image(image["image_url"]["url"]).size == (400, 100)


def test_a_scan_is_read_page_by_page_and_blank_pages_have_no_chunk(
    vision_tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    added = vision_tenant.add(vision_tenant.base(model=EMBEDDING), "scan.pdf", scan("one", "", "three"))
    model_vendor.answers = ["Refunds take five days.", "BLANK", "Holidays are thirty days."]

    vision_tenant.read()

    document = vision_tenant.document(added)
    assert (document.status, document.chunks, document.expected) == ("done", 2, 2)
    assert model_vendor.embedded == [["Refunds take five days."], ["Holidays are thirty days."]]
    assert vision_tenant.names("How many holidays?", limit=1) == ["scan.pdf"]


def test_ocr_model_reads_scans_and_vision_model_reads_pictures(
    database: Database, model_vendor: Vendor, tmp_path: Path
) -> None:
    ocr = {"letters": AccountModel(kinds=frozenset({"ocr"}))}
    tenant = create_tenant(database, model_vendor, tmp_path, has_vision=True, **ocr)
    tenant.models = CachedTenantModels(database, tenant.accounts, RequestLimits(), None)  # as in a worker
    base = tenant.base()
    tenant.add(base, "scan.pdf", scan("one"))
    tenant.add(base, "photo.png", encode_image(picture(), "PNG"))
    model_vendor.answers = ["Letters.", "A photograph."]

    assert tenant.read() == 2

    assert [request["model"] for request in model_vendor.chatted] == ["letters", "eyes"]


def test_read_page_is_not_read_again_by_the_next_attempt(vision_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    added = vision_tenant.add(vision_tenant.base(), "scan.pdf", scan("one", "two", "three"))
    model_vendor.answers = ["First page.", "Second page."]  # and an error for the third, which is not retried
    vision_tenant.read()
    failed = vision_tenant.document(added)
    with vision_tenant.database.transaction() as tx:
        tx.execute(RETRY, id=added.id)

    model_vendor.answers = ["Third page."]
    vision_tenant.read()

    assert failed.status == "failed"
    assert 'did not read page 3 of 3 of "scan.pdf"' in failed.error
    document = vision_tenant.document(added)
    assert (document.status, document.chunks) == ("done", 3)
    assert len(model_vendor.chatted) == 4


def test_scan_that_is_parsed_again_starts_at_its_first_page(
    vision_tenant: KnowledgeTenant, model_vendor: Vendor
) -> None:
    base = vision_tenant.base()
    added = vision_tenant.add(base, "scan.pdf", scan("one", "two"))
    model_vendor.answers = ["a", "b"]
    vision_tenant.read()

    model_vendor.answers = ["c", "d"]
    start_processing(vision_tenant, base, added.id)
    vision_tenant.read()

    assert vision_tenant.document(added).chunks == 2
    assert len(model_vendor.chatted) == 4


def test_every_page_of_a_multi_page_tiff_is_read(vision_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    pages = [picture("one").convert("1"), picture("two").convert("1")]
    data = encode_image(pages[0], "TIFF", save_all=True, append_images=pages[1:], compression="group4")
    added = vision_tenant.add(vision_tenant.base(), "fax.tiff", data)
    model_vendor.answers = ["One.", "Two."]

    vision_tenant.read()

    assert (vision_tenant.document(added).status, vision_tenant.document(added).chunks) == ("done", 2)


def test_picture_without_readable_content_fails(vision_tenant: KnowledgeTenant, model_vendor: Vendor) -> None:
    added = vision_tenant.add(vision_tenant.base(), "white.png", encode_image(picture(""), "PNG"))
    model_vendor.answers = ["BLANK"]

    vision_tenant.read()

    document = vision_tenant.document(added)
    assert document.status == "failed"
    assert "found nothing on it. Upload its text." in document.error


def test_error_for_a_scan_with_too_many_pages_names_the_limit(
    vision_tenant: KnowledgeTenant, model_vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_transcripts, "MAX_PAGES", 2)
    added = vision_tenant.add(vision_tenant.base(), "scan.pdf", scan("one", "two", "three"))

    vision_tenant.read()

    assert (
        "is a scan of 3 pages, and a model reads 2 pages of a file at most. Split it"
        in vision_tenant.document(added).error
    )
    assert not model_vendor.chatted


@pytest.mark.parametrize(("name", "data"), [
    ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"), ("a.png", b"\x89PNG\r\n\x1a\nrubbish"),
])  # fmt: skip
def test_unreadable_image_fails_at_once(vision_tenant: KnowledgeTenant, name: str, data: bytes) -> None:
    added = vision_tenant.add(vision_tenant.base(), name, data)

    assert vision_tenant.read() == 1

    document = vision_tenant.document(added)
    assert document.status == "failed"
    assert document.error.endswith("Save it as PNG or JPEG, and upload that.")


def test_picture_with_too_many_pixels_fails(vision_tenant: KnowledgeTenant) -> None:
    bomb = encode_image(Image.new("1", (30_000, 30_000)), "PNG")
    added = vision_tenant.add(vision_tenant.base(), "bomb.png", bomb)

    assert vision_tenant.read() == 1

    document = vision_tenant.document(added)
    assert document.status == "failed"
    assert "has more pixels than can be read. Split it" in document.error
