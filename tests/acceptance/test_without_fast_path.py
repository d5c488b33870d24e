"""The story of test_story.py once more with `EASEL_FAST_PATH=off`: what exists only for speed changes no result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import running_up
from tests.acceptance.test_story import *  # noqa: F403 (its tests, with the `up` of this module)


@pytest.fixture(scope="module")
def up() -> Iterator[Path]:
    """A home in which `easel up` runs with the fast path off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EASEL_FAST_PATH", "off")
        with running_up() as home:
            yield home
