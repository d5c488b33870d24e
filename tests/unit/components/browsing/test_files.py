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
def test_a_name_keeps_no_folders_and_no_signs_that_file_systems_refuse(name: str, fit: str):
    assert fit_name(name) == fit


@settings(max_examples=50)
@given(st.text(min_size=1))
def test_any_name_fits(name: str):
    fit = fit_name(name)

    assert 0 < len(fit.encode()) <= MAX_NAME_BYTES
    assert "/" not in fit
    assert fit not in (".", "..")


def test_a_long_name_keeps_its_ending():
    assert fit_name("ü" * 300 + ".pdf").endswith("ü.pdf")


def test_names_in_use_get_numbers():
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
def test_a_file_is_named_by_its_header_or_else_by_its_path(disposition: str, name: str):
    assert name_from_response("https://e.com/files/d.pdf?x=1", {"content-disposition": disposition}) == name


def test_a_file_without_any_name_gets_a_number():
    name = name_from_response("https://e.com/", {})

    assert name.startswith("url_file_")
    assert name.endswith(".bin")
    assert len(name) == len("url_file_12345678.bin")
    assert name == name_from_response("https://e.com/", {})
    assert name_from_response("https://e.com/a%2Fb.txt", {}) == "b.txt"
