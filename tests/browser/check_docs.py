"""The built documentation in a real browser: nothing is cut, words lead to their pages, and nothing is fetched.

    python tests/browser/check_docs.py build/docs [--pictures FOLDER] [--only WORD]

Exits non-zero where a code block is cut at 1,280 px, or a table, a text or a page is wider than the window at either
width, where a page asks another host for something, where the search shows another page first, or where the search
and the switch of the theme are not at the right.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from chrome import chrome, picture, requests, resize
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.expected_conditions import presence_of_element_located as located
from selenium.webdriver.support.ui import WebDriverWait

WIDTHS = (1280, 400)
# What is cut, by its longest line or its columns. On a phone, code and what scrolls in its own box may be wide.
CUT = """
const [root, wide] = [document.documentElement, window.innerWidth > 720];
const longest = (text) => text.split('\\n').sort((a, b) => b.length - a.length)[0];
const box = (table) => table.closest('.pst-scrollable-table-container') ?? table.parentElement;
const cut = (element) => element.scrollWidth > element.clientWidth + 1;
const beyond = (element) => !element.closest('pre, figure, p:has(> img)') && element.getClientRects().length
  && element.getBoundingClientRect().right > root.clientWidth + 1;
return [
  ...(root.scrollWidth > root.clientWidth ? [`the page is ${root.scrollWidth} px wide`] : []),
  ...[...document.querySelectorAll('pre')].filter((block) => wide && cut(block)).map((one) => longest(one.textContent)),
  ...[...document.querySelectorAll('article table')].filter((one) => cut(box(one)) || cut(one))
    .map((one) => `a table of ${one.dataset.columns || longest(one.textContent)}`),
  ...[...document.querySelectorAll('article *')].filter(beyond).slice(0, 1).map((one) => `the text ${one.textContent}`),
];
"""
SEEN = "return [document.querySelectorAll('pre').length, document.querySelectorAll('article table').length]"
HEIGHT = "return document.documentElement.scrollHeight"
# The page that a reader means by a word, which the search shows first.
MEANT = {
    "confidence interval": "epsilon",
    "guarantee": "ten_minutes",
    "unbounded": "glossary",
    "clamp": "limits",
    "contribution": "limits",
    "partition selection": "groups",
    "median": "choose",
    "top k": "choose",
    "noise": "mechanisms",
    "budget": "budgets",
    "ledger": "budgets",
    "synthetic": "synthetic",
    "join": "people",
    "DuckDB": "databases",
    "Spark": "spark",
    "OpenDP": "opendp",
}
# Where the search and the theme switch end, as a part of the window.
PLACES = """
const wanted = 'header .search-button, header .search-button-field, header .theme-switch-button';
const shown = [...document.querySelectorAll(wanted)]
  .map((one) => one.getBoundingClientRect()).filter((box) => box.width);
return shown.map((box) => box.right / window.innerWidth);
"""


def sought(driver: WebDriver, folder: Path) -> list[str]:
    """Return the words for which the search does not show their page first."""
    wrong = []
    for words, page in MEANT.items():
        driver.get(f"{(folder / 'search.html').as_uri()}?{urlencode({'q': words})}")
        shown = located((By.CSS_SELECTOR, "#search-results ul.search li a"))
        first = WebDriverWait(driver, 20).until(shown).get_attribute("href") or ""
        if Path(urlsplit(first).path).name != f"{page}.html":
            wrong.append(f"the search for {words} shows {Path(urlsplit(first).path).name} first")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--dark", action="store_true", help="pictures in dark mode")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    found = (page.relative_to(folder) for page in sorted(folder.rglob("*.html")))
    pages = [page for page in found if page.parts[0] != "_static" and arguments.only in str(page)]
    cut, blocks, tables = [], 0, 0
    with chrome() as driver:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if arguments.dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
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
                    mode = "-dark" if arguments.dark else ""
                    (arguments.pictures / f"{str(name).replace('/', '-')}-{width}{mode}.png").write_bytes(found)
        resize(driver, WIDTHS[0])
        driver.get((folder / "index.html").as_uri())
        places = driver.execute_script(PLACES)
        if len(places) < 2 or min(places) < 0.6:
            cut.append(f"the search and the theme switch are not at the right: {places}")
        cut += [f"{url} is fetched" for url in {*requests(driver)} if not url.startswith(("file:", "data:", "chrome:"))]
        cut += sought(driver, folder)
    if cut or not blocks or not tables:
        sys.exit("\n".join([f"{len(cut)} faults in {blocks} code blocks, {tables} tables and their pages:", *cut]))
    print(f"none of {len(pages)} pages is cut at {WIDTHS} px, with {blocks} code blocks and {tables} tables")
    print(f"nothing is fetched, and the search finds the pages of {len(MEANT)} words")


if __name__ == "__main__":
    main()
