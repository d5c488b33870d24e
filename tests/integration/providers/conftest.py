"""What isolates the programs of the local sandbox: tests that use `bubblewrap` run with it and without it."""

import asyncio
import functools

import pytest

from providers.sandboxes.bubblewrap import find_bubblewrap
from providers.sandboxes.local import Isolation, examine_isolation


@pytest.fixture(params=["bwrap", ""], ids=["bubblewrap", "own isolation"])
def bubblewrap(request: pytest.FixtureRequest) -> str:
    """Return the argument of LocalSandbox; skip the test with bubblewrap if bubblewrap does not work here."""
    found = find_bubblewrap(request.param)
    if request.param and (found is None or found.defect):
        pytest.skip(f"bubblewrap does not work here: {found.defect}" if found else "bubblewrap is not installed here")
    return request.param


@pytest.fixture
def is_isolated(bubblewrap: str) -> None:
    """Skip the test if it runs without bubblewrap and the kernel does not let the child isolate itself."""
    if not bubblewrap and (defect := isolation().defect):
        pytest.skip(f"no isolation here: {defect}")


@functools.cache
def isolation() -> Isolation:
    return asyncio.run(examine_isolation(""))
