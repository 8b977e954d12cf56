"""What the pages of reports contain: their markup, and what their scripts unpack."""

import json
import re
from base64 import b64decode
from gzip import decompress


def packed_data(page):
    """What the scripts of a page read."""
    return json.loads(decompress(b64decode(re.search(r'id="data">([^<]*)<', page)[1])))


def whole_text(path):
    """The text of a page with its receipts, as written: tags left out."""
    page = path.read_text()
    parts = re.findall(r'id="part-\d+">([^<]*)<', page)
    return re.sub(r"<[^>]*>", "", "".join(receipt for part in parts for receipt in unpacked(b64decode(part))))


def unpacked(part):
    """The receipts of a part, with repeated lines in place of their numbers."""
    receipts = []
    for receipt in decompress(part).decode().split("\0"):
        lines = []
        for line in receipt.split("\n"):
            lines.append(lines[int(line[1:])] if line.startswith("\1") else line)
        receipts.append("\n".join(lines))
    return receipts


def part_in(script):
    """The index of the first receipt in the script of a part, and the packed receipts."""
    start, text = re.fullmatch(rb'capsPart\((\d+),"(.*)"\);\n', script, re.DOTALL).groups()
    escaped = {b"n": b"\n", b"r": b"\r"}
    return int(start), re.sub(rb"\\(.)", lambda found: escaped.get(found[1], found[1]), text)
