"""Bytes of any encoding become text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.text.extraction.charsets import decode

CHINESE = "第一季度销售报告：收入增长百分之十。"
GERMAN = "Die Größe der Tür wäre schön, für Öl und Käse"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030"])
def test_chinese_text_is_decoded_from_common_encodings(encoding: str):
    assert decode(f"{CHINESE} 2024".encode(encoding)) == f"{CHINESE} 2024"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "latin-1"])
def test_western_text_is_decoded_with_its_accents(encoding: str):
    assert decode(GERMAN.encode(encoding)) == GERMAN


def test_damaged_byte_does_not_change_the_detected_encoding():
    data = CHINESE.encode() + b"\xff!"

    assert decode(data) == CHINESE + "\ufffd!"


def test_declared_encoding_of_a_page_is_used_if_allowed():
    page = '<meta charset="shift_jis"><p>日本語</p>'

    assert decode(page.encode("shift_jis"), may_declare=True) == page
    assert decode(page.encode("shift_jis")) != page


@pytest.mark.parametrize("name", ["utf-7", "punycode", "rot13", "nonsense", "iso-8859-99"])
def test_unknown_declared_encoding_is_ignored(name: str):
    page = f'<meta charset="{name}">é'

    assert decode(page.encode(), may_declare=True) == page


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=40)
def test_any_bytes_become_a_text(data: bytes, may_declare: bool):
    text = decode(data, may_declare=may_declare)

    assert text.encode().decode() == text
