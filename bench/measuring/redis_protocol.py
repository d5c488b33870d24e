"""An observer of Redis' protocol: counts commands by name. Of replies only bytes are counted."""

from bench.measuring.tally import RoundTripCounter, Tally

END = b"\r\n"


class RedisObserver(RoundTripCounter):
    """Observes one connection to Redis or Valkey, whose client sends arrays of bulk strings, as libraries do."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._requests = bytearray()

    def on_request(self, data: bytes) -> None:
        super().on_request(data)
        self._requests += data
        while (command := _parse_command(self._requests)) is not None:
            name, length = command
            del self._requests[:length]
            self.tally.messages += 1
            self.tally.statements[name] += 1


def _parse_command(buffer: bytearray) -> tuple[str, int] | None:
    """Return name and length of the command at the front of a buffer; None while it is incomplete."""
    line = buffer.find(END)
    if line < 0:
        return None
    if not buffer.startswith(b"*"):  # typed by a person
        return (bytes(buffer[:line]).split() or [b""])[0].decode(errors="replace").lower(), line + len(END)
    name, at = "", line + len(END)
    for number in range(int(buffer[1:line])):
        line = buffer.find(END, at)
        if line < 0:
            return None
        begins = line + len(END)
        ends = begins + int(buffer[at + 1 : line])
        if len(buffer) < ends + len(END):
            return None
        if number == 0:
            name = bytes(buffer[begins:ends]).decode(errors="replace").lower()
        at = ends + len(END)
    return name, at
