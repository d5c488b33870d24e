"""Which parts of the fast path a worker uses, from the settings."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol


class FastPathSettings(Protocol):
    """The settings of the fast path; `settings.Settings` has them all."""

    @property
    def fast_path(self) -> bool: ...
    @property
    def continue_locally_for(self) -> timedelta: ...
    @property
    def cache_run_state(self) -> bool: ...
    @property
    def cache_values(self) -> bool: ...
    @property
    def defer_claims(self) -> bool: ...
    @property
    def fetch_next(self) -> bool: ...
    @property
    def batch_claims(self) -> bool: ...
    @property
    def batch_reports(self) -> bool: ...
    @property
    def admission_control(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FastPath:
    """Which parts of the fast path (docs/protocol.md#the-fast-path) a worker uses.

    Every combination gives the same results.
    """

    continue_locally_for: timedelta = timedelta(0)
    cache_run_state: bool = True
    cache_values: bool = True
    defer_claims: bool = True
    fetch_next: bool = True
    batch_claims: bool = True
    batch_reports: bool = True
    admission_control: bool = True

    @property
    def continues_locally(self) -> bool:
        """Whether a thread executes the next activation of its run itself."""
        return self.continue_locally_for > timedelta(0)


NO_FAST_PATH = FastPath(
    continue_locally_for=timedelta(0),
    cache_run_state=False,
    cache_values=False,
    defer_claims=False,
    fetch_next=False,
    batch_claims=False,
    batch_reports=False,
    admission_control=False,
)
"""Every part off: every node goes through the queue (docs/tour.md, sections 1 to 6)."""


def fast_path_of(settings: FastPathSettings) -> FastPath:
    """Return the parts that are on. `fast_path` off turns off all of them."""
    if not settings.fast_path:
        return NO_FAST_PATH
    return FastPath(
        continue_locally_for=settings.continue_locally_for,
        cache_run_state=settings.cache_run_state,
        cache_values=settings.cache_values,
        defer_claims=settings.defer_claims,
        fetch_next=settings.fetch_next,
        batch_claims=settings.batch_claims,
        batch_reports=settings.batch_reports,
        admission_control=settings.admission_control,
    )
