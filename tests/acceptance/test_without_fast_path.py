"""The tests of test_story.py with `EASEL_FAST_PATH=off`: the fast path changes no result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import run_easel_up
from tests.acceptance.test_story import *  # noqa: F403 (its tests, with the `up` of this module)

pytestmark = pytest.mark.long  # one more `easel up`


@pytest.fixture(scope="module")
def up() -> Iterator[Path]:
    """A home in which `easel up` runs with the fast path off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EASEL_FAST_PATH", "off")
        with run_easel_up() as home:
            yield home
