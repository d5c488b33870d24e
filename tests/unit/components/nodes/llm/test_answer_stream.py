import asyncio

from components.context import THINK_END, THINK_START
from components.nodes.llm.answer_stream import BufferedAnswer, StreamedAnswer, optional_output
from providers.models.chat.scripted import Script
from providers.models.types.chat import ChatRequest, Completion
from tests.fakes import FakeContext
from tests.unit.components.nodes.agent.agents import scripted

QUESTION = ChatRequest([{"role": "user", "content": "Q"}])


def test_reasoning_over_several_answers_is_one_section_until_a_text_is_written():
    ctx = FakeContext()
    stream = StreamedAnswer(ctx, scripted(Script([])))

    async def write_answers() -> None:
        await stream.replay(Completion("", "first "))
        await stream.announce_tool("echo_0")
        await stream.replay(Completion("Hello", " second"))

    asyncio.run(write_answers())

    thoughts = "first Running the echo_0 tool... second"
    assert ctx.streamed_text == f"{THINK_START}{thoughts}{THINK_END}Hello"
    assert stream.content == f"<think>{thoughts}</think>Hello"
    assert stream.reasoning == "first  second"


def test_failed_answer_has_the_same_error_buffered_and_streamed():
    model = scripted(Script([{"reply": "a **ERROR** of the model's own", "times": 1}, {"error": "invalid"}]))
    ctx = FakeContext()

    marked = asyncio.run(BufferedAnswer(ctx, model).ask(QUESTION))
    buffered = asyncio.run(BufferedAnswer(ctx, model).ask(QUESTION))
    streamed = asyncio.run(StreamedAnswer(ctx, model).ask(QUESTION))

    assert marked.error is not None
    assert buffered.error == streamed.error is not None
    assert buffered.text == streamed.text == "**ERROR**: INVALID_REQUEST - invalid"


def test_empty_output_is_left_out_unless_an_earlier_activation_set_it():
    assert optional_output(FakeContext(), "thinking", "") == {}
    assert optional_output(FakeContext(previous={"thinking": "old"}), "thinking", "") == {"thinking": None}
    assert optional_output(FakeContext(), "thinking", "new") == {"thinking": "new"}
