"""What a run tells although it did not fail."""

from canvas import budget, notices
from canvas.notices import Notice
from canvas.outcome import Finished
from store import outcomes


def test_warnings_of_a_step_are_stored_once_each_and_bounded():
    many = [Notice("a", "x" * 10_000), Notice("a", "x" * 10_000), *(Notice("b", str(n)) for n in range(100))]

    column = outcomes.to_column(Finished(), error=None, retake=False, spoke=False, warnings=many)

    stored = notices.warnings_in(column)
    assert stored[0] == {"code": "a", "message": "x" * notices.LONGEST}
    assert [each["message"] for each in stored[1:3]] == ["0", "1"]
    assert len(stored) == notices.MOST
    assert outcomes.from_column(column).outcome == Finished()


def test_step_without_warnings_stores_nothing_of_them():
    column = outcomes.to_column(Finished(), error=None, retake=False, spoke=False)

    assert (notices.warnings_in(column), notices.warnings_in(None)) == ([], [])
    assert notices.WARNINGS not in column


def test_counts_of_a_run_are_no_usage_where_usage_is_shown():
    usage = {"calls": 2, notices.WARNINGS: 1, notices.MODEL_ERRORS: 1}

    assert budget.told_usage(usage) == {"calls": 2}
    assert (notices.has_model_error(usage), notices.has_model_error({"calls": 2})) == (True, False)
