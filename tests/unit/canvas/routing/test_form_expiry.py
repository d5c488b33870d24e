"""The time after which a form expires, as its canvas sets it."""

from datetime import timedelta
from typing import Any

import pytest

from canvas.routing.form_expiry import expires_after, expiry_error, format_time
from tests.builders import canvas_of
from tests.player import Player

DEFAULT_EXPIRY = timedelta(days=30)


@pytest.mark.parametrize(
    ("written", "expiry"),
    [
        (90, timedelta(seconds=90)),
        (0.5, timedelta(seconds=0.5)),
        ("90", timedelta(seconds=90)),
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("12H", timedelta(hours=12)),
        (" 7 d ", timedelta(days=7)),
        ("1.5h", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
        (None, None),
        ("", None),
    ],
)
def test_form_expiry_is_a_number_of_seconds_or_a_text_with_a_unit(written: Any, expiry: timedelta | None):
    assert expires_after({"expires_after": written}) == expiry


@pytest.mark.parametrize("written", ["soon", "d", "7 days", "-1", -1, 0, "0s", True, [], 1e300, float("nan"), "60w"])
def test_invalid_form_expiry_is_refused(written: Any):
    with pytest.raises(ValueError, match="is not a valid time"):
        expires_after({"expires_after": written})


@pytest.mark.parametrize(
    ("expiry", "formatted"),
    [
        (timedelta(days=7), "7 days"),
        (timedelta(hours=24), "1 day"),
        (timedelta(hours=36), "36 hours"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(seconds=90), "90 seconds"),
        (timedelta(seconds=1), "1 second"),
        (timedelta(seconds=0.5), "0.5 seconds"),
    ],
)
def test_form_expiry_is_formatted_in_its_largest_whole_unit(expiry: timedelta, formatted: str):
    assert format_time(expiry) == formatted


def test_expiry_error_names_the_form_that_expires_first():
    canvas = canvas_of("begin -> form, formb, formc", formb={"expires_after": "2d"}, formc={"expires_after": "1d"})

    assert expiry_error(canvas, ["form", "formb"], DEFAULT_EXPIRY) == (
        'The form "formb" (formb) was not answered within 2 days.'
    )
    assert expiry_error(canvas, ["form", "formb", "formc"], DEFAULT_EXPIRY) == (
        'The form "formc" (formc) was not answered within 1 day.'
    )
    assert expiry_error(canvas, ["form", "formb"], timedelta(hours=1)) is None
    assert expiry_error(canvas, ["form"], DEFAULT_EXPIRY) is None


def test_decision_that_shows_forms_contains_their_expiries():
    canvas = canvas_of(
        "begin -> form, formb, formc", formb={"expires_after": "2d"}, formc={"expires_after": "when it suits you"}
    )

    assert Player(canvas).play().form_expiries == [None, timedelta(days=2), None]
