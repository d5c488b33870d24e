"""Values too large for a row: they lie in the file storage, and a column beside the value names the file.

`values/2026w47/<tenant>/ab/ab12...`: the week is that of the run, since runs are let go by the week, and nobody writes
for a run that is gone; the tenant keeps apart what two of them have alike; then comes the hash of the content, which is
JSON, compressed. In the row null stands in the value's place. What a node or a person gives cannot pass for such a
name, since names have a column of their own.

A file is there for good before the transaction that names it begins. A worker that dies in between leaves a file that
nobody knows, until its week goes.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from canvas.errors import NotFound, StateError, ValueGone
from store.files.blobs import Blobs
from store.primitives.json_codec import decode, encode
from store.primitives.weeks import Week

log = structlog.get_logger()

LARGE = 1024 * 1024  # bytes of JSON; what is smaller is cheaper in its row, which PostgreSQL compresses
FASTEST = 1  # of zlib's levels: a third of the time of the usual one for a few percent more bytes
MOST_BYTES = 6  # that one code point takes in JSON
PLACE = "values"

Aside = Mapping[str, Any]
"""Values in files, by name: [week/tenant/hash, bytes of the JSON]."""


class ReadFirst(Exception):
    """A transaction needs a value from the file storage: it is to be read outside, and the transaction repeated."""

    def __init__(self, what: str, key: str, size: int) -> None:
        super().__init__(f"{what} ({size:,} bytes) lies in the file storage, which no transaction waits for.")
        self.what, self.key, self.size = what, key, size


@dataclass(frozen=True, slots=True)
class LargeValues:
    """A process's way to them. `blobs` None: it has no file storage; `keeps`: what it writes goes there.

    `ahead`: of a transaction that does not wait for the storage, the values that were read for it; others raise
    ReadFirst. None: each value is read when it is asked for.
    """

    blobs: Blobs | None = None
    keeps: bool = False
    from_bytes: int = LARGE
    ahead: Mapping[str, Any] | None = None

    # -- writing --------------------------------------------------------------------------------------------------
    def values_row(self, tenant_id: UUID, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row of node_values as it is stored: what is large in its outputs and inputs has gone into files."""
        aside: dict[str, Aside] = {}
        shown: dict[str, Any] = {}
        for column in ("outputs", "inputs"):
            kept = self._keep(tenant_id, row["run_id"], row[column])
            if kept:
                aside[column] = kept
                shown[column] = {name: None if name in kept else value for name, value in row[column].items()}
        return {**row, **shown, "large": aside} if aside else row

    def variable_row(self, tenant_id: UUID, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row of variables as it is stored."""
        kept = self._keep(tenant_id, row["run_id"], {"value": row["value"]})
        return {**row, "value": None, "large": kept} if kept else row

    def _keep(self, tenant_id: UUID, run_id: UUID, values: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, value in values.items() if self.keeps and self.blobs is not None else ():
            data = self._json_if_large(value)
            if data is None:
                continue
            try:
                kept[name] = [self._put(tenant_id, run_id, data), len(data)]
            except (OSError, OverflowError) as error:  # a full disk, a server that is away; an id that is no time
                log.warning("large_value_stored_in_row", error=str(error))
        return kept

    def _json_if_large(self, value: Any) -> bytes | None:
        is_small_text = isinstance(value, str) and len(value) * MOST_BYTES < self.from_bytes
        if is_small_text or value is None or isinstance(value, int | float):
            return None
        text = encode(value)
        if len(text) * 4 < self.from_bytes:  # a code point is four bytes of UTF-8 at most
            return None
        data = text.encode()
        return data if len(data) > self.from_bytes else None

    def _put(self, tenant_id: UUID, run_id: UUID, data: bytes) -> str:
        assert self.blobs is not None
        week, tenant = Week.of_run(run_id).name, tenant_id.hex
        sha256 = self.blobs.part(PLACE).part(week).part(tenant).put(zlib.compress(data, FASTEST))
        return f"{week}/{tenant}/{sha256.hex()}"

    # -- reading --------------------------------------------------------------------------------------------------
    def whole(self, node: str, values: Any, aside: Aside | None) -> Any:
        """Outputs or inputs of a node as they were given. Raises ValueGone if a file is not to be had.

        Where a value stands in the row, the name of a file is that of an older one: a release that knows no files has
        written over it.
        """
        if not aside:
            return values
        lies_outside = {name for name in aside if values.get(name, aside) is None}
        return {
            name: self._read(f'Node "{node}": the value of "{name}"', *aside[name]) if name in lies_outside else value
            for name, value in values.items()
        }

    def outputs(self, node: str, values: Any, large: Mapping[str, Aside] | None) -> Any:
        """A node's outputs from the columns `outputs` and `large`."""
        return self.whole(node, values, large.get("outputs")) if large else values

    def inputs(self, node: str, values: Any, large: Mapping[str, Aside] | None) -> Any:
        """A node's inputs from the columns `inputs` and `large`."""
        return self.whole(node, values, large.get("inputs")) if large else values

    def variable(self, name: str, value: Any, large: Aside | None) -> Any:
        """A variable from the columns `value` and `large`."""
        return self._read(f'The value of "{name}"', *large["value"]) if large and value is None else value

    def read(self, needed: ReadFirst) -> Any:
        """The value that a transaction needs. Raises ValueGone if its file is not to be had."""
        return self._read(needed.what, needed.key, needed.size)

    def _read(self, what: str, key: str, size: int) -> Any:
        if self.ahead is not None:
            if key not in self.ahead:
                raise ReadFirst(what, key, size)
            return self.ahead[key]
        if self.blobs is None:
            raise ValueGone(
                f"{what} ({size:,} bytes) lies in the file storage, and this process has none. "
                "Set EASEL_FILES_DIR or EASEL_FILES_URL as the workers have it."
            )
        week, tenant, name = key.split("/")
        try:
            data = self.blobs.part(PLACE).part(week).part(tenant).get(bytes.fromhex(name))
        except (NotFound, StateError, OSError) as error:
            known = "is not" if isinstance(error, NotFound) else "has been changed"
            trouble = f"cannot be read ({error})" if isinstance(error, OSError) else known
            raise ValueGone(
                f"{what} ({size:,} bytes) {trouble} in the file storage, at {PLACE}/{week}/{tenant}/{name[:2]}/{name}. "
                "Let this process see the folder or bucket that the workers write to, "
                "restore it from a backup, or run the canvas again."
            ) from error
        return decode(zlib.decompress(data))

    # -- letting go -----------------------------------------------------------------------------------------------
    def is_within_reach(self) -> bool:
        """Whether this process sees the storage at all."""
        return self.blobs is not None and self.blobs.is_there()

    def weeks(self) -> list[Week]:
        """The weeks of which something lies in the storage."""
        if self.blobs is None:
            return []
        return sorted(week for week in map(Week.named, self.blobs.part(PLACE).parts()) if week is not None)

    def tenants(self, week: Week) -> list[str]:
        """Whose values lie in a week, by their ids without hyphens."""
        return self.blobs.part(PLACE).part(week.name).parts() if self.blobs is not None else []

    def clear(self, week: Week, tenant: str) -> int:
        """Remove a tenant's values of a week whose runs are gone; how many files."""
        return self.blobs.part(PLACE).part(week.name).part(tenant).clear() if self.blobs is not None else 0


NO_STORAGE = LargeValues()
"""Of a process without a file storage."""
