"""Texts that would block a process for minutes in a single call."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from canvas.document import component_names
from components.context import THINK_END, THINK_START
from components.nodes.data.string_transform import string_transform
from components.nodes.flow.message import message
from components.text.extraction.page_text import extract_page_text
from components.text.splitting import replace_words, split_at
from providers.models.chat.echo import echo_answer
from providers.models.text.context_window import count_tokens
from tests.fakes import FakeContext, run

MAX_SECONDS = 10.0  # of computing; each takes a fraction of one on an idle machine
LONG = 200_000


def edge_with_long_ids() -> None:
    """Ids of a megabyte: the end of an edge is searched in the edge's own id."""
    name = "Generate:"
    ends = (name * (LONG // 9) + "b", name * (LONG // 9) + "c")
    edge = {"id": name * LONG, "source": ends[0], "target": ends[1]}
    components = {end: {"obj": {"component_name": "Generate", "params": {}}} for end in ends}
    component_names.rename_components({"components": components, "graph": {"nodes": [], "edges": [edge]}})


def split(text: str, delimiters: list[str]) -> None:
    params = {"method": "split", "split_ref": "env.t", "delimiters": delimiters}
    run(string_transform, params, FakeContext(globals={"env.t": text}))


def stream_message(text: str) -> None:
    run(message, {"content": ["{env.t}"]}, FakeContext(globals={"env.t": text}))


def ask_categorize(text: str) -> None:
    """Answer a Categorize prompt with the built-in model."""
    system = "Categories:\n- a\n- b\n" + "JSON schema:\n" * (LONG // 20)
    echo_answer([{"role": "system", "content": system}, {"role": "user", "content": text}])


WORK: dict[str, Callable[[], Any]] = {
    "one delimiter the beginning of the next": lambda: split("a" * LONG, ["a" * n + "b" for n in range(1, 440)]),
    "899 delimiters": lambda: split("a" * LONG, ["a" * (n // 9 + 1) + "b" * (n % 9 + 1) for n in range(899)]),
    "20,000 delimiters": lambda: split("0" * LONG, [f"{number:05}x" for number in range(16_000)]),
    "long delimiters": lambda: split_at("a" * LONG, ["a" * 40_000 + "b", "a" * 40_000 + "c"]),
    "many marks": lambda: replace_words("mark_1" * (LONG // 6), {f"mark_{number}_": "x" for number in range(8_000)}),
    "thoughts that never end": lambda: stream_message(f"a{THINK_START}" * (LONG // 2)),
    "thoughts": lambda: stream_message(f"a{THINK_START}b{THINK_END}" * (LONG // 4)),
    "quoted turns": lambda: ask_categorize('USER: "' * (LONG // 7)),
    "quotes and blanks": lambda: ask_categorize('USER: "' + '" ' * (LONG // 2) + "x"),
    "ids of edges": edge_with_long_ids,
    "punctuation": lambda: count_tokens("{" * 10 * LONG),
    "small page": lambda: extract_page_text("<p " + "a=<" * 5_000),
}


@pytest.mark.parametrize("name", WORK)
def test_hostile_text_is_processed_in_bounded_time(name: str):
    began = process_time()

    WORK[name]()

    assert process_time() - began < MAX_SECONDS
