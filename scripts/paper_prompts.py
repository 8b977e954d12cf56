"""Write the judge prompts of the CAPS paper as templates, from your own copy of its TeX source.

    python scripts/paper_prompts.py PAPER.tex FOLDER
    caps reproduce --prompts FOLDER ...

The eight prompts of the appendix become the files that `--prompts` expects, word for word. Their slots get
our names, and the fences around the texts come with the slots.
"""

import re
import sys
from pathlib import Path

FILES = {
    "Pointwise Code Verification Prompt": "solo-code.txt",
    "Pointwise Math Verification Prompt": "solo-math.txt",
    "V1 Pairwise Code Verification Prompt": "pair-ratings-code.txt",
    "V1 Pairwise Math Verification Prompt": "pair-ratings-math.txt",
    "CAPS E1 Code Prompt": "pair-e1-code.txt",
    "CAPS E1 Math Prompt": "pair-e1-math.txt",
    "CAPS E2 Code Prompt": "pair-e2-code.txt",
    "CAPS E2 Math Prompt": "pair-e2-math.txt",
}
_BOX = re.compile(r"\\begin\{tcolorbox\}\[(?P<options>.*?)\]\s*\n(?P<text>.*?)\\end\{tcolorbox\}", re.DOTALL)
_TITLE = re.compile(r"title=\{\\textbf\{(?P<title>[^{}]*)\}\}")
_SLOT = re.compile(r"\{(?:code|sol|solution|evidence)(?:_(?P<side>[AB]))?\}")


def plain_text(tex: str) -> str:
    r"""The text that the TeX of a box prints: line breaks, bold and escaped signs resolved."""
    text = re.sub(r"\s*\n\s*", " ", tex)  # in TeX, only `\\` breaks a line
    text = re.sub(r"\\(?:small|ttfamily)(?![a-z])\s*", "", text)
    text = re.sub(r"\\\\\[[^\]]*\]\s*", "\n\n", text)
    text = re.sub(r"\\\\\s*", "\n", text)
    text = re.sub(r"\\textbf\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\$([<>])\$", r"\1", text)
    return re.sub(r"\\([{}_&%#$])", r"\1", text).strip() + "\n"


def templates(tex: str) -> dict[str, str]:
    """The judge prompts of the paper by file name."""
    found = {}
    for box in _BOX.finditer(tex):
        title = _TITLE.search(box["options"])
        names = [name for start, name in FILES.items() if title and title["title"].startswith(start)]
        if names:
            text = plain_text(box["text"])
            found[names[0]] = _SLOT.sub(lambda slot: f"{{{(slot['side'] or 'candidate').lower()}}}", text)
    return found


def main() -> None:
    """Write the files; a prompt that is not found is named."""
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/paper_prompts.py PAPER.tex FOLDER")
    source, folder = map(Path, sys.argv[1:])
    found = templates(source.read_text(encoding="utf-8"))
    missing = [title for title, name in FILES.items() if name not in found]
    if missing:
        sys.exit(f"{source}: has no box with the title {missing[0]!r}: is it the source of the CAPS paper?")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(found)} prompts written to {folder}")


if __name__ == "__main__":
    main()
