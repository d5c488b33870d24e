"""An answer is cut into sentences that can be read aloud."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.nodes.llm.sentences import MAX_SENTENCE_CHARS, clean_sentence, split_sentences, spoken_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello **world**. <b>Bye</b>", ["Hello **world**.", "Bye"]),
        ("你好。再见！“真的吗？”他说；好", ["你好。", "再见！", "“真的吗？”", "他说；", "好"]),
        ("（好。）」下一句", ["（好。）」", "下一句"]),
        ("One. Two? Three! Four", ["One.", "Two?", "Three!", "Four"]),
        ("Version 1.5 of easel.run is out", ["Version 1.5 of easel.run is out"]),
        ("first line\nsecond line", ["first line", "second line"]),
        ("a; b;c", ["a;", "b;", "c"]),
        ("Wait!!! ...", ["Wait!"]),
        ("<think>Is it? Yes.</think>It is.", ["It is."]),
        ("It is. <think>Is it", ["It is."]),
        ("", []),
        ("** -- !", []),
    ],
)
def test_an_answer_is_read_sentence_by_sentence(text: str, expected: list[str]):
    assert list(spoken_sentences(text)) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("  a \t b\r\n c ", "a b c"),
        ("a\x00b\x07c\x7f\x9b", "abc"),
        ("hi 😀 there 👩‍👩‍👧 ⭐ 1️⃣", "hi there 1"),
        ("🇩🇪 ☀️ sunny", "sunny"),
        ("<a href='x'>link</a> 1 < 2", "link 1 < 2"),
        ("\ud83d lone \ufffd \ufdd0", "lone"),
        ("café, naïve, 你好, привет", "café, naïve, 你好, привет"),
        ("x" * 600, "x" * MAX_SENTENCE_CHARS),
        ("x" * (MAX_SENTENCE_CHARS - 1) + " yz", "x" * (MAX_SENTENCE_CHARS - 1)),
    ],
)
def test_characters_without_a_sound_are_removed_from_a_sentence(sentence: str, expected: str):
    assert clean_sentence(sentence) == expected


@given(st.text(st.sampled_from("ab .!?。”;\n")))
def test_split_sentences_join_to_the_text(text: str):
    sentences = list(split_sentences(text))

    assert "".join(sentences) == text
    assert all(sentences)


@given(st.text(max_size=60))
def test_any_text_can_be_read_aloud(text: str):
    for sentence in spoken_sentences(text):
        assert sentence == clean_sentence(sentence)
        sentence.encode()


@pytest.mark.parametrize("text", ["!" * 400_000, "<" * 400_000, "<a" * 200_000, "<think>" * 60_000, "” " * 200_000])
def test_text_without_words_is_processed_quickly(text: str):
    begun = time.process_time()

    list(spoken_sentences(text))

    assert time.process_time() - begun < 2
