"""Warnings of a run that did not fail."""

from canvas import budget, run_warnings
from canvas.outcome import Finished
from canvas.run_warnings import Notice
from store.primitives import outcome_codec


def test_warnings_of_a_step_are_stored_once_each_and_bounded():
    many = [Notice("a", "x" * 10_000), Notice("a", "x" * 10_000), *(Notice("b", str(n)) for n in range(100))]

    column = outcome_codec.encode_outcome(Finished(), error=None, restarts_text=False, has_written=False, warnings=many)

    stored = run_warnings.warnings_in(column)
    assert stored[0] == {"code": "a", "message": "x" * run_warnings.MAX_WARNING_LENGTH}
    assert [each["message"] for each in stored[1:3]] == ["0", "1"]
    assert len(stored) == run_warnings.MAX_WARNINGS
    assert outcome_codec.decode_outcome(column).outcome == Finished()


def test_step_without_warnings_stores_no_warnings_field():
    column = outcome_codec.encode_outcome(Finished(), error=None, restarts_text=False, has_written=False)

    assert (run_warnings.warnings_in(column), run_warnings.warnings_in(None)) == ([], [])
    assert run_warnings.WARNINGS not in column


def test_warning_counts_of_a_run_are_left_out_of_its_usage():
    usage = {"calls": 2, run_warnings.WARNINGS: 1, run_warnings.MODEL_ERRORS: 1}

    assert budget.usage_json(usage) == {"calls": 2}
    assert (run_warnings.has_model_error(usage), run_warnings.has_model_error({"calls": 2})) == (True, False)
