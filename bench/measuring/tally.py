"""Counts of the traffic to a server: `after - before` is the traffic in between."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Protocol


@dataclass
class Tally:
    """Counts of all requests of a proxy's clients to its server.

    A round trip is a flush after which the client waits: data sent after the server has last sent some.
    """

    connections: float = 0
    round_trips: float = 0
    bytes_sent: float = 0
    bytes_received: float = 0
    messages: float = 0  # of the server's protocol, from the client
    transactions: float = 0  # ended ones, including reads and single statements; always 0 for Redis
    statements: Counter[str] = field(default_factory=Counter[str])  # by what they do; commands of Redis by name

    def copy(self) -> "Tally":
        """Return a copy of the counts."""
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


class ConnectionObserver(Protocol):
    """Observes one connection and adds to a tally."""

    def on_request(self, data: bytes) -> None:
        """Handle data from the client, split at any byte."""
        ...

    def on_response(self, data: bytes) -> None:
        """Handle data from the server, split at any byte."""
        ...


class RoundTripCounter:
    """Counts bytes and round trips, which need no parsing."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._is_waiting = False
        tally.connections += 1

    def on_request(self, data: bytes) -> None:
        self.tally.bytes_sent += len(data)
        self.tally.round_trips += not self._is_waiting
        self._is_waiting = True

    def on_response(self, data: bytes) -> None:
        self.tally.bytes_received += len(data)
        self._is_waiting = False


def _values(tally: Tally) -> dict[str, float]:
    return {each.name: getattr(tally, each.name) for each in fields(tally) if each.name != "statements"}


def _counter(counted: dict[str, float]) -> Counter[str]:
    """Return a Counter with fractions, because counts per hop are seldom whole numbers."""
    counter: Counter[str] = Counter()
    dict.update(counter, counted)  # the constructor's type allows whole numbers only
    return counter
