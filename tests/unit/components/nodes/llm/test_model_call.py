import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import UnresolvedReference
from components.nodes.llm.images import images_in, without_images
from components.nodes.llm.model_call import (
    NoAnswer,
    Prompt,
    PromptParams,
    assemble_prompt,
    base_delay,
    build_request,
    continue_history,
    generation_params,
    retry_wait,
    to_number,
)
from components.nodes.llm.prompts import citation_guide, cut_guides
from providers.models.types.chat import ChatRequest, ModelSpec
from tests.fakes import FakeContext

PNG, GIF = "data:image/png;base64,QQ==", "data:image/gif;base64,Qg=="


class Log:
    """Records the names of logged events."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, event: str, **_: Any) -> None:
        self.warnings.append(event)


def request_of(prompt: Prompt, spec: ModelSpec) -> ChatRequest:
    return asyncio.run(build_request(prompt, PromptParams(llm_id="m"), spec))


def prompt_of(ctx: FakeContext, **params: Any) -> Prompt:
    return asyncio.run(assemble_prompt(PromptParams.model_validate({"llm_id": "m", **params}), ctx))


def spec(context: int = 8192, *kinds: str) -> ModelSpec:
    return ModelSpec("m", "m", "Fake", None, context_tokens=context, kinds=frozenset(kinds or ("chat",)))


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


# -- texts and values -------------------------------------------------------------------------------------------------


def test_values_are_inserted_into_prompts_as_text_or_json():
    ctx = FakeContext(globals={"env.l": [1, "é"], "env.n": None, "env.i": 3, "env.s": "{env.i}"})

    prompt = prompt_of(ctx, sys_prompt="<{env.s}>", prompts="{env.l}|{env.n}|{{ env.i }}")

    assert prompt.messages == [user('[1, "é"]||3')]
    assert prompt.system == "<{env.i}>"
    assert ctx.inputs == {"env.s": "{env.i}", "env.l": '[1, "é"]', "env.n": "", "env.i": "3"}


def test_an_alias_is_a_value_inside_an_iteration_and_text_outside():
    inside = prompt_of(FakeContext(aliases={"item": "tea"}), prompts="about {item}")
    outside = prompt_of(FakeContext(), prompts="about {item}")

    assert inside.messages == [user("about tea")]
    assert outside.messages == [user("about {item}")]


def test_a_reference_to_an_unknown_global_fails_the_node():
    with pytest.raises(UnresolvedReference):
        prompt_of(FakeContext(), prompts="{env.gone}")


def test_prompts_may_be_several_messages():
    prompts = [user("first {sys.query}"), assistant("noted"), "second", {"content": None}]

    prompt = prompt_of(FakeContext(globals={"sys.query": "x"}), prompts=prompts)

    assert prompt.messages == [user("first x"), assistant("noted"), user("second"), user("")]


# -- history ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (-1, [user("P")]),
        (0, [user("P")]),
        (1, [assistant("a2"), user("P")]),
        ("2", [assistant("a1"), user("u2"), assistant("a2"), user("P")]),
        (None, [user("P")]),
        (10**30, [user("u1"), assistant("a1"), user("u2"), assistant("a2"), user("P")]),
    ],
)
def test_the_history_is_a_window_of_turns_without_the_current_question(turns: Any, expected: list[dict[str, str]]):
    ctx = FakeContext(entries=[user("u1"), assistant("a1"), user("u2"), assistant("a2"), user("u3")])

    prompt = prompt_of(ctx, prompts="P", message_history_window_size=turns)

    assert prompt.messages == expected


def test_history_entry_that_is_not_text_is_sent_as_json():
    ctx = FakeContext(entries=[{"role": "user", "content": {"a": 1}}, assistant("a"), user("now")])

    assert prompt_of(ctx, prompts="P").messages == [user('{"a": 1}'), assistant("a"), user("P")]


def test_prompts_replace_an_unanswered_question_of_the_history():
    before = [user("u1"), assistant("a1"), user("unanswered")]

    assert continue_history(before, [user("P1"), user("P2"), assistant("n"), user("P3")]) == [
        user("u1"),
        assistant("a1"),
        user("P2"),
        assistant("n"),
        user("P3"),
    ]


# -- files and images -------------------------------------------------------------------------------------------------


def test_texts_of_uploaded_files_follow_the_last_user_message():
    ctx = FakeContext(globals={"sys.files": ["File: a\nAAA", PNG, 7, "BBB"]})

    prompt = prompt_of(ctx, prompts=[user("U"), assistant("noted")])

    assert prompt.messages == [user("U\n\nFile: a\nAAA\n\nBBB"), assistant("noted")]
    assert prompt.images == (PNG,)
    assert ctx.inputs == {}


def test_file_texts_are_a_separate_message_if_there_is_no_user_message():
    ctx = FakeContext(globals={"sys.files": ["AAA"]})

    assert prompt_of(ctx, prompts=[assistant("noted")]).messages == [assistant("noted"), user("AAA")]


@pytest.mark.parametrize("mention", ["{sys.files}", "{{ sys.files }}"])
def test_files_that_a_prompt_mentions_are_not_appended_again(mention: str):
    ctx = FakeContext(globals={"sys.files": ["AAA", PNG]})

    prompt = prompt_of(ctx, sys_prompt=f"Files: {mention}", prompts="U")

    assert prompt.system == 'Files: ["AAA"]'
    assert prompt.messages == [user("U")]
    assert prompt.images == (PNG,)


def test_images_come_from_the_visual_variable_then_from_references_then_from_files_each_once():
    ctx = FakeContext(globals={"env.seen": [f" {PNG}"], "env.x": {"a": GIF, "b": PNG}, "sys.files": [GIF]})

    prompt = prompt_of(ctx, prompts="see {env.x}", visual_files_var="env.seen")

    assert prompt.images == (PNG, GIF)
    assert prompt.messages == [user("see ")]


@pytest.mark.parametrize(
    ("var", "images"),
    [
        ("{env.seen}", (PNG,)),
        (["env.seen", "", "{env.x}"], (PNG, GIF)),
        ([None, 3, {"a": "env.seen"}], ()),
        ({"value": "env.seen"}, ()),
    ],
)
def test_visual_variable_may_be_one_reference_or_several(var: Any, images: tuple[str, ...]):
    ctx = FakeContext(globals={"env.seen": [PNG], "env.x": GIF})

    assert prompt_of(ctx, prompts="see", visual_files_var=var).images == images


def test_only_a_model_with_vision_gets_images():
    prompt = Prompt("", [user("U")], images=[PNG])

    assert request_of(prompt, spec(8192, "chat", "vision")).images == [PNG]
    assert request_of(prompt, spec()).images == ()


@pytest.mark.parametrize(
    ("value", "images", "rest"),
    [
        (f"\n{PNG} ", [PNG], None),
        ("look: " + PNG, [], "look: " + PNG),
        ([PNG, "text", [GIF]], [PNG, GIF], ["text"]),
        ([PNG], [PNG], None),
        ([], [], []),
        ([None, 1, PNG], [PNG], [None, 1]),
        ({"type": "image_url", "image_url": {"url": PNG}, "alt": "a cat"}, [PNG], None),
        (
            {"type": "image", "url": "https://example.com/a.png"},
            [],
            {"type": "image", "url": "https://example.com/a.png"},
        ),
        ({"content": [PNG, "t"], "role": "user"}, [PNG], {"content": ["t"], "role": "user"}),
        ({"a": {"b": [PNG]}}, [PNG], None),
    ],
)
def test_images_in_values_are_found_and_removed_from_their_text(value: Any, images: list[str], rest: Any):
    assert images_in(value) == images
    assert without_images(value) == rest


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([PNG, f" {GIF}"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "content"]), inner),
)


@given(JSON)
def test_no_image_remains_in_a_text(value: Any):
    assert "data:image" not in str(without_images(value))


# -- system text ------------------------------------------------------------------------------------------------------


def test_tagged_sections_are_cut_out_of_the_system_prompt():
    text = (
        "Before <PLAN_GENERATION>my\nrules</PLAN_GENERATION> after <citation_guidelines>mine</Citation_Guidelines> end"
    )

    rest, guides = cut_guides(text)

    assert rest == "Before  after  end"
    assert guides == {"plan_generation": "my\nrules", "citation_guidelines": "mine"}


@pytest.mark.timeout(5)
def test_system_prompt_of_many_opening_tags_is_parsed_quickly():
    hostile = "<REFLECTION>" * 100_000

    assert cut_guides(hostile) == (hostile, {})


def test_citation_guide_of_the_author_or_the_built_in_one_is_added_with_sources():
    ctx = FakeContext(reference_store={"chunks": {"1": {}}, "doc_aggs": {}})

    ours = prompt_of(ctx, prompts="U", sys_prompt="S")
    own = prompt_of(ctx, prompts="U", sys_prompt="S<CITATION_GUIDELINES>cite like me</CITATION_GUIDELINES>")
    off = prompt_of(ctx, prompts="U", sys_prompt="S", cite=False)
    without = prompt_of(FakeContext(), prompts="U", sys_prompt="S")

    assert ours.system == f"S\n\n{citation_guide()}"
    assert own.system == f"S\n\n{citation_guide('cite like me')}"
    assert "cite like me" in own.system
    assert citation_guide() not in own.system
    assert off.system == without.system == "S"


# -- the call ---------------------------------------------------------------------------------------------------------


def test_only_enabled_parameters_are_sent():
    stored = {
        "temperature": "0.2",
        "temperatureEnabled": True,
        "top_p": 0.5,
        "topPEnabled": True,
        "presence_penalty": 0,
        "presencePenaltyEnabled": True,
        "frequency_penalty": 0.4,
        "frequencyPenaltyEnabled": False,
        "max_tokens": 99,
        "maxTokensEnabled": True,
        "thinking": "disabled",
    }

    assert generation_params(PromptParams.model_validate({"llm_id": "m", **stored})) == {
        "temperature": 0.2,
        "top_p": 0.5,
        "max_tokens": 99,
        "thinking": "disabled",
    }


@pytest.mark.parametrize("thinking", [None, "", "default", True])
def test_a_temperature_of_zero_is_sent_and_a_limit_of_zero_or_default_thinking_is_not(thinking: Any):
    params = {"llm_id": "m", "temperatureEnabled": True, "maxTokensEnabled": True, "thinking": thinking}

    assert generation_params(PromptParams.model_validate(params)) == {"temperature": 0}


@pytest.mark.parametrize(
    ("value", "expected", "warned"),
    [
        ({"a": 1}, {"a": 1}, False),
        ('{"a": 1}', {"a": 1}, False),
        ("[1]", None, True),
        ("{", None, True),
        (3, None, True),
        ("", None, False),
        (None, None, False),
    ],
)
def test_template_arguments_are_an_object_or_its_json(value: Any, expected: Any, warned: bool):
    ctx = FakeContext(globals={"sys.chat_template_kwargs": value}, log=Log())

    prompt = prompt_of(ctx, prompts="U")

    assert prompt.template_kwargs == expected
    assert request_of(prompt, spec()).chat_template_kwargs == expected
    assert bool(ctx.log.warnings) == warned


def test_a_system_message_without_text_is_not_sent():
    assert request_of(Prompt("", [user("U")]), spec()).messages == [user("U")]


def test_a_prompt_too_long_for_the_model_loses_its_history_first():
    long = Prompt("S", [user("word " * 500), assistant("a"), user("U")])

    assert request_of(long, spec(100)).messages == [
        {"role": "system", "content": "S"},
        user("U"),
    ]


def test_event_loop_is_not_blocked_while_a_long_prompt_is_truncated():
    prompt = Prompt("S", [user("word " * 40_000)])
    ticks = 0

    async def ask() -> ChatRequest:
        nonlocal ticks
        request = asyncio.ensure_future(build_request(prompt, PromptParams(llm_id="m"), spec(100_000)))
        while not request.done():
            ticks += 1
            await asyncio.sleep(0)
        return await request

    assert asyncio.run(ask()).messages[-1] == prompt.messages[-1]
    assert ticks > 2


@pytest.mark.parametrize("messages", [[], [user(" \n")], [user("U"), assistant("a")], [user("U"), user("")]])
def test_a_prompt_without_a_question_is_not_sent(messages: list[dict[str, str]]):
    with pytest.raises(NoAnswer, match=r"^\*\*ERROR\*\*: "):
        request_of(Prompt("S", messages), spec())


@pytest.mark.parametrize(
    ("delay", "waits"), [(0, [0, 0, 0]), ("1.5", [1.5, 3, 6]), (-1, [0, 0, 0]), (50, [50, 60, 60])]
)
def test_waits_between_attempts_start_at_the_authors_delay(delay: Any, waits: list[float]):
    params = PromptParams(llm_id="m", delay_after_error=delay)

    assert [retry_wait(params, attempt) for attempt in range(3)] == waits
    assert base_delay(params) == waits[0]
    assert retry_wait(params, 100_000) <= 60


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none() | st.lists(st.integers()))
def test_a_number_is_finite_or_none(value: Any):
    amount = to_number(value)

    assert amount is None or float("-inf") < amount < float("inf")


# -- at load ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({"llm_id": ""}, "LLM"),
        ({"llm_id": None}, "LLM"),
        ({"prompts": []}, "User prompt"),
        ({"prompts": ""}, "User prompt"),
        ({"prompts": [7]}, "User prompt"),
        ({"temperature": 1.5}, "Temperature"),
        ({"temperature": "hot"}, "Temperature"),
        ({"temperature": float("nan")}, "Temperature"),
        ({"top_p": -0.1}, "Top P"),
        ({"presence_penalty": 2}, "Presence penalty"),
        ({"frequency_penalty": True}, "Frequency penalty"),
        ({"max_tokens": -1}, "Max tokens"),
        ({"max_tokens": 1.5}, "Max tokens"),
        ({"max_retries": -1}, "Max retries"),
        ({"max_retries": "2"}, "Max retries"),
    ],
)
def test_params_out_of_range_are_refused_by_name(params: dict[str, Any], label: str):
    with pytest.raises(ValueError, match=rf"\[Agent\] {label} "):
        PromptParams.model_validate({"llm_id": "m", **params})


def test_a_node_without_a_model_is_refused_even_if_the_field_is_missing():
    with pytest.raises(ValueError, match="LLM is empty"):
        PromptParams.model_validate({})


def test_default_prompt_is_the_question_of_the_user():
    assert PromptParams(llm_id="m").prompts == [user("{sys.query}")]
