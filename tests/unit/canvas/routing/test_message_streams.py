"""Message streams: which text is streamed, in which stream and order (engine 4.8, 5.3; protocol, "Speech")."""

import pytest

from canvas.outcome import Finished, MessageEnd
from canvas.state.run_state import ActivationStatus, RunStatus
from tests.builders import (
    canvas_of,
    content,
    default,
    failed,
    items,
    lost_once,
    routed_to,
    script_of,
    seeded_random,
)
from tests.listener import check_events
from tests.player import Player


# -- one text --------------------------------------------------------------------------------------------------------
def test_model_writes_to_its_messages_stream_from_its_start():
    player = Player(canvas_of("begin -> model -> say")).begin().report("begin")

    message = player.open_stream_id
    assert message == player.row("model").stream_id
    assert player.short_events[-2:] == ["+model", "+say"]
    player.report("model")

    assert player.row("say").id == message
    assert player.row("say").stream_id == message


def test_events_of_a_streamed_message_come_in_the_recorded_order():
    player = Player(canvas_of("begin -> model -> say")).play()

    assert player.short_events[3:] == ["+model", "+say", "!say", "-model", "-say", "workflow_finished"]


def test_message_end_contains_only_the_fields_that_are_set():
    end = MessageEnd(status=201, downloads=({"doc_id": "d"},))
    player = Player(canvas_of("begin -> say"), script_of(say=Finished(end=end))).play()

    (body,) = [event.body for event in player.events if event.name == "message_end"]
    assert body == {"status": 201, "downloads": [{"doc_id": "d"}]}


def test_model_whose_text_is_not_read_is_finished_at_once():
    player = Player(canvas_of("begin -> model -> say", say=content("hello"))).play()

    assert player.row("model").stream_id is None
    assert player.short_events[3:] == ["+model", "-model", "+say", "!say", "-say", "workflow_finished"]


def test_model_that_is_not_directly_before_its_message_does_not_stream():
    player = Player(canvas_of("begin -> model -> a -> say", say=content("{model@content}"))).play()

    assert player.row("model").stream_id is None
    assert player.is_before("-model", "+a")


def test_model_before_two_messages_writes_to_the_first_stream():
    player = Player(canvas_of("begin -> model -> saya, sayb")).begin().report("begin")

    player.report("model")
    assert player.row("model").stream_id == player.row("saya").id
    player.report("sayb")
    assert player.streamed_nodes == []
    player.report("saya")

    assert player.streamed_nodes == ["saya", "sayb"]
    assert player.is_before("-model", "-saya")
    check_events(player)


@pytest.mark.parametrize("first", ["modela", "modelb"])
def test_two_models_of_one_message_stream_in_the_order_of_its_text(first: str):
    canvas = canvas_of("begin -> modela, modelb -> say", say=content("{modelb@content} {modela@content}"))
    player = Player(canvas).begin().report("begin")

    assert player.row("modelb").stream_id is not None
    assert player.row("modela").stream_id is None
    assert player.open_stream_id is None  # the other may still fail, so the stream is not open
    second = "modela" if first == "modelb" else "modelb"
    player.report(first)
    assert player.open_stream_id == player.row("modelb").stream_id
    player.report(second)

    assert player.play().short_events[-5:] == ["!say", "-modela", "-modelb", "-say", "workflow_finished"]


def test_deferred_node_finished_events_come_in_order_of_start():
    canvas = canvas_of("begin -> a, modelb; a -> modela -> say; modelb -> say")

    player = Player(canvas).play()

    assert player.short_events[-4:] == ["-modelb", "-modela", "-say", "workflow_finished"]


def test_second_writer_continues_the_stream_once_the_text_before_is_known():
    canvas = canvas_of("begin -> modela, wait; wait -> modelb; modela, modelb -> say")
    player = Player(canvas).begin().report("begin").report("modela").report("wait")

    assert player.row("modelb").stream_id == player.open_stream_id is not None


def test_stream_is_not_open_while_another_node_can_reach_its_message():
    player = Player(canvas_of("begin -> model, a -> say")).begin().report("begin")
    assert player.row("model").stream_id is not None
    assert player.open_stream_id is None

    player.report("a")

    assert player.open_stream_id == player.row("model").stream_id


def test_stream_is_not_open_while_its_writer_may_wait_for_a_person():
    player = Player(canvas_of("begin -> model -> form, say; form -> say")).begin().report("begin")

    assert player.open_stream_id is None
    player.report("model").report("form")

    assert player.status is RunStatus.WAITING
    assert player.open_stream_id is None


def test_message_with_another_text_truncates_the_stream():
    player = Player(canvas_of("begin -> model -> say")).begin().report("begin").report("model")
    stream_id = player.open_stream_id
    player.restarts_text.add("say")

    player.report("say")

    assert player.truncated_streams == [stream_id]
    assert player.short_events[-5:] == ["message_reset", "!say", "-model", "-say", "workflow_finished"]


