"""Encoding of outcomes for their column, and decoding without the values."""

from canvas.outcome import POSTPONED, Failed, Finished, MessageEnd
from store.primitives import outcome_codec


def test_message_end_is_decoded_completely():
    end = MessageEnd(
        status=201,
        attachment={"doc_id": "d", "format": "pdf", "file_name": "d.pdf"},
        downloads=({"doc_id": "d"},),
        reference={"chunks": {"7": {"id": "c"}}, "doc_aggs": {}},
    )

    column = outcome_codec.encode_outcome(
        Finished(outputs={"content": "x"}, end=end), error=None, restarts_text=False, has_written=True
    )

    assert outcome_codec.decode_outcome(column).outcome == Finished(end=end)
    assert "content" not in column


def test_empty_message_end_is_decoded_as_a_message_end():
    column = outcome_codec.encode_outcome(
        Finished(end=MessageEnd()), error=None, restarts_text=False, has_written=False
    )

    assert column == {"is": "Finished", "ends": True}
    assert outcome_codec.decode_outcome(column).outcome == Finished(end=MessageEnd())


def test_postponed_failure_keeps_its_delay():
    postponed = Failed("waits for the allowance of Acme", POSTPONED, retryable=True, retry_in=12.5)

    column = outcome_codec.encode_outcome(postponed, error=None, restarts_text=False, has_written=False)

    assert outcome_codec.decode_outcome(column).outcome == postponed
