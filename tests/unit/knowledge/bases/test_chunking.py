"""Splitting into chunks: no text is lost, no chunk is too long, and neighbours overlap."""

from hypothesis import given
from hypothesis import strategies as st

from knowledge.bases.chunking import chunk_sizes, split_text
from providers.models.text.context_window import count_tokens

WORDS = st.text(alphabet="ab Z.?!\n\n#退款。，;-\t1", max_size=400)


@given(text=WORDS, tokens=st.integers(16, 60), share=st.integers(0, 50))
def test_chunks_of_any_text_contain_it_and_fit_the_token_limit(text: str, tokens: int, share: int) -> None:
    cuts = list(split_text(text, tokens, tokens * share // 100))

    assert "".join("".join(cut.new for cut in cuts).split()) == "".join(text.split())
    assert all(count_tokens(cut.text) <= tokens for cut in cuts)
    assert all(cut.text in text and cut.new.strip() for cut in cuts)


def test_paragraphs_stay_whole_where_they_fit() -> None:
    text = "\n\n".join(f"Rule {number} says what is to be done on day {number}." for number in range(8))

    cuts = list(split_text(text, 32))

    assert len(cuts) > 2
    assert all(cut.text.strip().startswith("Rule") and cut.text.strip().endswith(".") for cut in cuts)


def test_chunk_begins_with_the_overlap_of_the_chunk_before() -> None:
    text = " ".join(f"Sentence number {number} stands here." for number in range(30))

    first, second, *_ = split_text(text, 60, 12)

    assert second.overlap
    assert first.text.endswith(second.overlap)


def test_text_without_blanks_is_split() -> None:
    cuts = list(split_text("x" * 40_000, 512))

    assert sum(len(cut.new) for cut in cuts) == 40_000
    assert max(count_tokens(cut.text) for cut in cuts) <= 512


def test_sizes_out_of_range_are_clamped() -> None:
    assert chunk_sizes({}) == (512, 51)
    assert chunk_sizes({"chunk_token_num": 0, "overlapped_percent": 400}) == (1, 0)
    assert chunk_sizes({"chunk_token_num": "many", "overlapped_percent": True}) == (512, 51)
