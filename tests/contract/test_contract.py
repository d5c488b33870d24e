"""A client that a generator makes of the OpenAPI document plays the acceptance story. `make fuzz` does more."""

import pytest

from tests.contract.generated_client import check_generated_client


@pytest.mark.long
def test_generated_client_plays_the_acceptance_story() -> None:
    assert check_generated_client()
