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
    speech = StreamedAnswer(ctx, scripted(Script([])))

    async def speak() -> None:
        await speech.replay(Completion("", "first "))
        await speech.announce_tool("echo_0")
        await speech.replay(Completion("Hello", " second"))

    asyncio.run(speak())

    thoughts = "first Running the echo_0 tool... second"
    assert ctx.said == f"{THINK_START}{thoughts}{THINK_END}Hello"
    assert speech.content == f"<think>{thoughts}</think>Hello"
    assert speech.reasoning == "first  second"


def test_failed_answer_has_an_error_with_every_listener():
    model = scripted(Script([{"reply": "a **ERROR** of the model's own", "times": 1}, {"error": "invalid"}]))
    ctx = FakeContext()

    own = asyncio.run(BufferedAnswer(ctx, model).ask(QUESTION))
    quiet = asyncio.run(BufferedAnswer(ctx, model).ask(QUESTION))
    aloud = asyncio.run(StreamedAnswer(ctx, model).ask(QUESTION))

    assert own.error is not None
    assert quiet.error == aloud.error is not None
    assert quiet.text == aloud.text == "**ERROR**: INVALID_REQUEST - invalid"


def test_empty_output_is_left_out_unless_an_earlier_activation_set_it():
    assert optional_output(FakeContext(), "thinking", "") == {}
    assert optional_output(FakeContext(previous={"thinking": "old"}), "thinking", "") == {"thinking": None}
    assert optional_output(FakeContext(), "thinking", "new") == {"thinking": "new"}
