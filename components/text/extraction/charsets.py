"""Decoding of bytes whose charset is not known for certain.

The order is: a byte order mark; the charset that an XML or HTML file declares; UTF-8, which other encodings are hardly
ever mistaken for, even with a few damaged bytes; GB18030, if the high bytes come in pairs, as in Chinese; and
Windows-1252, which accepts almost all bytes.
"""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like the mark of UTF-16, so it is tested first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding)[ \t]*=[ \t]*["']?([A-Za-z0-9_-]{2,20})""")
_KNOWN = re.compile(
    r"utf-?8|gb(?:k|2312|18030)|big5|shift[_-]?jis|euc-(?:jp|kr)|iso-8859-\d+|windows-125\d|cp125\d|koi8-[ru]|us-ascii",
    re.IGNORECASE,
)
_NAMED = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})  # codecs, but not charsets
_DECLARATION_BYTES = 1024  # bytes that are searched for a declaration
_SAMPLE = 65536  # bytes in which high bytes are counted
_HIGH = re.compile(rb"[\x80-\xff]+")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def decode(data: bytes, *, may_declare: bool = False) -> str:
    """Decode bytes. Never raises; an invalid byte becomes U+FFFD.

    `may_declare`: the bytes are XML or HTML, which may declare their charset.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    for encoding in (*(_find_declared(data) if may_declare else ()), "utf-8"):
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("utf-8" if _is_damaged_utf8(data) else _guess(data), "replace")


def find_charset(content_type: str) -> str | None:
    """Return the charset that a content type names; None if it names none, or an unknown one."""
    found = _NAMED.search(content_type)
    try:
        charset = codecs.lookup(found[1]).name if found else ""
        b" ".decode(charset or "ascii", "replace")  # `hex` and the like are codecs, but not charsets
    except (LookupError, ValueError):
        return None
    return charset if charset and charset.replace("_", "-") not in _NO_CHARSETS else None


def _is_damaged_utf8(data: bytes) -> bool:
    """Return whether nearly all bytes beyond ASCII are valid UTF-8."""
    text = data[:_SAMPLE].decode("utf-8", "replace")
    return 10 * text.count("\ufffd") < len(_BEYOND_ASCII.findall(text))


def _find_declared(data: bytes) -> tuple[str, ...]:
    found = _DECLARED.search(data[:_DECLARATION_BYTES])
    name = found[1].decode("ascii") if found else ""
    return (name,) if _KNOWN.fullmatch(name) else ()


def _guess(data: bytes) -> str:
    """Return `gb18030` if single high bytes are rare; the accents of western languages are single high bytes."""
    runs = [len(run) for run in _HIGH.findall(data[:_SAMPLE])]
    alone = sum(1 for length in runs if length == 1)
    if 2 * alone < len(runs):
        try:
            data.decode("gb18030")
        except UnicodeDecodeError:
            return "cp1252"
        return "gb18030"
    return "cp1252"
