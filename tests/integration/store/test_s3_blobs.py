"""The S3 file storage, on a server that speaks the protocol."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from canvas.errors import ExecutorError, NotFound, StateError
from store.files.blobs import StorageUnavailable
from store.files.large_values import LargeValues
from store.files.s3_blobs import S3Blobs
from store.files.storage import build_storage
from store.primitives.ids import new_id
from tests.integration.store.s3_server import BUCKET, KEY, REGION, SECRET, Bucket, s3_server

pytest.importorskip("boto3", reason="the extra s3 is not installed")

TWO_HOURS = 7200.0


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        yield server


@pytest.fixture
def blobs(bucket: Bucket) -> S3Blobs:
    return S3Blobs.from_url(f"s3://{BUCKET}/prod", bucket.url)


def test_bytes_are_read_by_the_hash_of_their_content_below_the_prefix(blobs: S3Blobs, bucket: Bucket):
    sha256 = blobs.store(b"quarterly report")

    name = hashlib.sha256(b"quarterly report").hexdigest()
    assert sha256.hex() == name
    assert blobs.get(sha256) == b"quarterly report"
    assert list(bucket.objects) == [f"prod/{name[:2]}/{name}"]


def test_file_is_uploaded_under_the_hash_of_its_content(blobs: S3Blobs):
    data = b"x" * 3_000_000

    sha256, size = blobs.store_file(io.BytesIO(data))

    assert (sha256, size) == (hashlib.sha256(data).digest(), len(data))
    assert blobs.get(sha256) == data


def test_same_content_is_uploaded_again_only_if_the_object_is_old(blobs: S3Blobs, bucket: Bucket):
    for _ in range(3):
        blobs.store(b"logo")
    assert bucket.puts == 1

    bucket.age(next(iter(bucket.objects)), TWO_HOURS)
    blobs.store(b"logo")

    assert bucket.puts == 2


def test_discard_deletes_old_objects_but_not_recent_ones(blobs: S3Blobs, bucket: Bucket):
    young, old = blobs.store(b"young"), blobs.store(b"old")
    bucket.age(f"prod/{old.hex()[:2]}/{old.hex()}", TWO_HOURS)

    assert (blobs.discard(young), blobs.discard(old), blobs.discard(bytes(32))) == (False, True, True)

    assert blobs.get(young) == b"young"
    with pytest.raises(NotFound):
        blobs.get(old)


def test_changed_content_is_refused(blobs: S3Blobs, bucket: Bucket):
    sha256 = blobs.store(b"invoice over 10")
    key = next(iter(bucket.objects))
    bucket.objects[key] = (b"invoice over 99", bucket.objects[key][1])

    with pytest.raises(StateError, match="changed"):
        blobs.get(sha256)


def test_clearing_a_part_deletes_all_its_pages_and_no_other_part(blobs: S3Blobs, bucket: Bucket):
    one, other = blobs.part("one"), blobs.part("other")
    for number in range(8):
        one.part("inner").store(b"%d" % number)
    stored = other.store(b"kept")

    assert blobs.parts() == ["one", "other"]
    assert one.clear() == 8

    assert (blobs.parts(), one.clear()) == (["other"], 0)
    assert other.get(stored) == b"kept"


def test_wrong_credentials_are_refused_with_a_reason(bucket: Bucket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
    stranger = S3Blobs.from_url(f"s3://{BUCKET}", bucket.url)

    with pytest.raises(StorageUnavailable, match="SignatureDoesNotMatch"):
        stranger.get(bytes(32))

    assert not stranger.is_reachable()
    assert bucket.refused > 0


def test_missing_bucket_is_not_an_empty_bucket(bucket: Bucket, blobs: S3Blobs):
    missing = S3Blobs.from_url("s3://missing", bucket.url)

    assert (blobs.is_reachable(), missing.is_reachable()) == (True, False)
    with pytest.raises(StorageUnavailable, match="NoSuchBucket"):
        missing.store(b"lost")


def test_large_values_are_stored_in_a_bucket_as_in_a_folder(bucket: Bucket, tmp_path: Path):
    large = LargeValues(build_storage(tmp_path, f"s3://{BUCKET}", bucket.url), stores_new=True, min_bytes=64)
    row = large.values_row(new_id(), {"run_id": new_id(), "outputs": {"text": "x" * 1000}, "inputs": {}})

    assert large.outputs("work", row["outputs"], row["large"]) == {"text": "x" * 1000}
    (week,) = large.weeks()
    (tenant,) = large.tenants(week)
    assert large.clear(week, tenant) == 1
    assert (bucket.objects, list(tmp_path.iterdir())) == ({}, [])


def test_values_stay_in_their_rows_if_the_bucket_is_unreachable(bucket: Bucket, tmp_path: Path):
    large = LargeValues(build_storage(tmp_path, f"s3://{BUCKET}", bucket.url), stores_new=True, min_bytes=64)
    row = {"run_id": new_id(), "outputs": {"text": "x" * 1000}, "inputs": {}}
    bucket.is_unavailable = True

    assert large.values_row(new_id(), row) == row


def test_bucket_setting_without_boto3_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch):
    def raise_module_not_found(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("store.files.s3_blobs.import_module", raise_module_not_found)

    with pytest.raises(ExecutorError, match=r"EASEL_FILES_URL needs boto3: pip install"):
        S3Blobs.from_url("s3://easel")
