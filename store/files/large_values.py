"""Values that are too large for a row: they are in the file storage, and a column beside the value names the file.

A file is named `values/2026w47/<tenant>/ab/ab12...`. The week is the run's, because retention deletes runs by the week
and nothing is written for a deleted run. The tenant keeps equal values of two tenants apart. Then comes the hash of the
content, which is compressed JSON. The row has null in the value's place. The names of files have a column of their own,
so that no value of a node or a person can be mistaken for one.

A file is stored durably before the transaction that names it begins. A worker that dies in between leaves an unused
file, which is removed with its week.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from canvas.errors import NotFound, StateError, ValueGone
from canvas.ids import RunId, TenantId
from store.files.blobs import Blobs
from store.primitives.json_codec import decode, encode
from store.primitives.weeks import Week

log = structlog.get_logger()

MIN_LARGE_BYTES = 1024 * 1024  # bytes of JSON; smaller values are cheaper in the row, which PostgreSQL compresses
COMPRESSION_LEVEL = 1  # zlib level: a third of the default level's time for a few percent more bytes
MAX_CODE_POINT_BYTES = 6  # of one code point in JSON
PART_NAME = "values"

FileRefs = Mapping[str, Any]
"""Values in files by name: [week/tenant/hash, bytes of the JSON]."""


class ReadFirst(Exception):
    """A transaction needs a value from the file storage: read it outside of the transaction and run that again."""

    def __init__(self, what: str, key: str, size: int) -> None:
        super().__init__(f"{what} ({size:,} bytes) is in the file storage, which a transaction does not wait for.")
        self.what, self.key, self.size = what, key, size


@dataclass(frozen=True, slots=True)
class LargeValues:
    """Access to large values. `blobs`: the file storage, if any; `stores_new`: new large values are stored there.

    `prefetched`: the large values that were read for a transaction, by file name; the transaction raises ReadFirst for
    any other. None: each value is read from the storage when it is needed.
    """

    blobs: Blobs | None = None
    stores_new: bool = False
    min_bytes: int = MIN_LARGE_BYTES
    prefetched: Mapping[str, Any] | None = None

    # -- writing --------------------------------------------------------------------------------------------------
    def values_row(self, tenant_id: TenantId, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row of node_values as it is stored: the large values of its outputs and inputs are in files."""
        aside: dict[str, FileRefs] = {}
        shown: dict[str, Any] = {}
        for column in ("outputs", "inputs"):
            files = self._store_large(tenant_id, row["run_id"], row[column])
            if files:
                aside[column] = files
                shown[column] = {name: None if name in files else value for name, value in row[column].items()}
        return {**row, **shown, "large": aside} if aside else row

    def variable_row(self, tenant_id: TenantId, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row of variables as it is stored: a large value is in a file."""
        files = self._store_large(tenant_id, row["run_id"], {"value": row["value"]})
        return {**row, "value": None, "large": files} if files else row

    def _store_large(self, tenant_id: TenantId, run_id: RunId, values: Mapping[str, Any]) -> dict[str, Any]:
        files: dict[str, Any] = {}
        for name, value in values.items() if self.stores_new and self.blobs is not None else ():
            data = self._json_if_large(value)
            if data is None:
                continue
            try:
                files[name] = [self._store_file(tenant_id, run_id, data), len(data)]
            except (
                OSError,
                OverflowError,
            ) as error:  # a full disk, an unreachable server; a run id that is not a UUIDv7
                log.warning("large_value_stored_in_row", error=str(error))
        return files

    def _json_if_large(self, value: Any) -> bytes | None:
        is_small_text = isinstance(value, str) and len(value) * MAX_CODE_POINT_BYTES < self.min_bytes
        if is_small_text or value is None or isinstance(value, int | float):
            return None
        text = encode(value)
        if len(text) * 4 < self.min_bytes:  # a code point has at most four bytes in UTF-8
            return None
        data = text.encode()
        return data if len(data) > self.min_bytes else None

    def _store_file(self, tenant_id: TenantId, run_id: RunId, data: bytes) -> str:
        assert self.blobs is not None
        week, tenant = Week.of_run(run_id).name, tenant_id.hex
        sha256 = self.blobs.part(PART_NAME).part(week).part(tenant).store(zlib.compress(data, COMPRESSION_LEVEL))
        return f"{week}/{tenant}/{sha256.hex()}"

    # -- reading --------------------------------------------------------------------------------------------------
    def load(self, node: str, values: Any, aside: FileRefs | None) -> Any:
        """Return a node's outputs or inputs with their large values. Raises ValueGone if a file cannot be read.

        If the row has a value although a file is named for it, the row's value counts: a release without large values
        has overwritten it.
        """
        if not aside:
            return values
        in_files = {name for name in aside if values.get(name, aside) is None}
        return {
            name: self._read(f'Node "{node}": the value of "{name}"', *aside[name]) if name in in_files else value
            for name, value in values.items()
        }

    def outputs(self, node: str, values: Any, large: Mapping[str, FileRefs] | None) -> Any:
        """Return a node's outputs from the columns `outputs` and `large`."""
        return self.load(node, values, large.get("outputs")) if large else values

    def inputs(self, node: str, values: Any, large: Mapping[str, FileRefs] | None) -> Any:
        """Return a node's inputs from the columns `inputs` and `large`."""
        return self.load(node, values, large.get("inputs")) if large else values

    def variable(self, name: str, value: Any, large: FileRefs | None) -> Any:
        """Return a variable's value from the columns `value` and `large`."""
        return self._read(f'The value of "{name}"', *large["value"]) if large and value is None else value

    def read(self, needed: ReadFirst) -> Any:
        """Return the value that a transaction needs. Raises ValueGone if its file cannot be read."""
        return self._read(needed.what, needed.key, needed.size)

    def _read(self, what: str, key: str, size: int) -> Any:
        if self.prefetched is not None:
            if key not in self.prefetched:
                raise ReadFirst(what, key, size)
            return self.prefetched[key]
        if self.blobs is None:
            raise ValueGone(
                f"{what} ({size:,} bytes) is in the file storage, and this process has none. "
                "Set EASEL_FILES_DIR or EASEL_FILES_URL as the workers have it."
            )
        week, tenant, name = key.split("/")
        try:
            data = self.blobs.part(PART_NAME).part(week).part(tenant).get(bytes.fromhex(name))
        except (NotFound, StateError, OSError) as error:
            state = "is not" if isinstance(error, NotFound) else "has been changed"
            trouble = f"cannot be read ({error})" if isinstance(error, OSError) else state
            raise ValueGone(
                f"{what} ({size:,} bytes) {trouble} in the file storage, "
                f"at {PART_NAME}/{week}/{tenant}/{name[:2]}/{name}. "
                "Let this process see the folder or bucket that the workers write to, "
                "restore it from a backup, or run the canvas again."
            ) from error
        return decode(zlib.decompress(data))

    # -- retention --------------------------------------------------------------------------------------------------
    def is_reachable(self) -> bool:
        """Return whether this process can reach the file storage."""
        return self.blobs is not None and self.blobs.is_reachable()

    def weeks(self) -> list[Week]:
        """Return the weeks that have values in the storage."""
        if self.blobs is None:
            return []
        return sorted(week for week in map(Week.from_name, self.blobs.part(PART_NAME).parts()) if week is not None)

    def tenants(self, week: Week) -> list[str]:
        """Return the tenants that have values in a week, as ids without hyphens."""
        return self.blobs.part(PART_NAME).part(week.name).parts() if self.blobs is not None else []

    def clear(self, week: Week, tenant: str) -> int:
        """Remove a tenant's values of a week whose runs are deleted; return the number of files."""
        return self.blobs.part(PART_NAME).part(week.name).part(tenant).clear() if self.blobs is not None else 0


NO_STORAGE = LargeValues()
"""For a process without a file storage."""
