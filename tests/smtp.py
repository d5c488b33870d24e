"""A mail server with the commands that Email needs; it can refuse, disconnect and stall.

async with SmtpServer(tls, refuse={"RCPT": ["450 later"]}) as server:
    ...  # server.port, server.messages
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType


@dataclass
class Envelope:
    """One message as received."""

    sender: str
    recipients: list[str]
    data: bytes

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.data, policy=policy.default)

    @property
    def html(self) -> str:
        """The only part of the message."""
        [part] = self.message.iter_parts()
        assert part.get_content_type() == "text/html"
        assert isinstance(part, EmailMessage)
        return part.get_content()


@dataclass
class SmtpServer:
    """`refuse`: replies by command, used one by one instead of the usual ones; `drop_at` and `stall_at` name a command.

    `BODY` stands for the end of the message data.
    """

    tls: ssl.SSLContext | None
    implicit: bool = False
    users: Mapping[str, str] = field(default_factory=lambda: {"me@example.com": "pass-1234"})
    refuse: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    drop_at: str = ""
    stall_at: str = ""
    greeting: bytes = b"220 mail.test ESMTP\r\n"
    port: int = 0
    connections: int = 0
    commands: list[str] = field(default_factory=list[str])
    encrypted: list[bool] = field(default_factory=list[bool])  # for each command, beside `commands`
    logins: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    messages: list[Envelope] = field(default_factory=list[Envelope])
    stalled: asyncio.Event = field(default_factory=asyncio.Event)  # the command at which it stalls
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)  # a client has disconnected
    _server: asyncio.Server | None = None
    _used: dict[str, int] = field(default_factory=dict[str, int])

    async def __aenter__(self) -> "SmtpServer":
        tls = self.tls if self.implicit else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if await self._answer_as_usual("CONNECT", writer):
                writer.write(self.greeting)
                await self._serve_commands(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, TimeoutError):
            pass
        finally:
            self.disconnected.set()
            writer.close()

    async def _serve_commands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        envelope = Envelope("", [], b"")
        is_encrypted = self.implicit
        while line := (await reader.readuntil(b"\r\n")).decode("latin-1").rstrip("\r\n"):
            name = line.split(" ")[0].upper()
            self.commands.append(line)
            self.encrypted.append(is_encrypted)
            if not await self._answer_as_usual(name, writer):
                if self.drop_at == name:
                    return
                continue
            match name:
                case "EHLO":
                    capabilities = ["AUTH PLAIN LOGIN"] if is_encrypted else ["STARTTLS"] if self.tls else []
                    replies = ["mail.test", "8BITMIME", *capabilities]
                    lines = (f"250{' ' if each is replies[-1] else '-'}{each}\r\n" for each in replies)
                    writer.write("".join(lines).encode())
                case "STARTTLS":
                    writer.write(b"220 go on\r\n")
                    await writer.drain()
                    assert self.tls is not None
                    await writer.start_tls(self.tls)
                    is_encrypted = True
                case "AUTH":
                    user, password = base64.b64decode(line.split(" ")[2]).decode().split("\0")[1:]
                    self.logins.append((user, password))
                    is_known = self.users.get(user) == password
                    writer.write(b"235 welcome\r\n" if is_known else b"535 5.7.8 no such user\r\n")
                case "MAIL":
                    envelope = Envelope(_address(line), [], b"")
                    writer.write(b"250 ok\r\n")
                case "RCPT":
                    envelope.recipients.append(_address(line))
                    writer.write(b"250 ok\r\n")
                case "DATA":
                    writer.write(b"354 go on\r\n")
                    body = (await reader.readuntil(b"\r\n.\r\n")).removesuffix(b".\r\n")
                    envelope.data = body.replace(b"\r\n..", b"\r\n.")
                    self.messages.append(envelope)
                    if await self._answer_as_usual("BODY", writer):
                        writer.write(b"250 taken\r\n")
                    else:
                        self.messages.pop()
                        if self.drop_at == "BODY":
                            return
                case "QUIT":
                    writer.write(b"221 bye\r\n")
                    return
                case _:
                    writer.write(b"502 what?\r\n")
            await writer.drain()

    async def _answer_as_usual(self, name: str, writer: asyncio.StreamWriter) -> bool:
        """Whether a command is answered as usual; else refuse it, or do not answer."""
        if self.stall_at == name:
            self.stalled.set()
            await asyncio.sleep(3600)
        if self.drop_at == name:
            return False
        used = self._used.get(name, 0)
        replies = self.refuse.get(name, ())
        if used >= len(replies):
            return True
        self._used[name] = used + 1
        if not replies[used]:
            return True
        writer.write(f"{replies[used]}\r\n".encode())
        await writer.drain()
        return False


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