def test_text_of_a_lost_writer_is_truncated_before_the_next_attempt():
    player = Player(canvas_of("begin -> model -> say"), script_of(model=lost_once)).play()

    assert player.short_events[3:6] == ["+model", "+say", "message_reset"]
    assert len(player.truncated_streams) == 1
    assert player.short_events.count("+say") == 1
    check_events(player)


def test_lost_writer_of_an_unopened_stream_restarts_without_a_reset_event():
    canvas = canvas_of("begin -> model, a -> say")
    player = Player(canvas, script_of(model=lost_once)).begin().report("begin")

    player.report("model")

    assert "message_reset" not in player.short_events
    assert player.truncated_streams == [player.row("model").stream_id]


# -- several texts ---------------------------------------------------------------------------------------------------
def test_two_messages_are_streamed_in_canonical_order_whichever_is_faster():
    player = Player(canvas_of("begin -> saya, sayb -> end")).begin().report("begin")

    player.report("sayb")
    assert player.row("sayb").status is ActivationStatus.AWAITING_STREAM
    assert "+sayb" not in player.short_events
    player.report("saya")

    assert player.short_events[3:9] == ["+saya", "!saya", "-saya", "+sayb", "!sayb", "-sayb"]
    assert player.busy_nodes == ["end"]


def test_stream_waits_for_an_earlier_message_that_is_not_reached_yet():
    canvas = canvas_of("begin -> a, b; a -> saya; b -> c -> sayb")
    player = Player(canvas).begin().report("begin").report("b").report("c").report("sayb")
    assert player.streamed_nodes == []

    player.report("a").report("saya")

    assert player.streamed_nodes == ["saya", "sayb"]


def test_stream_does_not_wait_for_a_message_that_can_only_come_later():
    canvas = canvas_of("begin -> a, sayb; a -> b -> saya")
    player = Player(canvas).begin().report("begin").report("sayb")

    assert player.streamed_nodes == ["sayb"]


def test_stream_does_not_wait_for_a_branch_that_was_not_chosen():
    canvas = canvas_of("begin -> pick, a; pick -> sayb, c; a -> d -> saya")
    player = (
        Player(canvas, script_of(pick=routed_to("c"))).begin().report("begin").report("a").report("d").report("saya")
    )
    assert player.streamed_nodes == []

    player.report("pick")

    assert player.streamed_nodes == ["saya"]


def test_stream_waits_for_a_container_that_streams_inside():
    canvas = canvas_of("begin -> a, b; a -> each; b -> c -> d -> say", "each: item -> sayb")
    player = Player(canvas, script_of(each=items(1))).begin()
    player.report("begin").report("b").report("c").report("d").report("say")
    assert player.streamed_nodes == []

    player.play()

    assert player.streamed_nodes == ["sayb", "say"]


def test_passes_of_a_body_are_streamed_one_after_another():
    canvas = canvas_of("begin -> each -> say", "each: item -> model -> sayb")
    player = Player(canvas, script_of(each=items(2))).play()

    assert player.streamed_nodes == ["sayb", "sayb", "say"]
    check_events(player)


def test_model_in_a_body_streams_although_later_passes_will_stream():
    canvas = canvas_of("begin -> each", "each: item -> model -> a, say")
    player = Player(canvas, script_of(each=items(2))).begin().report("begin").report("each").report("item")

    assert player.open_stream_id == player.row("model", (("each", 0, 0),)).stream_id is not None


@pytest.mark.parametrize("seed", range(5))
def test_parallel_items_are_streamed_in_item_order(seed: int):
    canvas = canvas_of("begin -> each", "each: item -> model -> say")
    player = Player(canvas, script_of(each=items(3, at_once=3)), seeded_random(seed)).play()

    assert [player.rows[stream_id].scope[0][2] for stream_id in player.ended_streams] == [0, 1, 2]
    check_events(player)


def test_stream_waits_for_items_that_have_not_started_yet():
    canvas = canvas_of("begin -> a, b; a -> each; b -> c -> d -> say", "each: item -> sayb -> x")
    player = Player(canvas, script_of(each=items(3, at_once=2))).begin()
    for node in ("begin", "a", "b", "c", "d", "say", "each"):
        player.report(node)
    for item in (0, 1):  # they go on after their Message
        player.report("item", scope=(("each", 0, item),)).report("sayb", scope=(("each", 0, item),))

    streamed = list(player.streamed_nodes)
    player.play()

    assert streamed == ["sayb", "sayb"]
    assert player.streamed_nodes == ["sayb", "sayb", "sayb", "say"]


