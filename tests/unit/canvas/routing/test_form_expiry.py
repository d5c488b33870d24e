"""How long a form waits, where its canvas says so."""

from datetime import timedelta
from typing import Any

import pytest

from canvas.routing.form_expiry import expires_after, expiry_error, format_time
from tests.builders import canvas_of
from tests.player import Player

USUAL = timedelta(days=30)


@pytest.mark.parametrize(
    ("written", "time"),
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
def test_a_time_is_seconds_or_a_text_with_a_unit(written: Any, time: timedelta | None):
    assert expires_after({"expires_after": written}) == time


@pytest.mark.parametrize("written", ["soon", "d", "7 days", "-1", -1, 0, "0s", True, [], 1e300, float("nan"), "60w"])
def test_everything_else_is_refused(written: Any):
    with pytest.raises(ValueError, match="is not a valid time"):
        expires_after({"expires_after": written})


@pytest.mark.parametrize(
    ("time", "words"),
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
def test_a_time_in_words(time: timedelta, words: str):
    assert format_time(time) == words


def test_the_form_whose_time_is_over_first_is_the_reason():
    canvas = canvas_of("begin -> form, formb, formc", formb={"expires_after": "2d"}, formc={"expires_after": "1d"})

    assert expiry_error(canvas, ["form", "formb"], USUAL) == (
        'The form "formb" (formb) was not answered within 2 days.'
    )
    assert expiry_error(canvas, ["form", "formb", "formc"], USUAL) == (
        'The form "formc" (formc) was not answered within 1 day.'
    )
    assert expiry_error(canvas, ["form", "formb"], timedelta(hours=1)) is None
    assert expiry_error(canvas, ["form"], USUAL) is None


def test_a_question_says_how_long_each_of_its_forms_waits():
    canvas = canvas_of(
        "begin -> form, formb, formc", formb={"expires_after": "2d"}, formc={"expires_after": "when it suits you"}
    )

    assert Player(canvas).play().expiries == [None, timedelta(days=2), None]
