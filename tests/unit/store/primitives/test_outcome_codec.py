"""An outcome comes back from its column as it went in, but for the values."""

from canvas.outcome import POSTPONED, Failed, Finished, MessageEnd
from store.primitives import outcome_codec


def test_the_end_of_a_message_comes_back_whole():
    end = MessageEnd(
        status=201,
        attachment={"doc_id": "d", "format": "pdf", "file_name": "d.pdf"},
        downloads=({"doc_id": "d"},),
        reference={"chunks": {"7": {"id": "c"}}, "doc_aggs": {}},
    )

    column = outcome_codec.encode_outcome(
        Finished(outputs={"content": "x"}, end=end), error=None, retake=False, spoke=True
    )

    assert outcome_codec.decode_outcome(column).outcome == Finished(end=end)
    assert "content" not in column


def test_an_end_that_says_nothing_is_an_end():
    column = outcome_codec.encode_outcome(Finished(end=MessageEnd()), error=None, retake=False, spoke=False)

    assert column == {"is": "Finished", "ends": True}
    assert outcome_codec.decode_outcome(column).outcome == Finished(end=MessageEnd())


def test_what_was_put_off_says_for_how_long():
    postponed = Failed("waits for the allowance of Acme", POSTPONED, retryable=True, again_in=12.5)

    column = outcome_codec.encode_outcome(postponed, error=None, retake=False, spoke=False)

    assert outcome_codec.decode_outcome(column).outcome == postponed
