"""Creates the sandbox that the deployment's settings name.

    sandbox = create_sandbox("ssh", '{"host": "...", "username": "...", ...}', http, guard)

Each set of settings gives one immutable provider. If settings are invalid, running a program fails with the reason,
and everything else in the worker keeps working.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.interfaces import Program, ProgramResult, Sandbox, StreamingHttp
from providers.sandboxes.aliyun import AliyunSandbox, AliyunSettings
from providers.sandboxes.e2b import E2BSandbox, E2BSettings
from providers.sandboxes.local import LocalSandbox, ProgramLimits
from providers.sandboxes.managed import ManagedSandbox
from providers.sandboxes.settings import InvalidSandboxSettings, SandboxSettings, read_settings
from providers.sandboxes.ssh import SshSandbox, SshSettings

MIB = 1024 * 1024


class LocalSettings(SandboxSettings):
    """Settings of the local sandbox. `python_bin` None means the worker's own interpreter."""

    python_bin: str | None = None
    node_bin: str = Field(default="node", min_length=1)
    work_dir: Path | None = None
    timeout: float = Field(default=30.0, ge=1, le=600)  # seconds of a program
    max_memory_mb: int = Field(default=512, ge=16)
    max_output_bytes: int = Field(default=MIB, gt=0)
    must_isolate: bool = False
    allow_root: bool = False


class ManagerSettings(SandboxSettings):
    """Settings of an executor manager."""

    endpoint: str = Field(default="http://sandbox-executor-manager:9385", pattern=r"^https?://")
    timeout: float = Field(default=30.0, ge=1, le=600)  # seconds of a program
    max_retries: int = Field(default=3, ge=0, le=10)


class MisconfiguredSandbox:
    """Replaces a provider whose settings are invalid."""

    def __init__(self, refusal: InvalidSandboxSettings) -> None:
        self._message = refusal.message

    @property
    def is_repeatable(self) -> bool:
        """Return True: no program is ever run."""
        return True

    async def run(self, program: Program) -> ProgramResult:
        """Raise a ToolError that says what is wrong with the settings."""
        raise ToolError(self._message)


def create_sandbox(
    provider: str, config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any] | None = None
) -> Sandbox | None:
    """Return the sandbox of a provider; None for `none`. `config` is a JSON object that overrides `defaults`."""
    make = _PROVIDERS.get(provider)
    if make is None:
        return None
    try:
        return make(config, http, guard, {name: value for name, value in (defaults or {}).items() if value is not None})
    except InvalidSandboxSettings as refusal:
        return MisconfiguredSandbox(refusal)


def read_local_settings(config: str, defaults: Mapping[str, Any]) -> LocalSettings:
    """Return the settings of the local sandbox. Raises InvalidSandboxSettings."""
    return read_settings(LocalSettings, "local", config, **defaults)


def _local(config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any]) -> Sandbox:
    settings = read_local_settings(config, defaults)
    limits = ProgramLimits(
        seconds=settings.timeout, memory=settings.max_memory_mb * MIB, output=settings.max_output_bytes
    )
    named = {"python": settings.python_bin} if settings.python_bin else {}
    return LocalSandbox(
        node=settings.node_bin,
        work_dir=settings.work_dir,
        limits=limits,
        must_isolate=settings.must_isolate,
        allow_root=settings.allow_root,
        **named,
    )


def _self_managed(config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any]) -> Sandbox:
    settings = read_settings(ManagerSettings, "self_managed", config, **defaults)
    return ManagedSandbox(http, settings.endpoint, seconds=settings.timeout, tries=settings.max_retries + 1)


def _ssh(config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any]) -> Sandbox:
    return SshSandbox(read_settings(SshSettings, "ssh", config), guard)


def _e2b(config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any]) -> Sandbox:
    return E2BSandbox(http, read_settings(E2BSettings, "e2b", config))


def _aliyun(config: str, http: StreamingHttp, guard: Guard, defaults: Mapping[str, Any]) -> Sandbox:
    return AliyunSandbox(http, read_settings(AliyunSettings, "aliyun_codeinterpreter", config))


_PROVIDERS: Mapping[str, Callable[[str, StreamingHttp, Guard, Mapping[str, Any]], Sandbox]] = {
    "local": _local,
    "self_managed": _self_managed,
    "ssh": _ssh,
    "e2b": _e2b,
    "aliyun_codeinterpreter": _aliyun,
}
