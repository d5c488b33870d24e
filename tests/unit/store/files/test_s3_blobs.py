"""Deleting everything under a prefix of a bucket, whatever pages the server returns."""

from types import SimpleNamespace
from typing import Any

from store.files.s3_blobs import S3Blobs


def test_clear_deletes_the_keys_behind_an_empty_page():
    deleted: list[str] = []
    pages = [{"Contents": [{"Key": "a"}]}, {}, {"Contents": [{"Key": "b"}, {"Key": "c"}]}]

    def delete(*, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        deleted.extend(one["Key"] for one in Delete["Objects"])
        return {}

    paginator = SimpleNamespace(paginate=lambda **options: pages)
    client = SimpleNamespace(get_paginator=lambda name: paginator, delete_objects=delete)

    assert S3Blobs(client, "bucket").clear() == 3
    assert deleted == ["a", "b", "c"]
