"""File storage in an S3 bucket. Needs the extra `s3` (boto3).

Credentials come from boto3's usual chain: AWS_ACCESS_KEY_ID and related variables, a profile, the machine's role.
"""

import hashlib
import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from canvas.errors import ExecutorError, NotFound, StateError
from store.files.blobs import MIN_DISCARD_AGE, StorageUnavailable, hash_file

DELETE_BATCH = 1000  # keys per delete request
CONNECT_TIMEOUT, READ_TIMEOUT = 3, 10  # seconds
MISSING_CODES = ("404", "NoSuchKey", "NotFound")
REFRESH_AFTER = MIN_DISCARD_AGE / 2


@dataclass(frozen=True, slots=True)
class S3Blobs:
    """A bucket, or the keys in it under a prefix ("" or "easel/"): `ab/ab12...`. Safe for use by several threads."""

    client: Any  # boto3 creates its classes at run time
    bucket: str
    prefix: str = ""

    @staticmethod
    def from_url(url: str, endpoint: str | None = None) -> "S3Blobs":
        """Return the storage at `s3://bucket/prefix`; `endpoint` is the server's URL if it is not Amazon's.

        Raises ExecutorError if boto3 is not installed, or finds no region or credentials.
        """
        try:
            boto3, config = import_module("boto3"), import_module("botocore.config")
        except ImportError as error:
            raise ExecutorError('EASEL_FILES_URL needs boto3: pip install "easel[s3]"') from error
        settings = config.Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": 3},
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation="when_required",  # servers other than Amazon's know no others
            response_checksum_validation="when_required",
        )
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        client = boto3.Session().client("s3", endpoint_url=endpoint, config=settings)
        return S3Blobs(client, parts.netloc, f"{prefix}/" if prefix else "")

    def store(self, data: bytes) -> bytes:
        """Upload bytes, unless the same bytes were uploaded recently: old ones may be about to be deleted."""
        sha256, _ = self.store_file(io.BytesIO(data))
        return sha256

    def store_file(self, file: BinaryIO) -> tuple[bytes, int]:
        """Upload the content of a file, which is read twice: for the hash, and to upload it."""
        sha256, size = hash_file(file)
        age = self._age(sha256)
        if age is None or age > REFRESH_AFTER.total_seconds():
            with _convert_errors():
                self.client.put_object(Bucket=self.bucket, Key=self._key(sha256), Body=file, ContentLength=size)
        return sha256, size

    def get(self, sha256: bytes) -> bytes:
        """Return the bytes with a hash, after comparing them with it."""
        with _convert_errors():
            try:
                data: bytes = self.client.get_object(Bucket=self.bucket, Key=self._key(sha256))["Body"].read()
            except Exception as error:
                if not _is_missing(error):
                    raise
                raise NotFound(f"The content {sha256.hex()} is not in the file storage.") from error
        if hashlib.sha256(data).digest() != sha256:
            raise StateError(f"The content {sha256.hex()} has changed in the file storage.")
        return data

    def discard(self, sha256: bytes) -> bool:
        """Delete bytes that no row names any more; return False if they were uploaded recently, for a row to come."""
        age = self._age(sha256)
        if age is None:
            return True
        if age < MIN_DISCARD_AGE.total_seconds():
            return False
        with _convert_errors():
            self.client.delete_object(Bucket=self.bucket, Key=self._key(sha256))
        return True

    def is_reachable(self) -> bool:
        """Return whether the bucket answers."""
        try:
            with _convert_errors():
                self.client.head_bucket(Bucket=self.bucket)
        except StorageUnavailable:
            return False
        return True

    def part(self, name: str) -> "S3Blobs":
        """Return the storage under a longer prefix."""
        return S3Blobs(self.client, self.bucket, f"{self.prefix}{name}/")

    def parts(self) -> list[str]:
        """Return the next path segment of the keys under the prefix."""
        pages = self._pages(Delimiter="/")
        prefixes = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        return sorted(prefix.removeprefix(self.prefix).rstrip("/") for prefix in prefixes)

    def clear(self) -> int:
        """Delete everything under the prefix, in batches of a thousand keys; return how many."""
        number = 0
        for page in self._pages(PaginationConfig={"PageSize": DELETE_BATCH}):
            keys = [{"Key": one["Key"]} for one in page.get("Contents", ())]
            if not keys:
                continue
            with _convert_errors():
                reply = self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})
            if refused := reply.get("Errors"):
                raise StorageUnavailable(f"The bucket keeps {refused[0].get('Key')}: {refused[0].get('Message')}")
            number += len(keys)
        return number

    def _pages(self, **options: Any) -> Iterator[Any]:
        with _convert_errors():
            yield from self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, **options
            )

    def _age(self, sha256: bytes) -> float | None:
        """Return the seconds since bytes were last uploaded; None if they are missing."""
        with _convert_errors():
            try:
                head = self.client.head_object(Bucket=self.bucket, Key=self._key(sha256))
            except Exception as error:
                if _is_missing(error):
                    return None
                raise
        return (datetime.now(UTC) - head["LastModified"]).total_seconds()

    def _key(self, sha256: bytes) -> str:
        name = sha256.hex()
        return f"{self.prefix}{name[:2]}/{name}"


def _is_missing(error: Exception) -> bool:
    reply: Any = getattr(error, "response", {})  # botocore's ClientError has one
    return reply.get("Error", {}).get("Code") in MISSING_CODES


@contextmanager
def _convert_errors() -> Generator[None]:
    """Convert the exceptions of boto3 into StorageUnavailable."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("botocore", "boto3", "urllib3"):
            raise
        raise StorageUnavailable(f"The file storage: {error}") from error
