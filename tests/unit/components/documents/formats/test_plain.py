"""Plain text shows a text without Markdown's marks."""

from components.documents import Layout, render


def text_of(markdown: str, layout: Layout | None = None) -> str:
    return render(markdown, "txt", layout or Layout()).decode()


def test_marks_are_gone_and_structure_is_seen():
    shown = text_of("# Title\n\nSome **bold** `code`.\n\n- a\n  1. b\n- c\n\n> quoted\n\n```\nx = 1\n```\n\n---\n")

    assert shown == ("Title\n\nSome bold code.\n\n- a\n  1. b\n- c\n\n> quoted\n\n    x = 1\n\n" + "-" * 40 + "\n")


def test_wide_lists_keep_their_gaps():
    assert text_of("1. a\n\n2. b\n\n   c\n") == "1. a\n\n2. b\n\n   c\n"
    assert text_of("- \n- b") == "-\n- b\n"


def test_columns_of_a_table_line_up_in_any_script():
    assert text_of("|Name|N|\n|-|-|\n|苹果|1|\n|pear|**2**|") == "Name  N\n----  -\n苹果  1\npear  2\n"


def test_a_very_wide_cell_does_not_widen_every_row():
    shown = text_of("|A|B|\n|-|-|\n|" + "x" * 500 + "|1|\n|y|2|")

    assert max(len(line) for line in shown.splitlines() if "x" not in line) < 60


def test_the_timestamp_stands_before_the_text():
    assert text_of("a", Layout(timestamp="Generated: now")) == "Generated: now\n\na\n"
    assert text_of("") == ""
