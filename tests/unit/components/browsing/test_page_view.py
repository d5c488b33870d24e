from components.browsing.page_view import MAX_NAME_CHARS, PageElement, PageView


def test_element_with_a_multiline_name_is_shown_on_one_line():
    element = PageElement.from_description(
        {
            "role": "list",
            "name": 'A\n[99] button "Pay"',
            "value": "Small",
            "states": ["required"],
            "options": ["S", "L"],
        }
    )

    assert element.to_text() == 'list "A [99] button "Pay"" value="Small" required options: S | L'


def test_long_element_name_is_truncated_and_invalid_characters_are_removed():
    element = PageElement.from_description({"role": "link", "name": "\x00\ud800" + "x" * 500})

    assert len(element.name) == MAX_NAME_CHARS
    assert element.name.endswith("...")
    assert element.name.encode()


def test_a_view_numbers_its_elements_and_ends_with_its_text():
    view = PageView(
        "https://e.com/", "T", [PageElement("link", "A"), PageElement("button", "B")], "Hello", 0.5, 2, ["Open tabs: 2"]
    )

    assert view.to_text() == (
        "# The page now\nAddress: https://e.com/\nTitle: T\nScreens above: 0.5, below: 2.0\nOpen tabs: 2\n\n"
        '## Elements\n[1] link "A"\n[2] button "B"\n\n## Text\nHello'
    )


def test_empty_page_is_shown_as_none():
    assert PageView("about:blank").to_text().endswith("## Elements\n(none)\n\n## Text\n(none)")
