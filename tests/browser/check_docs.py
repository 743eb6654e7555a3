"""The built documentation in a real browser: nothing is cut at 1,280 px, and no page scrolls sideways at 400 px.

    python tests/browser/check_docs.py build/docs [--pictures FOLDER] [--only WORD]

Exits non-zero where a code block or a table is cut at 1,280 px, or a page is wider than the window at either width.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chrome import chrome, picture, resize

WIDTHS = (1280, 400)
# What is cut, by its longest line or its columns. On a phone, code and what scrolls in its own box may be wide.
CUT = """
const [root, wide] = [document.documentElement, window.innerWidth > 720];
const longest = (text) => text.split('\\n').sort((a, b) => b.length - a.length)[0];
const box = (table) => table.closest('.pst-scrollable-table-container') ?? table.parentElement;
const cut = (element) => element.scrollWidth > element.clientWidth + 1;
return [
  ...(root.scrollWidth > root.clientWidth ? [`the page is ${root.scrollWidth} px wide`] : []),
  ...[...document.querySelectorAll('pre')].filter((block) => wide && cut(block)).map((one) => longest(one.textContent)),
  ...[...document.querySelectorAll('article table')].filter((one) => cut(box(one)) || cut(one))
    .map((one) => `a table of ${one.dataset.columns || longest(one.textContent)}`),
];
"""
SEEN = "return [document.querySelectorAll('pre').length, document.querySelectorAll('article table').length]"
HEIGHT = "return document.documentElement.scrollHeight"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    found = (page.relative_to(folder) for page in sorted(folder.rglob("*.html")))
    pages = [page for page in found if page.parts[0] != "_static" and arguments.only in str(page)]
    cut, blocks, tables = [], 0, 0
    with chrome() as driver:
        for width in WIDTHS:
            resize(driver, width)
            for name in pages:
                driver.get((folder / name).as_uri())
                seen = driver.execute_script(SEEN)
                blocks, tables = blocks + seen[0], tables + seen[1]
                cut += [f"{width} px: {name}: {what}" for what in driver.execute_script(CUT)]
                if arguments.pictures is not None:
                    clip = {"x": 0, "y": 0, "width": width, "height": driver.execute_script(HEIGHT), "scale": 1}
                    found = picture(driver, captureBeyondViewport=True, clip=clip)
                    (arguments.pictures / f"{str(name).replace('/', '-')}-{width}.png").write_bytes(found)
    if cut or not blocks or not tables:
        sys.exit("\n".join([f"{len(cut)} of {blocks} code blocks, {tables} tables and their pages are cut:", *cut]))
    print(f"none of {len(pages)} pages is cut at {WIDTHS} px, with {blocks} code blocks and {tables} tables")


if __name__ == "__main__":
    main()
