"""Which file storage a deployment has."""

from pathlib import Path

from store.files.blobs import Blobs, LocalBlobs
from store.files.large_values import LargeValues
from store.files.s3_blobs import S3Blobs


def storage_of(folder: Path, url: str | None = None, endpoint: str | None = None) -> Blobs:
    """The file storage of a deployment: the bucket that the URL names (`s3://bucket/prefix`), else the folder.

    `endpoint`: where a bucket is to be found that is not Amazon's.
    """
    return S3Blobs.at(url, endpoint) if url is not None else LocalBlobs(folder)


def large_values_of(folder: Path, url: str | None, endpoint: str | None, *, keeps: bool) -> LargeValues:
    """Large values in that storage; `keeps`: those to come too, and not only what is there already."""
    return LargeValues(storage_of(folder, url, endpoint), keeps)
