import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.browsing.files import MAX_NAME_BYTES, fit_name, free_name, name_from_response


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("a:b?.txt", "a_b_.txt"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("", "file"),
        ("/", "file"),
    ],
)
def test_folders_and_invalid_characters_are_removed_from_a_file_name(name: str, fit: str):
    assert fit_name(name) == fit


@settings(max_examples=50)
@given(st.text(min_size=1))
def test_any_text_becomes_a_valid_file_name(name: str):
    fit = fit_name(name)

    assert 0 < len(fit.encode()) <= MAX_NAME_BYTES
    assert "/" not in fit
    assert fit not in (".", "..")


def test_long_file_name_is_truncated_before_its_extension():
    assert fit_name("ü" * 300 + ".pdf").endswith("ü.pdf")


def test_file_name_in_use_gets_a_number():
    assert free_name("a.pdf", []) == "a.pdf"
    assert free_name("a.pdf", ["a.pdf"]) == "a_1.pdf"
    assert free_name("a.pdf", ["a.pdf", "a_1.pdf"]) == "a_2.pdf"
    assert free_name("a", ["a"]) == "a_1"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="remote.txt"', "remote.txt"),
        ("attachment; filename=remote.txt; size=3", "remote.txt"),
        ("attachment; filename*=UTF-8''%e2%82%ac.txt; filename=\"plain.txt\"", "€.txt"),
        ("attachment; filename*=nonsense''a%20b.txt", "a b.txt"),
        ('attachment; filename="a \\"b\\".txt"', "a _b_.txt"),
        ('attachment; filename="../x.txt"', "x.txt"),
        ("attachment", "d.pdf"),
        ("", "d.pdf"),
    ],
)
def test_file_name_comes_from_the_header_or_else_from_the_url(disposition: str, name: str):
    assert name_from_response("https://e.com/files/d.pdf?x=1", {"content-disposition": disposition}) == name


def test_file_without_a_name_gets_a_stable_number():
    name = name_from_response("https://e.com/", {})

    assert name.startswith("url_file_")
    assert name.endswith(".bin")
    assert len(name) == len("url_file_12345678.bin")
    assert name == name_from_response("https://e.com/", {})
    assert name_from_response("https://e.com/a%2Fb.txt", {}) == "b.txt"
