"""SMTP client of the component Email: checked hosts and always TLS, over aiosmtplib.

    async with MailServers(guard).connect(account) as session:
        refused = await session.set_envelope("me@example.com", ["you@example.com"])
        await session.deliver(message)

Implements `providers.interfaces.Mail`. Cancelling the caller closes the connection. Nothing is sent before the server
has accepted the DATA command. After that only the server's last reply says whether the message was accepted; if that
reply does not come, the error is a DeliveryUnknown (docs/decisions/0022-emails-are-sent-once.md).
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property

import aiosmtplib

from canvas.errors import AddressRefused, ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, connect_first, resolve_checked
from providers.interfaces import DeliveryUnknown, MailAccount

PORTS = frozenset({25, 465, 587, 2525})
MAX_ADDRESSES = 3  # addresses of one host that are tried
STEP_TIMEOUT = 10.0  # for connecting to an address, and for each reply of a server except the last one
LOGIN_REFUSED = "SMTP Authentication failed. Please check your SMTP username(email) and authorization code."

_LEADING_DOT = re.compile(rb"(?m)^\.")
_START, _WRONG_PASSWORD = 354, 535


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
        tls = await asyncio.to_thread(lambda: self._tls)  # reads the system's certificates at first
        session = SmtpSession(_client(await _connect(addresses, account, ends_at), account, tls), ends_at)
        try:
            await session.open(account)
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
    """One SMTP session, which ends at `ends_at` (a time of the event loop)."""

    def __init__(self, client: aiosmtplib.SMTP, ends_at: float) -> None:
        self._client = client
        self._ends_at = ends_at

    async def open(self, account: MailAccount) -> None:
        """Read the greeting, start TLS, log in. Raises ToolError."""
        with _tool_errors():
            async with asyncio.timeout_at(self._ends_at):
                with _connection_errors(account):
                    await self._client.connect()
                    if not account.tls:
                        await self._client.starttls()
                await self._login(account)

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        """Send sender and recipients; return the server's reply for each refused recipient.

        Raises ToolError if the server refuses all recipients.
        """
        with _tool_errors():
            async with asyncio.timeout_at(self._ends_at):
                with _accept_2xx():
                    await self._client.mail(sender)
                refused = {address: error for address in recipients if (error := await self._refusal(address))}
        if len(refused) == len(recipients):
            reasons = "; ".join(f"{recipient}: {_format_reply(error)}" for recipient, error in refused.items())
            may_pass = all(400 <= error.code < 500 for error in refused.values())
            raise ToolError(f"SMTP error occurred: {reasons}", retryable=may_pass)
        return {recipient: _format_reply(error) for recipient, error in refused.items()}

    async def deliver(self, message: bytes) -> None:
        """Send the message. Raises ToolError if the server refuses it, DeliveryUnknown if the result is not known."""
        with _tool_errors():
            async with asyncio.timeout_at(self._ends_at):
                start = await self._client.execute_command(b"DATA")
            if start.code != _START:
                raise aiosmtplib.SMTPDataError(*start)
        answer = await self._hand_over(message)
        if not 200 <= answer.code < 300:
            raise _reply_error(aiosmtplib.SMTPDataError(*answer))

    async def _hand_over(self, message: bytes) -> aiosmtplib.SMTPResponse:
        """Send the data and return the server's reply. Raises DeliveryUnknown without a valid one."""
        protocol = self._client.protocol
        try:
            if protocol is None:
                raise aiosmtplib.SMTPServerDisconnected("Connection lost")
            async with asyncio.timeout_at(self._ends_at):
                protocol.write(_LEADING_DOT.sub(b"..", message.removesuffix(b"\r\n")) + b"\r\n.\r\n")
                answer = await protocol.read_response()
        except (OSError, aiosmtplib.SMTPException) as error:
            raise DeliveryUnknown from error
        if not 200 <= answer.code < 600:
            raise DeliveryUnknown
        return answer

    async def _login(self, account: MailAccount) -> None:
        """Log in. A refused password is not tried with a second mechanism, because servers count failed logins."""
        await self._client.ehlo()
        ways = {
            "cram-md5": self._client.auth_crammd5,
            "plain": self._client.auth_plain,
            "login": self._client.auth_login,
        }
        refused: aiosmtplib.SMTPAuthenticationError | None = None
        for name in self._client.supported_auth_methods:
            try:
                await ways[name](account.username, account.password)
                return
            except aiosmtplib.SMTPAuthenticationError as error:
                refused = error
                if error.code == _WRONG_PASSWORD:
                    break
        raise refused or aiosmtplib.SMTPException("The server offers no way to log in that is supported.")

    async def _refusal(self, recipient: str) -> aiosmtplib.SMTPRecipientRefused | None:
        """Name a recipient; return the server's reply if it refuses it."""
        try:
            await self._client.rcpt(recipient)
        except aiosmtplib.SMTPRecipientRefused as error:
            return None if 200 <= error.code < 300 else error
        return None

    def close(self) -> None:
        """Say QUIT if the connection is intact, and close it without waiting for the reply."""
        with suppress(aiosmtplib.SMTPException, OSError):
            if self._client.protocol is not None:
                self._client.protocol.write(b"QUIT\r\n")
        self._client.close()


