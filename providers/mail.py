"""SMTP client of the component Email: checked hosts, always TLS, one thread per session.

    async with MailServers(guard).connect(account) as session:
        refused = await session.set_envelope("me@example.com", ["you@example.com"])
        await session.deliver(message)

Implements `providers.interfaces.Mail`. Cancelling the caller breaks the connection, which also ends the thread's wait.
Nothing is sent before the server has accepted the DATA command. After that only the server's last reply says whether
the message was accepted; if that reply does not come, the error is a DeliveryUnknown
(docs/decisions/0022-emails-are-sent-once.md).
"""

import asyncio
import re
import smtplib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar

from canvas.errors import AddressRefused, ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked
from providers.interfaces import DeliveryUnknown, MailAccount

PORTS = frozenset({25, 465, 587, 2525})
MAX_ADDRESSES = 3  # addresses of one host that are tried
STEP_TIMEOUT = 10.0  # for connecting to an address, and for each reply of a server except the last one
QUIT_TIMEOUT = 2.0  # for the reply to QUIT; no caller waits for it
MAX_REPLY_BYTES = 256 * 1024  # limit for all replies of a server in one session
LOGIN_REFUSED = "SMTP Authentication failed. Please check your SMTP username(email) and authorization code."

_LEADING_DOT = re.compile(rb"(?m)^\.")
_READY, _START, _WRONG_PASSWORD = 220, 354, 535

T = TypeVar("T")


class MailServers:
    """Opens sessions with mail servers that the guard allows, on the ports of mail."""

    def __init__(
        self,
        guard: Guard,
        *,
        ports: Collection[int] = PORTS,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = address_policy.resolve_in_thread,
    ) -> None:
        self._guard = guard
        self._ports = ports
        self._custom_tls = tls
        self._resolve = resolve

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["SmtpSession"]:
        """Open a session and log in. Raises AddressRefused or ToolError."""
        ends_at = asyncio.get_running_loop().time() + account.timeout
        addresses = await self._addresses(account)
        session = SmtpSession(await _connect(addresses, account, ends_at), ends_at)
        try:
            await session.open(account, lambda: self._tls)
            yield session
        finally:
            session.close()

    async def _addresses(self, account: MailAccount) -> list[str]:
        if account.port not in self._ports and not account.trusted and not self._guard.allow_any:
            allowed = ", ".join(map(str, sorted(self._ports)))
            raise AddressRefused(f"Port {account.port} is not allowed for mail. Use one of {allowed}.")
        try:
            return await resolve_checked(
                account.host, account.port, self._guard, trusted=account.trusted, resolve=self._resolve
            )
        except AddressRefused as refused:
            raise AddressRefused(f"SMTP server '{account.host}' is not allowed: {refused.message}") from refused
        except ToolError as error:
            raise _connection_error(account, retryable=True) from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._custom_tls or ssl.create_default_context()


