"""The data of a `message_end` event: what a Message returns in addition to its text."""

from canvas.events.run_events import message_end_data
from canvas.outcome import Finished, MessageEnd
from tests.builders import canvas_of, script_of
from tests.player import Player

ATTACHMENT = {"doc_id": "d", "format": "pdf", "file_name": "d.pdf"}
REFERENCE = {"chunks": {"7": {"id": "c"}}, "doc_aggs": {"a.pdf": {"doc_name": "a.pdf", "count": 1}}}


def test_message_end_contains_attachment_and_reference():
    end = MessageEnd(attachment=ATTACHMENT, reference=REFERENCE)
    player = Player(canvas_of("begin -> say"), script_of(say=Finished(end=end))).play()

    (body,) = [event.body for event in player.events if event.name == "message_end"]
    assert message_end_data(body) == {"attachment": ATTACHMENT, "reference": REFERENCE}


def test_message_end_data_is_stored_until_its_stream_opens():
    sayb = Finished(end=MessageEnd(reference=REFERENCE))
    player = Player(canvas_of("begin -> a, b; a -> saya; b -> sayb"), script_of(sayb=sayb))

    player.begin().report("begin").report("b").report("sayb")

    assert [stream.end for stream in player.load().streams if stream.is_complete] == [{"reference": REFERENCE}]
