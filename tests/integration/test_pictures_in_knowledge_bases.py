"""Pictures and scans in knowledge bases: read by a model that sees, and refused with a remedy where there is none."""

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
from tests.integration.knowledge_bases import EMBEDDING, EYES, Shop, Vendor
from worker.services.models import CachedTenantModels


@pytest.fixture
def shop(database: Database, served: Vendor, tmp_path: Path) -> Shop:
    """A tenant without a model that sees."""
    return a_shop(database, served, tmp_path)


@pytest.fixture
def seeing(database: Database, served: Vendor, tmp_path: Path) -> Shop:
    """A tenant with one."""
    return a_shop(database, served, tmp_path, eyes=True)


def a_shop(database: Database, served: Vendor, folder: Path, *, eyes: bool = False, **more: AccountModel) -> Shop:
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, f"tenant {new_id()}")
    models = {**served.account.models, **({"eyes": EYES} if eyes else {}), **more}
    return Shop(database, tenant_id, folder, [replace(served.account, models=models)])


def picture(text: str = "Refunds take five days.", size: tuple[int, int] = (400, 100)) -> Image.Image:
    made = Image.new("RGB", size, "white")
    ImageDraw.Draw(made).text((10, 40), text, fill="black")
    return made


def written(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def scan(*texts: str) -> bytes:
    """A PDF whose pages are pictures."""
    pages = [picture(text) for text in texts]
    return written(pages[0], "PDF", save_all=True, append_images=pages[1:])


RETRY = text("update knowledge_documents set status = 'pending', tries = 0, lease_until = null where id = :id")


def begin(shop: Shop, base_id: UUID, document_id: UUID) -> None:
    with shop.database.transaction() as tx:
        documents.start_processing(tx, shop.tenant_id, base_id, [document_id])


def shown(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
def test_picture_without_a_vision_model_fails_at_once_with_a_remedy(shop: Shop, kind: str) -> None:
    added = shop.add(shop.base(), f"photo.{kind.lower()}", written(picture(), kind))

    assert shop.read() == 1

    document = shop.document(added)
    assert (document.status, document.chunks) == ("failed", 0)
    assert document.error == (
        f'The file "photo.{kind.lower()}" (image) has no text, and no model of the kind vision or ocr is there to read '
        "it. Add a model that sees (easel models add VENDOR --model NAME --kind vision) and read the document again, "
        "or upload its text."
    )


def test_scan_without_a_vision_model_fails_and_stores_no_chunk(shop: Shop) -> None:
    base = shop.base()
    added = shop.add(base, "scan.pdf", scan("Refunds take five days."))
    shop.add(base, "other.txt", "How to upload images.")

    assert shop.read() == 2

    document = shop.document(added)
    assert document.status == "failed"
    assert 'The file "scan.pdf" (PDF) has no text in it (it may be a scan), and no model' in document.error
    assert "--kind vision" in document.error
    assert shop.names("upload the pages of this PDF as images, it may be a scan") == ["other.txt"]


def test_picture_is_read_by_the_tenants_vision_model(seeing: Shop, served: Vendor) -> None:
    added = seeing.add(seeing.base(), "photo.png", written(picture(), "PNG"))
    served.answers = ["# Refunds\n\nRefunds take five days."]

    seeing.read()

    document = seeing.document(added)
    assert (document.status, document.chunks, document.expected) == ("done", 1, 1)
    assert seeing.names("How long does a refund take?") == ["photo.png"]
    (asked,) = served.chatted
    assert asked["model"] == "eyes"
    (image,) = [part for part in asked["messages"][-1]["content"] if part["type"] == "image_url"]
    assert shown(image["image_url"]["url"]).size == (400, 100)


def test_a_scan_is_read_page_by_page_and_blank_pages_have_no_chunk(seeing: Shop, served: Vendor) -> None:
    added = seeing.add(seeing.base(model=EMBEDDING), "scan.pdf", scan("one", "", "three"))
    served.answers = ["Refunds take five days.", "BLANK", "Holidays are thirty days."]

    seeing.read()

    document = seeing.document(added)
    assert (document.status, document.chunks, document.expected) == ("done", 2, 2)
    assert served.embedded == [["Refunds take five days."], ["Holidays are thirty days."]]
    assert seeing.names("How many holidays?", limit=1) == ["scan.pdf"]


def test_a_model_of_the_kind_ocr_reads_scans_and_one_of_the_kind_vision_pictures(
    database: Database, served: Vendor, tmp_path: Path
) -> None:
    ocr = {"letters": AccountModel(kinds=frozenset({"ocr"}))}
    shop = a_shop(database, served, tmp_path, eyes=True, **ocr)
    shop.models = CachedTenantModels(database, shop.accounts, RequestLimits(), None)  # a worker's own ones
    base = shop.base()
    shop.add(base, "scan.pdf", scan("one"))
    shop.add(base, "photo.png", written(picture(), "PNG"))
    served.answers = ["Letters.", "A photograph."]

    assert shop.read() == 2

    assert [asked["model"] for asked in served.chatted] == ["letters", "eyes"]


def test_read_page_is_not_read_again_by_the_next_attempt(seeing: Shop, served: Vendor) -> None:
    added = seeing.add(seeing.base(), "scan.pdf", scan("one", "two", "three"))
    served.answers = ["First page.", "Second page."]  # and then a refusal, which is no use to repeat
    seeing.read()
    refused = seeing.document(added)
    with seeing.database.transaction() as tx:
        tx.execute(RETRY, id=added.id)

    served.answers = ["Third page."]
    seeing.read()

    assert refused.status == "failed"
    assert 'did not read page 3 of 3 of "scan.pdf"' in refused.error
    document = seeing.document(added)
    assert (document.status, document.chunks) == ("done", 3)
    assert len(served.chatted) == 4


def test_scan_that_is_parsed_again_starts_at_its_first_page(seeing: Shop, served: Vendor) -> None:
    base = seeing.base()
    added = seeing.add(base, "scan.pdf", scan("one", "two"))
    served.answers = ["a", "b"]
    seeing.read()

    served.answers = ["c", "d"]
    begin(seeing, base, added.id)
    seeing.read()

    assert seeing.document(added).chunks == 2
    assert len(served.chatted) == 4


def test_a_fax_of_several_pages_is_read_whole(seeing: Shop, served: Vendor) -> None:
    pages = [picture("one").convert("1"), picture("two").convert("1")]
    data = written(pages[0], "TIFF", save_all=True, append_images=pages[1:], compression="group4")
    added = seeing.add(seeing.base(), "fax.tiff", data)
    served.answers = ["One.", "Two."]

    seeing.read()

    assert (seeing.document(added).status, seeing.document(added).chunks) == ("done", 2)


def test_a_picture_on_which_nothing_is_found_fails(seeing: Shop, served: Vendor) -> None:
    added = seeing.add(seeing.base(), "white.png", written(picture(""), "PNG"))
    served.answers = ["BLANK"]

    seeing.read()

    document = seeing.document(added)
    assert document.status == "failed"
    assert "found nothing on it. Upload its text." in document.error


def test_a_scan_of_too_many_pages_says_how_many_may_be(
    seeing: Shop, served: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_transcripts, "MAX_PAGES", 2)
    added = seeing.add(seeing.base(), "scan.pdf", scan("one", "two", "three"))

    seeing.read()

    assert "is a scan of 3 pages, and a model reads 2 pages of a file at most. Split it" in seeing.document(added).error
    assert not served.chatted


@pytest.mark.parametrize(("name", "data"), [
    ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>"), ("a.png", b"\x89PNG\r\n\x1a\nrubbish"),
])  # fmt: skip
def test_unreadable_image_fails_at_once(seeing: Shop, name: str, data: bytes) -> None:
    added = seeing.add(seeing.base(), name, data)

    assert seeing.read() == 1

    document = seeing.document(added)
    assert document.status == "failed"
    assert document.error.endswith("Save it as PNG or JPEG, and upload that.")


def test_a_picture_that_unpacks_to_far_too_many_pixels_fails(seeing: Shop) -> None:
    bomb = written(Image.new("1", (30_000, 30_000)), "PNG")
    added = seeing.add(seeing.base(), "bomb.png", bomb)

    assert seeing.read() == 1

    document = seeing.document(added)
    assert document.status == "failed"
    assert "has more pixels than can be read. Split it" in document.error
