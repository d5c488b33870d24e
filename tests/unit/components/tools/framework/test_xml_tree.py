"""Parsing of untrusted XML."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import ToolError
from components.tools.framework import xml_tree
from components.tools.framework.xml_tree import text_of

LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><l>&b;</l>'
FILE = '<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><l>&a;</l>'


def test_tags_have_their_namespace_and_text_has_no_markup():
    root = xml_tree.parse(b'<a xmlns="urn:x" n="1"><b>H<sub>2</sub>O\n is</b><c xmlns=""/></a>')

    assert [element.tag for element in root.iter()] == ["{urn:x}a", "{urn:x}b", "{urn:x}sub", "c"]
    assert (root.get("n"), text_of(root), text_of(None)) == ("1", "H2O is", "")


def test_document_type_without_entities_is_accepted():
    assert xml_tree.parse(b'<!DOCTYPE a PUBLIC "-//X//EN" "https://x.test/a.dtd"><a>b</a>').text == "b"


@pytest.mark.parametrize("document", [LAUGHS, FILE])
def test_entity_declarations_are_refused(document: str):
    with pytest.raises(ToolError, match="entities of its own"):
        xml_tree.parse(document.encode())


@settings(max_examples=25, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.text(alphabet="<>/ab&;!?-[]", max_size=30).map(str.encode)))
def test_invalid_xml_is_a_tool_error(document: bytes):
    try:
        root = xml_tree.parse(document)
    except ToolError:
        return
    assert root.tag


def test_blank_line_before_the_declaration_is_accepted():
    assert xml_tree.parse(b'\n <?xml version="1.0"?><a>b</a>').text == "b"
