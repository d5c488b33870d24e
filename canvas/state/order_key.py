"""Order keys: the canonical order of activations within a run (docs/protocol.md#ready-and-canonical-order).

An order key is (level, branch path) inside a region. A branch path lists only positions other than 0, as (-level,
position), so a chain of a thousand nodes has an empty path. Comparing tuples compares paths: the path that branched off
later, or at a smaller position, is smaller. Inside parallel items the container's order key and the item number come
first; they are the region, already encoded as bytes.

`key` is the same order as bytes, so that the database can sort by it.
"""

import struct
from dataclasses import dataclass

_LAST = 0xFFFFFFFF
_PAIR = struct.Struct(">II")
_WORD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A position in canonical order. Compare with `<`."""

    level: int
    branch_path: tuple[tuple[int, int], ...] = ()
    region: bytes = b""

    def __lt__(self, other: "OrderKey") -> bool:
        return self.key < other.key

    @property
    def key(self) -> bytes:
        """Order-preserving bytes: region, level, branch path, end of path."""
        steps = b"".join(_PAIR.pack(_LAST + level, position) for level, position in self.branch_path)
        return self.region + _WORD.pack(self.level) + steps + _WORD.pack(0)

    @property
    def level_key(self) -> bytes:
        """The smallest key of this level: smaller keys belong to earlier levels."""
        return self.region + _WORD.pack(self.level)

    def child(self, position: int) -> "OrderKey":
        """Return the order key of the `position`-th target of the node with this order key."""
        level = self.level + 1
        trail = self.branch_path if position == 0 else (*self.branch_path, (-level, position))
        return OrderKey(level, trail, self.region)

    def item_region(self, item: int) -> bytes:
        """Return the region of a parallel item of the container with this order key."""
        return self.key + _WORD.pack(item)


def merge(current: OrderKey | None, arriving: OrderKey) -> OrderKey:
    """Return the order key of a node that several edges reach: the largest level, and in it the smallest branch path.

    Commutative and associative, so reports may arrive in any order.
    """
    if current is None or arriving.level > current.level:
        return arriving
    if arriving.level < current.level:
        return current
    return min(current, arriving)


def to_json(order_key: OrderKey) -> list[object]:
    """Return a compact JSON form: [level, [[-level, position], ...], region in hex]."""
    return [order_key.level, [list(step) for step in order_key.branch_path], order_key.region.hex()]


def from_json(data: list[object]) -> OrderKey:
    """Return the order key of a JSON form; the inverse of `to_json`."""
    level, trail, region = data
    assert isinstance(level, int)
    assert isinstance(trail, list)
    assert isinstance(region, str)
    return OrderKey(level, tuple((int(w), int(p)) for w, p in trail), bytes.fromhex(region))
