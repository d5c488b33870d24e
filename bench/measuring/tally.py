"""What has passed over a wire, added up: `after - before` is what passed in between."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Protocol


@dataclass
class Tally:
    """Everything that a server was asked by the clients of a wire.

    A round trip is a flush after which the client has to wait: something sent after the server has last spoken.
    """

    connections: float = 0
    round_trips: float = 0
    bytes_asked: float = 0
    bytes_answered: float = 0
    messages: float = 0  # of the server's protocol, from the client
    transactions: float = 0  # that ended, reads and single statements included; always 0 for Redis
    statements: Counter[str] = field(default_factory=Counter[str])  # by what they do; commands of Redis by name

    def copy(self) -> "Tally":
        """As it is now."""
        return Tally(**_values(self), statements=Counter(self.statements))

    def __sub__(self, earlier: "Tally") -> "Tally":
        return self._with(earlier, -1)

    def __add__(self, other: "Tally") -> "Tally":
        return self._with(other, 1)

    def __mul__(self, factor: float) -> "Tally":
        numbers = {name: value * factor for name, value in _values(self).items()}
        return Tally(**numbers, statements=_counter({name: n * factor for name, n in self.statements.items()}))

    def _with(self, other: "Tally", factor: float) -> "Tally":
        theirs = _values(other)
        numbers = {name: value + factor * theirs[name] for name, value in _values(self).items()}
        names = self.statements.keys() | other.statements.keys()
        counted = {name: self.statements[name] + factor * other.statements[name] for name in names}
        return Tally(**numbers, statements=_counter(counted))


class Talk(Protocol):
    """One connection, overheard: adds what it understands to a tally."""

    def asked(self, data: bytes) -> None:
        """The client has sent something, cut anywhere."""
        ...

    def answered(self, data: bytes) -> None:
        """The server has."""
        ...


class Turns:
    """Bytes and round trips, which need no understanding of what is said."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._waits = False
        tally.connections += 1

    def asked(self, data: bytes) -> None:
        self.tally.bytes_asked += len(data)
        self.tally.round_trips += not self._waits
        self._waits = True

    def answered(self, data: bytes) -> None:
        self.tally.bytes_answered += len(data)
        self._waits = False


def _values(tally: Tally) -> dict[str, float]:
    return {each.name: getattr(tally, each.name) for each in fields(tally) if each.name != "statements"}


def _counter(counted: dict[str, float]) -> Counter[str]:
    """Fractions are welcome: what is counted per hop seldom comes out even."""
    counter: Counter[str] = Counter()
    dict.update(counter, counted)  # the constructor's type allows whole numbers only
    return counter
