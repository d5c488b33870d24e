"""WenCai has no back-end, and returns an error."""

from components.tools.finance.wencai import WENCAI
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, outputs_of

UNAVAILABLE = "WenCai is not available in this deployment"


def test_wencai_question_fails_as_not_available():
    assert error_of(WENCAI, {"query": "银行股"}, FakeHttp(no_network)) == UNAVAILABLE
    assert by_model(WENCAI, {}, {"query": "q"}, FakeHttp(no_network)).answer == f"WenCai error: {UNAVAILABLE}"


def test_wencai_report_without_a_question_is_empty():
    assert outputs_of(WENCAI, {"query": ""}, FakeHttp(no_network)) == {"report": ""}
