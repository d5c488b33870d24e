"""Words: related texts share them, with or without blanks between words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.index.tokenizer import MAX_QUERY_WORDS, MAX_WORD_LENGTH, highlight, passage_words, query_words


@pytest.mark.parametrize(
    ("question", "passage", "language"),
    [
        ("refunds", "A REFUND takes five days", "English"),
        ("What are holidays?", "every holiday counts", "English"),
        ("退款", "我们的退款需要五天。", "Chinese"),
        ("税", "关于税务的规定", "Chinese"),
        ("返金", "ご返金は五日かかります", "Japanese"),
        ("환불", "환불은 5일이 걸립니다", "Korean"),
        ("การคืนเงิน", "นโยบายการคืนเงินภายในห้าวัน", "Thai"),
        ("häuser", "das HAUS und die Häuser", "German"),
        ("EN-1090-2", "weld by en 1090 2", "English"),
    ],
)
def test_a_question_shares_its_words_with_the_passage_that_answers_it(
    question: str, passage: str, language: str
) -> None:
    words = query_words(question, language)

    assert words
    assert set(words) <= passage_words(passage, language)


def test_separate_characters_do_not_match_a_character_pair() -> None:
    assert not set(query_words("退款", "Chinese")) & passage_words("款到即退", "Chinese")


def test_stop_words_are_left_out_unless_there_are_only_stop_words() -> None:
    assert query_words("How long does it take", "English") == query_words("long take", "English")
    assert len(query_words("to be or not to be", "English")) == 4


def test_number_of_query_words_is_the_same_for_every_language() -> None:
    question = "Wie lange dauern running runs 退款 für Häuser?"

    assert len({len(query_words(question, language)) for language in ("English", "German", "Chinese", "Klingon")}) == 1


def test_long_query_is_limited() -> None:
    assert len(query_words(" ".join(f"word{number}" for number in range(1000)), "English")) == MAX_QUERY_WORDS


@given(st.text(), st.sampled_from(["English", "German", "Chinese", ""]))
def test_words_of_any_text_can_be_stored(text: str, language: str) -> None:
    words = passage_words(f"{text} {'x' * 5000}", language)

    assert all(0 < len(word) <= MAX_WORD_LENGTH for word in words)


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        ("A refund takes days.", "How long do refunds take?", "A <em>refund</em> <em>takes</em> days."),
        ("REFUNDS, refunded", "refund", "<em>REFUNDS</em>, <em>refunded</em>"),
        ("退款需要五天。", "退款", "<em>退款</em>需要五天。"),
        ("我们的退款政策", "退款政策", "我们的<em>退款政策</em>"),
        ("天很好", "天", "<em>天</em>很好"),
        ("Nothing of it.", "refunds", ""),
        ("ＡＢＣ ist da", "abc", "<em>ＡＢＣ</em> ist da"),
    ],
)
def test_query_words_are_highlighted(text: str, question: str, expected: str) -> None:
    assert highlight(text, query_words(question, "English"), "English") == expected


@given(st.text(), st.text())
def test_highlighting_of_any_text_only_adds_marks(text: str, question: str) -> None:
    highlighted = highlight(text, query_words(question, "English"), "English")

    assert highlighted == "" or highlighted.replace("<em>", "").replace("</em>", "") == text.replace(
        "<em>", ""
    ).replace("</em>", "")
