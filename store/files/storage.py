"""The file storage of a deployment, built from its settings."""

from pathlib import Path

from store.files.blobs import Blobs, LocalBlobs
from store.files.large_values import LargeValues
from store.files.s3_blobs import S3Blobs


def build_storage(folder: Path, url: str | None = None, endpoint: str | None = None) -> Blobs:
    """Return the file storage of a deployment: the bucket of the URL (`s3://bucket/prefix`), else the folder.

    `endpoint`: the URL of a server that is not Amazon's.
    """
    return S3Blobs.from_url(url, endpoint) if url is not None else LocalBlobs(folder)


def build_large_values(folder: Path, url: str | None, endpoint: str | None, *, stores_new: bool) -> LargeValues:
    """Return access to the large values in that storage; `stores_new`: new ones are stored there too, not only read."""
    return LargeValues(build_storage(folder, url, endpoint), stores_new)
