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


def told_apart(pieces: list[str]) -> tuple[str, str]:
    thoughts = ReasoningSplitter()
    deltas: list[SpokenDelta] = [delta for piece in pieces for delta in thoughts.feed(piece)]
    deltas += thoughts.flush()
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return reasoning, "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))


def test_what_cannot_be_stored_or_spoken_is_taken_out():
    assert clean("a\0b\ufdd0c\ufdd1\ufdd2\ufdd3") == "abc"
    assert clean("half \ud83d a smile") == "half \ufffd a smile"


def test_a_character_that_arrives_in_two_halves_is_whole_again():
    cleaner = TextCleaner()

    pieces = [cleaner.feed("smile \ud83d"), cleaner.feed("\ude00!"), cleaner.flush()]

    assert pieces == ["smile ", "😀!", ""]


@given(AWKWARD, st.lists(st.integers(min_value=0)))
def test_however_a_text_is_cut_it_is_cleaned_alike(text: str, cuts: list[int]):
    cleaner = TextCleaner()

    pieces = [cleaner.feed(piece) for piece in cut_at(text, cuts)]

    assert "".join(pieces) + cleaner.flush() == clean(text)


@given(AWKWARD)
def test_cleaned_text_can_be_encoded_and_is_not_changed_again(text: str):
    cleaned = clean(text)

    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


def test_reasoning_in_tags_is_separated_from_the_answer():
    assert told_apart(["<think>because</think>", "so"]) == ("because", "so")
    assert told_apart(["\n<th", "ink>be", "cause</thi", "nk>so"]) == ("because", "so")


def test_tags_further_on_belong_to_the_answer():
    assert told_apart(["Use <think>", " tags"]) == ("", "Use <think> tags")
    assert told_apart(["<think>a</think>b<think>c</think>"]) == ("a", "b<think>c</think>")


def test_reasoning_without_a_closing_tag_is_not_an_answer():
    assert told_apart(["<think>hm", "m</thin"]) == ("hmm</thin", "")


def test_answer_that_begins_like_a_tag_is_returned_in_full():
    assert told_apart(["<thi"]) == ("", "<thi")
    assert told_apart(["<thin", "g>"]) == ("", "<thing>")


@given(TAGGED, st.lists(st.integers(min_value=0)))
def test_however_a_stream_is_cut_reasoning_and_answer_are_the_same(text: str, cuts: list[int]):
    assert told_apart(cut_at(text, cuts)) == told_apart([text])


def test_a_whole_answer_begins_behind_the_last_thought():
    assert without_reasoning("a</think>b</think>\n\nc") == "c"
    assert without_reasoning("\nplain") == "\nplain"