class SmtpSession:
    """One SMTP session and its thread. `close` does not wait: the thread sends QUIT and ends by itself."""

    def __init__(self, connection: socket.socket, ends_at: float) -> None:
        self._connection = connection
        # TLS detaches the original socket; this one can still shut the connection down
        self._duplicate = connection.dup()
        self._ends_at = ends_at
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mail")
        self._client: _SmtpClient | None = None

    async def open(self, account: MailAccount, tls: Callable[[], ssl.SSLContext]) -> None:
        """Read the greeting, start TLS, log in. Raises ToolError."""
        await self._in_thread(lambda: self._open(account, tls()))

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        """Send sender and recipients; return the server's reply for each refused recipient.

        Raises ToolError if the server refuses all recipients.
        """
        return await self._in_thread(lambda: self._set_envelope(sender, recipients))

    async def deliver(self, message: bytes) -> None:
        """Send the message. Raises ToolError if the server refuses it, DeliveryUnknown if the result is not known."""
        begun: list[bool] = []  # the thread appends to it before it sends the first byte of the message
        try:
            await self._in_thread(lambda: self._deliver(message, begun))
        except ToolError as error:
            if begun and isinstance(error, _SessionTimeout):
                raise DeliveryUnknown from error
            raise

    def close(self) -> None:
        """Have the thread end the session, without waiting for it."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await loop.run_in_executor(self._thread, _with_tool_errors(work))
        except asyncio.CancelledError:
            self._abort()
            raise
        except TimeoutError as error:
            self._abort()
            raise _SessionTimeout("SMTP error occurred: the server took too long", retryable=True) from error

    def _abort(self) -> None:
        with suppress(OSError):  # the connection is broken already
            self._duplicate.shutdown(socket.SHUT_RDWR)

    # -- in the thread --------------------------------------------------------------------------------------------
    def _open(self, account: MailAccount, tls: ssl.SSLContext) -> None:
        self._connection.settimeout(STEP_TIMEOUT)
        try:
            if account.tls:
                self._connection = tls.wrap_socket(self._connection, server_hostname=account.host)
            self._client = client = _SmtpClient(self._connection, account.host)
            code, text = client.connect(account.host, account.port)
            if code != _READY:
                raise smtplib.SMTPResponseException(code, text)
            if not account.tls:
                client.starttls(context=tls)
        except ssl.SSLCertVerificationError as error:
            raise _connection_error(account, f": its certificate is not trusted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise _connection_error(account, f": there is no TLS: {error.reason}") from error
        except (TimeoutError, smtplib.SMTPServerDisconnected, ConnectionError) as error:
            raise _connection_error(account, retryable=True) from error
        client.login(account.username, account.password)

    def _set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        client = self._open_client
        _check_reply(client.mail(sender))
        answers = {recipient: client.rcpt(recipient) for recipient in recipients}
        refused = {recipient: answer for recipient, answer in answers.items() if not 200 <= answer[0] < 300}
        if len(refused) == len(answers):
            reasons = "; ".join(f"{recipient}: {_format_reply(*answer)}" for recipient, answer in refused.items())
            may_pass = all(400 <= code < 500 for code, _ in refused.values())
            raise ToolError(f"SMTP error occurred: {reasons}", retryable=may_pass)
        return {recipient: _format_reply(*answer) for recipient, answer in refused.items()}

    def _deliver(self, message: bytes, begun: list[bool]) -> None:
        client = self._open_client
        code, text = client.docmd("DATA")
        if code != _START:
            raise smtplib.SMTPResponseException(code, text)
        begun.append(True)
        try:
            client.reply_timeout = None  # the timeout of the whole session still applies
            client.send(_LEADING_DOT.sub(b"..", message.removesuffix(b"\r\n")) + b"\r\n.\r\n")
            answer = client.getreply()
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise DeliveryUnknown from error
        if not 200 <= answer[0] < 600:
            raise DeliveryUnknown  # not a valid reply
        _check_reply(answer)

    @property
    def _open_client(self) -> "_SmtpClient":
        assert self._client is not None  # callers only get sessions that are open
        return self._client

    def _close(self) -> None:
        with suppress(OSError, smtplib.SMTPException, ValueError):  # the reply to QUIT does not change the result
            if self._client is not None:
                self._client.reply_timeout = QUIT_TIMEOUT
                self._client.docmd("QUIT")
        for each in (self._connection, self._duplicate):
            with suppress(OSError):
                each.close()
        if self._client is not None:
            with suppress(OSError):
                self._client.close()


class _SessionTimeout(ToolError):
    """The session timed out before the server replied."""


class _SmtpClient(smtplib.SMTP):
    """An SMTP client over an existing connection, with a limit on the bytes that it reads."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        self._connection = connection
        name = connection.getsockname()[0]
        super().__init__(local_hostname=f"[IPv6:{name}]" if ":" in name else f"[{name}]", timeout=STEP_TIMEOUT)
        self._host = host  # the name that the certificate must contain
        self._login_error: smtplib.SMTPAuthenticationError | None = None

    @property
    def reply_timeout(self) -> float | None:
        """Seconds to wait for a reply; None: as long as the connection lasts."""
        return self.sock.gettimeout() if self.sock is not None else None

    @reply_timeout.setter
    def reply_timeout(self, seconds: float | None) -> None:
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._connection

    def auth(self, mechanism: str, authobject: Any, *, initial_response_ok: bool = True) -> tuple[int, bytes]:
        """Log in. A refused password is not tried with a second mechanism, because servers count failed logins."""
        if self._login_error is not None:
            raise self._login_error
        try:
            return super().auth(mechanism, authobject, initial_response_ok=initial_response_ok)
        except smtplib.SMTPAuthenticationError as error:
            if error.smtp_code == _WRONG_PASSWORD:
                self._login_error = error
            raise

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _LimitedReader(self.sock.makefile("rb"))
        return super().getreply()


class _LimitedReader:
    """Reads lines of a file, up to MAX_REPLY_BYTES in total."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAX_REPLY_BYTES

    def readline(self, size: int = -1) -> bytes:
        line = self._file.readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("the server sends too much data")
        return line

    def close(self) -> None:
        self._file.close()


async def _connect(addresses: Sequence[str], account: MailAccount, ends_at: float) -> socket.socket:
    """Connect to the first address that answers and return the socket. Raises ToolError."""
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    for address in addresses[:MAX_ADDRESSES]:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            async with asyncio.timeout_at(min(ends_at, loop.time() + STEP_TIMEOUT)):
                await loop.sock_connect(connection, (address, account.port))
            return connection
        except OSError as error:  # a TimeoutError is an OSError
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
    raise _connection_error(account, retryable=True) from last


def _with_tool_errors(work: Callable[[], T]) -> Callable[[], T]:
    """Return a function that does the work and raises its errors as ToolError."""

    def run() -> T:
        try:
            return work()
        except smtplib.SMTPAuthenticationError as error:
            if 400 <= error.smtp_code < 500:
                raise _reply_error(error.smtp_code, error.smtp_error) from error
            raise ToolError(LOGIN_REFUSED) from error
        except smtplib.SMTPResponseException as error:
            raise _reply_error(error.smtp_code, error.smtp_error) from error
        except UnicodeError as error:
            raise ToolError("Unexpected error: the user name or password contains characters outside ASCII.") from error
        except smtplib.SMTPServerDisconnected as error:
            raise ToolError(f"SMTP error occurred: {error}", retryable=True) from error
        except smtplib.SMTPException as error:  # a missing feature of the server, which a retry does not add
            raise ToolError(f"SMTP error occurred: {error}") from error
        except OSError as error:
            raise ToolError(f"SMTP error occurred: {error.strerror or error}", retryable=True) from error

    return run


def _check_reply(answer: tuple[int, bytes]) -> None:
    """Raise ToolError if the status of a reply is not 2xx."""
    if not 200 <= answer[0] < 300:
        raise _reply_error(*answer)


def _reply_error(code: int, text: bytes | str) -> ToolError:
    """Return a server's reply as an error; 4xx replies are temporary and therefore retryable."""
    return ToolError(f"SMTP error occurred: {_format_reply(code, text)}", retryable=400 <= code < 500)


def _format_reply(code: int, text: bytes | str) -> str:
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {' '.join(decoded.split())}"[:300]


def _connection_error(account: MailAccount, reason: str = "", *, retryable: bool = False) -> ToolError:
    text = f"Failed to connect to SMTP server {account.host}:{account.port}{reason}"
    return ToolError(text, retryable=retryable)
