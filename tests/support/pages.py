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
    return re.sub(r"<[^>]*>", "", "".join(decompress(b64decode(part)).decode() for part in parts))
