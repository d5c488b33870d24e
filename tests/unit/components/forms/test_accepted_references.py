"""The references that the editor is tested to offer are those that validation accepts."""

from tests.accepted_references import PATH, RENEW, accepted_text


def test_references_that_the_editor_must_offer_are_those_that_validation_accepts() -> None:  # T155
    assert PATH.read_text() == accepted_text(), f"{PATH.name} is stale: {RENEW}"
