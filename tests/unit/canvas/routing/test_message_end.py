"""What a Message leaves beside its text is told when its turn ends."""

from canvas.events.run_events import message_end_data
from canvas.outcome import Finished, MessageEnd
from tests.builders import canvas_of, script_of
from tests.player import Player

ATTACHMENT = {"doc_id": "d", "format": "pdf", "file_name": "d.pdf"}
REFERENCE = {"chunks": {"7": {"id": "c"}}, "doc_aggs": {"a.pdf": {"doc_name": "a.pdf", "count": 1}}}


def test_a_message_end_carries_attachment_and_evidence():
    end = MessageEnd(attachment=ATTACHMENT, reference=REFERENCE)
    player = Player(canvas_of("begin -> say"), script_of(say=Finished(end=end))).play()

    (body,) = [event.body for event in player.events if event.name == "message_end"]
    assert message_end_data(body) == {"attachment": ATTACHMENT, "reference": REFERENCE}


def test_message_end_data_is_stored_until_its_stream_opens():
    sayb = Finished(end=MessageEnd(reference=REFERENCE))
    player = Player(canvas_of("begin -> a, b; a -> saya; b -> sayb"), script_of(sayb=sayb))

    player.begin().report("begin").report("b").report("sayb")

    assert [speech.end for speech in player.load().streams if speech.is_complete] == [{"reference": REFERENCE}]
