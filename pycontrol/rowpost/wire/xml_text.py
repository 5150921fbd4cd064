"""Parse documents as NServiceBus and .NET write them, where they are no XML 1.0 or contradict themselves.

NServiceBus writes control characters as references, such as `&#x1;`, which XML 1.0 does not know; characters that a
document does not have take their place while it is parsed. A .NET StringWriter declares utf-16 whatever the bytes are.
NServiceBus 3 and 4 put an element `Messages` around the messages, and a line break may stand before the declaration.
Document types and entities are refused.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

__all__ = ["FORBIDDEN", "parse_xml", "reference"]

#: what XML 1.0 cannot carry, and NServiceBus writes as references
FORBIDDEN = "[^\t\n\r\x20-\ud7ff\ud800-\udfff\ue000-\ufffd\U00010000-\U0010ffff]"
_SPACE = b" \t\r\n"
_declaration = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)[\"']").match
_WIDE = ("utf-16", "utf16", "ucs-2", "unicode")
_ODD = r"x0*([0-8BCEFbcef]|1[0-9A-Fa-f]|[Ff]{3}[EeFf])|0*([0-8]|1[124-9]|2[0-9]|3[01]|6553[45])"
_may_be_odd = re.compile(rf"&#(?:{_ODD});".encode()).search
#: in what is no text, nothing is a reference
_odd_references = re.compile(
    rf"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|&#(?:{_ODD});", re.DOTALL
).sub
#: characters without a meaning, one of which may mark another
_PRIVATE = range(0xE000, 0xF900)


def reference(character: str) -> str:
    """Return the reference that NServiceBus writes for a character that XML cannot carry."""
    return f"&#x{ord(character):X};"


def parse_xml(body: bytes) -> Element:
    """Return the root of a document; of a list of messages of NServiceBus 3 and 4, too.

    Raises:
        ParseError: it is no XML.
        DefusedXmlException: it has a document type.
        ValueError, LookupError: its bytes are not in the encoding that it declares.
    """
    text = body.removeprefix(BOM_UTF8).lstrip(_SPACE)
    if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return _parse(body.decode("utf-16").lstrip())
    declared = _declaration(text)
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if encoding.startswith(_WIDE):  # the declaration can be read, so the bytes are no utf-16
        return _parse(text.decode())
    return _parse(text.decode(encoding)) if _may_be_odd(text) else fromstring(text, forbid_dtd=True)


def _parse(text: str) -> Element:
    if not _may_be_odd(text.encode(errors="replace")):
        return fromstring(text, forbid_dtd=True)
    mark = _absent(text)
    if mark is None:  # then the parser says what is wrong
        return fromstring(text, forbid_dtd=True)

    def marked(found: re.Match[str]) -> str:
        code = int(found[1], 16) if found[1] else int(found[2]) if found[2] else None
        return found[0] if code is None else f"{mark}{code};"

    root = fromstring(_odd_references(marked, text), forbid_dtd=True)
    restore = re.compile(f"{mark}([0-9]+);").sub
    for element in root.iter():
        if element.text and mark in element.text:
            element.text = restore(lambda found: chr(int(found[1])), element.text)
    return root


def _absent(text: str) -> str | None:
    """Return a character that is not in a text, nor is a reference to it."""
    there = set(text) | {chr(int(code, 16)) for code in re.findall(r"&#x0*([EeFf][0-9A-Fa-f]{3});", text)}
    there |= {chr(int(code)) for code in re.findall(r"&#0*([56][0-9]{4});", text)}
    return next((chr(code) for code in _PRIVATE if chr(code) not in there), None)
