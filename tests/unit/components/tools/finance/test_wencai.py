"""WenCai has no back-end, and says so."""

from components.tools.finance.wencai import WENCAI
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, outputs_of

UNAVAILABLE = "WenCai is not available in this deployment"


def test_a_question_fails_with_a_clear_text():
    assert error_of(WENCAI, {"query": "银行股"}, FakeHttp(no_network)) == UNAVAILABLE
    assert by_model(WENCAI, {}, {"query": "q"}, FakeHttp(no_network)).answer == f"WenCai error: {UNAVAILABLE}"


def test_without_a_question_the_report_is_empty():
    assert outputs_of(WENCAI, {"query": ""}, FakeHttp(no_network)) == {"report": ""}