def _client(connection: socket.socket, account: MailAccount, tls: ssl.SSLContext) -> aiosmtplib.SMTP:
    name = connection.getsockname()[0]
    return aiosmtplib.SMTP(
        hostname=account.host,  # the name that the certificate must contain
        sock=connection,
        use_tls=account.tls,
        start_tls=False,  # `SmtpSession.open` starts it
        tls_context=tls,
        local_hostname=f"[IPv6:{name}]" if ":" in name else f"[{name}]",
        timeout=STEP_TIMEOUT,
    )


async def _connect(addresses: Sequence[str], account: MailAccount, ends_at: float) -> socket.socket:
    """Connect to the first address that answers and return the socket. Raises ToolError."""
    try:
        async with asyncio.timeout_at(ends_at):
            return await connect_first(addresses[:MAX_ADDRESSES], account.port, STEP_TIMEOUT)
    except OSError as error:
        raise _connection_error(account, retryable=True) from error


@contextmanager
def _connection_errors(account: MailAccount) -> Generator[None]:
    """Convert errors of connecting and of TLS to ToolError."""
    try:
        yield
    except aiosmtplib.SMTPConnectResponseError:
        raise  # the server answers, and says why it refuses
    except (OSError, ssl.SSLError) as error:
        match error if isinstance(error, ssl.SSLError) else error.__cause__:
            case ssl.SSLCertVerificationError() as tls_error:
                reason = f": its certificate is not trusted: {tls_error.verify_message}"
                raise _connection_error(account, reason) from error
            case ssl.SSLError() as tls_error:
                raise _connection_error(account, f": there is no TLS: {tls_error.reason}") from error
            case _:
                raise _connection_error(account, retryable=True) from error


@contextmanager
def _tool_errors() -> Generator[None]:
    """Convert errors of the session to ToolError."""
    try:
        yield
    except aiosmtplib.SMTPAuthenticationError as error:
        if 400 <= error.code < 500:
            raise _reply_error(error) from error
        raise ToolError(LOGIN_REFUSED) from error
    except aiosmtplib.SMTPResponseException as error:
        raise _reply_error(error) from error
    except TimeoutError as error:
        raise ToolError("SMTP error occurred: the server took too long", retryable=True) from error
    except OSError as error:  # aiosmtplib's SMTPServerDisconnected is one
        raise ToolError(f"SMTP error occurred: {error.strerror or error}", retryable=True) from error
    except aiosmtplib.SMTPException as error:  # a missing feature of the server, which a retry does not add
        raise ToolError(f"SMTP error occurred: {error}") from error


@contextmanager
def _accept_2xx() -> Generator[None]:
    """Accept every 2xx reply; aiosmtplib accepts 250 only."""
    try:
        yield
    except aiosmtplib.SMTPResponseException as error:
        if not 200 <= error.code < 300:
            raise


def _reply_error(error: aiosmtplib.SMTPResponseException) -> ToolError:
    """Return a server's reply as an error; 4xx replies are temporary and therefore retryable."""
    return ToolError(f"SMTP error occurred: {_format_reply(error)}", retryable=400 <= error.code < 500)


def _format_reply(error: aiosmtplib.SMTPResponseException) -> str:
    printable = error.message.encode("utf-8", "replace").decode("utf-8")  # a reply that is not UTF-8 has surrogates
    return f"{error.code} {' '.join(printable.split())}"[:300]


def _connection_error(account: MailAccount, reason: str = "", *, retryable: bool = False) -> ToolError:
    text = f"Failed to connect to SMTP server {account.host}:{account.port}{reason}"
    return ToolError(text, retryable=retryable)
