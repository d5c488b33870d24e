from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from providers.models.text.sanitizer import ReasoningSplitter, SpokenDelta, TextCleaner, clean, without_reasoning
from providers.models.types.chat import ContentDelta, ReasoningDelta

AWKWARD = st.text(alphabet=st.sampled_from("ab\0\ud83d\ude00\ufdd0\ufdd1é"))
TAGGED = st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "a", "b ", " ", "/"])).map("".join)


def cut_at(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(edges)]


def split_reasoning(parts: list[str]) -> tuple[str, str]:
    splitter = ReasoningSplitter()
    deltas: list[SpokenDelta] = [delta for part in parts for delta in splitter.feed(part)]
    deltas += splitter.flush()
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return reasoning, "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


def test_characters_that_cannot_be_stored_are_removed():
    assert clean("a\0b\ufdd0c\ufdd1\ufdd2\ufdd3") == "abc"
    assert clean("half \ud83d a smile") == "half \ufffd a smile"


def test_surrogate_pair_split_over_two_deltas_is_joined():
    cleaner = TextCleaner()

    parts = [cleaner.feed("smile \ud83d"), cleaner.feed("\ude00!"), cleaner.flush()]

    assert parts == ["smile ", "😀!", ""]


@given(AWKWARD, st.lists(st.integers(min_value=0)))
def test_text_is_cleaned_the_same_for_any_split(text: str, cuts: list[int]):
    cleaner = TextCleaner()

    parts = [cleaner.feed(part) for part in cut_at(text, cuts)]

    assert "".join(parts) + cleaner.flush() == clean(text)


@given(AWKWARD)
def test_cleaned_text_can_be_encoded_and_is_not_changed_again(text: str):
    cleaned = clean(text)

    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


def test_reasoning_in_tags_is_separated_from_the_answer():
    assert split_reasoning(["<think>because</think>", "so"]) == ("because", "so")
    assert split_reasoning(["\n<th", "ink>be", "cause</thi", "nk>so"]) == ("because", "so")


def test_tags_after_the_start_belong_to_the_answer():
    assert split_reasoning(["Use <think>", " tags"]) == ("", "Use <think> tags")
    assert split_reasoning(["<think>a</think>b<think>c</think>"]) == ("a", "b<think>c</think>")


def test_reasoning_without_a_closing_tag_is_not_an_answer():
    assert split_reasoning(["<think>hm", "m</thin"]) == ("hmm</thin", "")


def test_answer_that_begins_like_a_tag_is_returned_in_full():
    assert split_reasoning(["<thi"]) == ("", "<thi")
    assert split_reasoning(["<thin", "g>"]) == ("", "<thing>")


@given(TAGGED, st.lists(st.integers(min_value=0)))
def test_reasoning_and_answer_are_the_same_for_any_split_of_the_stream(text: str, cuts: list[int]):
    assert split_reasoning(cut_at(text, cuts)) == split_reasoning([text])


def test_complete_answer_begins_after_the_last_reasoning():
    assert without_reasoning("a</think>b</think>\n\nc") == "c"
    assert without_reasoning("\nplain") == "\nplain"
