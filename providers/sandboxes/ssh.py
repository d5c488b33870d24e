"""A sandbox on another machine over SSH. Each program has a folder, which is removed when the program is done.

The program runs as the user of the account in a process group of its own, with an empty environment and the limits of
the shell. The group is killed when the program has ended, has timed out or was cancelled. The program may do whatever
the user of the account may do: the machine is the boundary. Implements `providers.interfaces.Sandbox`.

The connection goes to an address that was checked here, and the host's key must be known under the host's own name.
"""

import asyncio

from pydantic import Field, SecretStr, model_validator

from canvas.errors import ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked
from providers.interfaces import Program, ProgramResult
from providers.sandboxes.settings import SandboxSettings

CANCEL_TIMEOUT = 2.0  # for killing a cancelled program; after that it continues in the background
LANGUAGES = frozenset({"python", "nodejs"})


class SshSettings(SandboxSettings):
    """Settings of the SSH sandbox. `private_key` and `known_hosts` are text, or the path of a file on each worker."""

    host: str = Field(min_length=1)
    port: int = Field(default=22, ge=1, le=65535)
    username: str = Field(min_length=1)
    password: SecretStr | None = None
    private_key: SecretStr | None = None
    passphrase: SecretStr | None = None
    known_hosts: str | None = None
    python_bin: str = Field(default="python3", min_length=1)
    node_bin: str = Field(default="node", min_length=1)
    work_dir: str = Field(default="/tmp", pattern=r"^/")  # noqa: S108 (mktemp makes a folder of its own in it)
    timeout: float = Field(default=30.0, ge=1, le=600)  # seconds of a program
    max_memory_mb: int = Field(default=512, ge=16)

    @model_validator(mode="after")
    def _can_log_in(self) -> "SshSettings":
        if not self.password and not self.private_key:
            raise ValueError("set a password or a private_key")
        return self


class SshSandbox:
    """One account on one machine. Programs may reach whatever the machine reaches, so no program is run twice."""

    def __init__(
        self, settings: SshSettings, guard: Guard, *, resolve: Resolve = address_policy.resolve_in_thread
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._resolve = resolve
        self._executions = set[asyncio.Task[ProgramResult]]()  # asyncio keeps no reference to a running task

    @property
    def is_repeatable(self) -> bool:
        """Return False: a program may change things outside of the sandbox."""
        return False

    async def run(self, program: Program) -> ProgramResult:
        """Run a program and return its result. Raises ToolError if it could not be run or exceeded its timeout."""
        settings = self._settings
        if program.language not in LANGUAGES:
            raise ToolError(f"The sandbox cannot run {program.language}.")
        addresses = await resolve_checked(
            settings.host, settings.port, self._guard, trusted=True, resolve=self._resolve
        )
        try:
            from providers.sandboxes.ssh_execution import execute
        except ImportError as error:
            raise ToolError('The ssh sandbox needs the extra "ssh" on every worker: pip install easel[ssh]') from error
        execution = asyncio.create_task(execute(settings, addresses, program))
        self._executions.add(execution)
        execution.add_done_callback(self._executions.discard)
        try:
            return await asyncio.shield(execution)
        except asyncio.CancelledError:
            execution.cancel()
            await asyncio.wait({execution}, timeout=CANCEL_TIMEOUT)
            raise
