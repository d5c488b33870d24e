"""An SSH server for tests, which really runs the commands that it receives, in a folder.

with SshMachine(folder) as machine:
    ...  # connect to 127.0.0.1, machine.port, with machine.known_hosts and machine.user_key
"""

import io
import os
import signal
import socket
import stat
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import paramiko

USER, PASSWORD = "runner", "p4ss 'word\""


class SshMachine:
    """Listens on loopback. `commands` are the received commands, `groups` their process groups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []
        self.groups: list[int] = []
        self.host_key = paramiko.ECDSAKey.generate()
        self._user_key = paramiko.RSAKey.generate(2048)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._transports: list[paramiko.Transport] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def known_hosts(self, host: str = "127.0.0.1", key: paramiko.PKey | None = None) -> str:
        key = key or self.host_key
        return f"[{host}]:{self.port} {key.get_name()} {key.get_base64()}\n"

    def user_key(self, passphrase: str | None = None) -> str:
        text = io.StringIO()
        self._user_key.write_private_key(text, passphrase)
        return text.getvalue()

    def knows(self, key: paramiko.PKey) -> bool:
        return key.get_base64() == self._user_key.get_base64()

    def __enter__(self) -> "SshMachine":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        for transport in self._transports:
            transport.close()
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                transport = _Transport(connection)
                transport.add_server_key(self.host_key)
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
                self._transports.append(transport)
                with suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=_Server(self))


class _Server(paramiko.ServerInterface):
    def __init__(self, machine: SshMachine) -> None:
        self._machine = machine

    def get_allowed_auths(self, username: str) -> str:
        return "password,publickey"

    def check_auth_password(self, username: str, password: str) -> int:
        is_valid = (username, password) == (USER, PASSWORD)
        return paramiko.AUTH_SUCCESSFUL if is_valid else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        is_valid = username == USER and self._machine.knows(key)
        return paramiko.AUTH_SUCCESSFUL if is_valid else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._machine.commands.append(command.decode())
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], cwd=self._machine.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._machine.groups.append(process.pid)
        forwarding = threading.Thread(target=_forward_output, args=(channel, process), daemon=True)
        assert isinstance(channel.transport, _Transport)
        channel.transport.start_after_reply.append(forwarding)
        return True


class _Transport(paramiko.Transport):
    """A transport that starts threads after its next message, which is the reply to a request.

    A short command could otherwise end and close its channel before the client is told that it has begun.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.start_after_reply: list[threading.Thread] = []

    def _send_user_message(self, data: Any) -> None:
        super()._send_user_message(data)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        while self.start_after_reply:
            self.start_after_reply.pop().start()


class _Files(paramiko.SFTPServerInterface):
    """SFTP access to the files of the machine."""

    def list_folder(self, path: str) -> Any:
        try:
            return [
                paramiko.SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name)
                for entry in os.scandir(path)
            ]
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)

    def stat(self, path: str) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.stat(path))

    def open(self, path: str, flags: int, attr: Any) -> Any:
        handle = paramiko.SFTPHandle(flags)
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        try:
            if not writes and not stat.S_ISREG(os.stat(path).st_mode):
                return paramiko.SFTP_FAILURE
            file = open(path, "wb+" if writes else "rb")  # noqa: SIM115 (the handle closes it)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno or 0)
        handle.readfile = handle.writefile = file  # pyright: ignore[reportAttributeAccessIssue]
        handle.stat = lambda: paramiko.SFTPAttributes.from_stat(os.fstat(file.fileno()))
        return handle


def _forward_output(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    threads = [
        threading.Thread(target=_forward, args=(process.stdout, channel.sendall), daemon=True),
        threading.Thread(target=_forward, args=(process.stderr, channel.sendall_stderr), daemon=True),
    ]
    for thread in threads:
        thread.start()
    code = process.wait()
    with suppress(OSError, EOFError):
        channel.send_exit_status(code if code >= 0 else 255)
    for thread in threads:  # other processes may still have the pipes open
        thread.join()
    channel.close()


def _forward(source: Any, send: Any) -> None:
    with suppress(OSError, EOFError, ValueError):
        while data := os.read(source.fileno(), 65536):
            send(data)