def test_stream_does_not_open_before_an_earlier_one():
    canvas = canvas_of("begin -> a, model; a -> saya; model -> b -> sayb; model -> say")
    player = Player(canvas).begin().report("begin")

    assert player.open_stream_id is None  # "saya" comes before "say" in canonical order
    player.report("a")
    assert player.open_stream_id == player.row("saya").id
    player.report("saya")

    assert player.streamed_nodes == ["saya"]
    assert player.open_stream_id == player.row("model").stream_id


def test_stream_waits_for_an_earlier_message_reached_over_a_back_edge():
    canvas = canvas_of("begin -> a, c; a -> pick -> a, b; a -> say; c -> d -> e -> f -> g -> saylate")
    script = script_of(pick=[routed_to("a"), routed_to("b")])
    player = Player(canvas, script).begin().report("begin")
    player.report("c").report("d").report("e").report("f").report("g").report("saylate")

    player.play()

    assert player.streamed_nodes == ["say", "say", "saylate"]


def test_later_stream_opens_while_an_earlier_one_waits_behind_a_form():
    canvas = canvas_of("begin -> form, a; form -> saya; a -> b -> sayb")
    player = Player(canvas).begin().report("begin")

    player.report("a").report("b").report("sayb")
    assert player.streamed_nodes == []  # the form may finish without being shown
    player.report("form")
    assert player.streamed_nodes == ["sayb"]
    assert player.status is RunStatus.WAITING

    assert player.play_and_answer().streamed_nodes == ["sayb", "saya"]
    check_events(player)


def test_streams_that_wait_for_each_other_open_when_the_run_is_idle():
    """sayy comes before saym1 in canonical order, and can only run after saym2."""
    canvas = canvas_of("begin -> sayy, a, c; a -> saym1; c -> d -> saym2 -> sayy")
    for seed in range(8):
        player = Player(canvas, rng=seeded_random(seed)).play()

        assert player.status is RunStatus.SUCCEEDED
        assert player.streamed_nodes == ["saym1", "saym2", "sayy"]


def test_stream_after_a_form_and_a_later_stream_do_not_deadlock():
    """say2 would wait for say0, and the form before say0 is shown only once nothing else is active."""
    canvas = canvas_of("begin -> form, say1; form -> say0; say1 -> say2")
    player = Player(canvas).play()

    assert player.status is RunStatus.WAITING
    assert player.streamed_nodes == ["say1", "say2"]
    assert player.play_and_answer().streamed_nodes == ["say1", "say2", "say0"]


def test_stream_is_not_opened_for_another_node_than_its_writer():
    """The model has finished and the loop still runs: a default inside of the loop is streamed first."""
    canvas = canvas_of("begin -> model, loop -> say", "loop: visit -> a", a=default("sorry"))
    player = Player(canvas, script_of(a=failed())).begin().report("begin").report("model")
    assert player.open_stream_id is None

    player.play()

    assert player.streamed_nodes == ["a", "a", "say"]
    check_events(player)


def test_one_stream_is_open_and_the_next_opens_in_the_same_decision():
    canvas = canvas_of("begin -> modela, modelb; modela -> saya; modelb -> sayb")
    player = Player(canvas).begin().report("begin").report("modelb").report("modela")
    assert player.open_stream_id == player.row("saya").id

    player.report("saya")

    assert player.open_stream_id == player.row("sayb").id
    assert player.short_events[-4:] == ["!saya", "-modela", "-saya", "+sayb"]


# -- ends ------------------------------------------------------------------------------------------------------------
def test_cancel_closes_the_open_stream_and_shows_no_other():
    canvas = canvas_of("begin -> model, sayb; model -> saya")
    player = Player(canvas).begin().report("begin").report("sayb").report("model")
    player.claim("saya")

    player.cancel().report("saya")

    assert player.status is RunStatus.CANCELLED
    assert player.open_stream_id is None
    check_events(player)


def test_stream_of_a_failed_model_in_a_parallel_item_does_not_block_others():
    canvas = canvas_of("begin -> each -> end", "each: item -> model, loop; model -> say", "loop: visit -> sayb")
    player = Player(canvas, script_of(each=items(1, at_once=2), model=failed("broken"))).begin()
    for node in ("begin", "each", "item", "loop", "visit", "sayb"):
        player.report(node)

    player.report("model").play()

    assert (player.status, player.error) == (RunStatus.FAILED, "Node each (Iteration): item 0: broken")
    assert player.streamed_nodes == ["sayb"]
    check_events(player)


def test_cancelled_message_with_an_unopened_stream_emits_no_event():
    player = Player(canvas_of("begin -> saya, sayb")).begin().report("begin").report("sayb")

    player.cancel()

    assert player.status is RunStatus.CANCELLED
    assert player.row("sayb").status is ActivationStatus.CLOSED
    assert "+sayb" not in player.short_events
    assert "-sayb" not in player.short_events
