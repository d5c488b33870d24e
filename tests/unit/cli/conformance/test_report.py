"""The output of `easel conformance`."""

import json

from cli.conformance.compare.compare import Difference
from cli.conformance.report import (
    FailedCase,
    PassedCase,
    SkippedCase,
    failure_line,
    has_failures,
    report_json,
    totals_line,
)
from cli.shell.value_pairs import NOTHING


def test_a_failing_case_is_one_line_with_its_first_difference():
    long = "x" * 500
    verdict = FailedCase("case", Difference(2, "answer", f"{long}\none", f"{long}\ntwo"))

    line = failure_line(verdict)

    assert line.startswith("case: run 2, answer: expected ...")
    assert '\\none"' in line
    assert '\\ntwo"' in line
    assert "\n" not in line


def test_the_report_ends_with_totals():
    verdicts = [PassedCase("a"), FailedCase("b", "boom\nhere"), SkippedCase("c", "needs Browser"), PassedCase("d")]

    assert failure_line(verdicts[1]) == "b: boom here"
    assert totals_line(verdicts) == "2 passed, 1 failed, 1 skipped"
    assert has_failures(verdicts)
    assert not has_failures([PassedCase("a"), SkippedCase("c", "needs Browser")])


def test_json_report_has_every_verdict():
    report = report_json(
        [PassedCase("a"), FailedCase("b", Difference(1, "events", "x", NOTHING)), SkippedCase("c", "r")]
    )

    assert json.loads(report) == [
        {"case": "a", "verdict": "passed"},
        {"case": "b", "verdict": "failed", "run": 1, "where": "events", "expected": "x"},
        {"case": "c", "verdict": "skipped", "reason": "r"},
    ]
