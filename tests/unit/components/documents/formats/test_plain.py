"""Conversion of Markdown to plain text."""

from components.documents import Layout, render


def text_of(markdown: str, layout: Layout | None = None) -> str:
    return render(markdown, "txt", layout or Layout()).decode()


def test_markdown_marks_are_removed_and_the_structure_remains():
    text = text_of("# Title\n\nSome **bold** `code`.\n\n- a\n  1. b\n- c\n\n> quoted\n\n```\nx = 1\n```\n\n---\n")

    assert text == ("Title\n\nSome bold code.\n\n- a\n  1. b\n- c\n\n> quoted\n\n    x = 1\n\n" + "-" * 40 + "\n")


def test_blank_lines_between_list_items_remain():
    assert text_of("1. a\n\n2. b\n\n   c\n") == "1. a\n\n2. b\n\n   c\n"
    assert text_of("- \n- b") == "-\n- b\n"


def test_table_columns_are_aligned_in_any_script():
    assert text_of("|Name|N|\n|-|-|\n|苹果|1|\n|pear|**2**|") == "Name  N\n----  -\n苹果  1\npear  2\n"


def test_a_very_wide_cell_does_not_widen_every_row():
    text = text_of("|A|B|\n|-|-|\n|" + "x" * 500 + "|1|\n|y|2|")

    assert max(len(line) for line in text.splitlines() if "x" not in line) < 60


def test_timestamp_is_written_before_the_text():
    assert text_of("a", Layout(timestamp="Generated: now")) == "Generated: now\n\na\n"
    assert text_of("") == ""
