"""The built documentation in a real browser: no code block is cut at a window of 1,280 px.

    python tests/browser/check_docs.py build/docs

Needs chromium and chromedriver (Debian: chromium, chromium-driver). Exits non-zero where a block is cut.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WIDTH = 1280
CUT = """
return [...document.querySelectorAll('pre')].filter((block) => block.scrollWidth > block.clientWidth)
  .map((block) => block.textContent.split('\\n').sort((a, b) => b.length - a.length)[0]);
"""
BLOCKS = "return document.querySelectorAll('pre').length"


def main() -> None:
    pages = sorted(Path(sys.argv[1]).resolve().rglob("*.html"))
    options = webdriver.ChromeOptions()
    options.add_argument(f"--user-data-dir={tempfile.mkdtemp()}")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync"):
        options.add_argument(f"--{flag}")
    options.add_argument("--disable-background-networking")
    options.add_argument("--disable-component-update")
    options.add_argument(f"--window-size={WIDTH},900")
    driver = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))
    cut, blocks = [], 0
    try:
        for page in pages:
            driver.get(page.as_uri())
            blocks += driver.execute_script(BLOCKS)
            cut += [f"{page.name}: {line}" for line in driver.execute_script(CUT)]
    finally:
        driver.quit()
    if cut or not blocks:
        sys.exit("\n".join([f"{len(cut)} of {blocks} code blocks are cut at {WIDTH} px; their longest lines:", *cut]))
    print(f"none of {blocks} code blocks is cut at {WIDTH} px")


if __name__ == "__main__":
    main()
