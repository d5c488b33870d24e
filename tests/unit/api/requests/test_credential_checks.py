"""Checks of credentials that are requested at about the same moment are one read."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

import pytest

from api.requests import credential_checks
from api.requests.credential_checks import CredentialChecks
from store.tenants.viewer_sessions import Credential, EndReason

DATABASE = cast("Any", None)


def test_checks_of_the_same_moment_share_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[set[Credential]]()
    valid, ended = Credential(uuid4(), None), Credential(uuid4(), None)

    def find_ended(database: Any, credentials: set[Credential]) -> Mapping[Credential, EndReason]:
        reads.append(credentials)
        return {ended: "signed_out"}

    async def check() -> tuple[Sequence[EndReason | None], EndReason | None]:
        checks = CredentialChecks()
        both = await asyncio.gather(*(checks.find_end(DATABASE, each) for each in (valid, ended, valid)))
        return both, await checks.find_end(DATABASE, ended)

    monkeypatch.setattr(credential_checks, "_find_ended", find_ended)
    first, second = asyncio.run(check())

    assert (first, second) == ([None, "signed_out", None], "signed_out")
    assert reads == [{valid, ended}, {ended}]


def test_error_of_a_read_is_raised_in_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_ended(database: Any, credentials: set[Credential]) -> Mapping[Credential, EndReason]:
        raise OSError("The database is away.")

    async def check() -> list[EndReason | BaseException | None]:
        checks = CredentialChecks()
        some = [checks.find_end(DATABASE, Credential(uuid4(), None)) for _ in range(3)]
        return await asyncio.gather(*some, return_exceptions=True)

    monkeypatch.setattr(credential_checks, "_find_ended", find_ended)

    assert [type(each) for each in asyncio.run(check())] == [OSError] * 3
