"""Canonical order: where an activation stands among all of its run (engine 4.6, protocol "Ready, and canonical order").

A place is (wave, trail) inside its region. Only positions other than 0 stand in a trail, as (-wave, position), so a
chain of a thousand nodes has an empty one, and comparing tuples compares trails: the trail that turned aside later,
or less, is smaller. Inside side-by-side items the container's place and the item number come first; they are the
region, already encoded.

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

    wave: int
    trail: tuple[tuple[int, int], ...] = ()
    region: bytes = b""

    def __lt__(self, other: "OrderKey") -> bool:
        return self.key < other.key

    @property
    def key(self) -> bytes:
        """Order-preserving bytes: region, wave, trail, end of trail."""
        steps = b"".join(_PAIR.pack(_LAST + wave, position) for wave, position in self.trail)
        return self.region + _WORD.pack(self.wave) + steps + _WORD.pack(0)

    @property
    def wave_key(self) -> bytes:
        """The smallest key of this wave: what stands before it was written in an earlier wave."""
        return self.region + _WORD.pack(self.wave)

    def step(self, position: int) -> "OrderKey":
        """The place of the `position`-th target of the node that stands here."""
        wave = self.wave + 1
        trail = self.trail if position == 0 else (*self.trail, (-wave, position))
        return OrderKey(wave, trail, self.region)

    def inside(self, item: int) -> bytes:
        """The region of one side-by-side item of the container that stands here."""
        return self.key + _WORD.pack(item)


def merged(current: OrderKey | None, arriving: OrderKey) -> OrderKey:
    """The place of a node that several edges reach: the largest wave, and in it the smallest trail.

    Commutative and associative, so reports may arrive in any order.
    """
    if current is None or arriving.wave > current.wave:
        return arriving
    if arriving.wave < current.wave:
        return current
    return min(current, arriving)


def to_json(place: OrderKey) -> list[object]:
    """A compact JSON form: [wave, [[-wave, position], ...], region in hex]."""
    return [place.wave, [list(step) for step in place.trail], place.region.hex()]


def from_json(data: list[object]) -> OrderKey:
    """The inverse of `to_json`."""
    wave, trail, region = data
    assert isinstance(wave, int)
    assert isinstance(trail, list)
    assert isinstance(region, str)
    return OrderKey(wave, tuple((int(w), int(p)) for w, p in trail), bytes.fromhex(region))
