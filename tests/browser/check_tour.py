"""The tour in a real browser: the slider moves the text and a figure, and code stands above what it shows.

    python tests/browser/check_tour.py [--screenshot FILE]

Exits non-zero where something does not move.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chrome import DEEP, answers, chrome, free_port, with_deep
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"
SLIDER = DEEP + "return deep(document, '[role=slider]')[0];"
FIGURE = with_deep("""
const drawn = deep(document, 'canvas.marks, svg.marks');
return drawn.map((figure) => figure.tagName === 'CANVAS' ? figure.toDataURL() : figure.outerHTML).join(' ');
""")
TEXT = with_deep("""
const text = (root) => root.nodeType === 3 ? root.data : root.nodeName === 'STYLE' ? ''
  : [...(root.shadowRoot ? [root.shadowRoot] : []), ...root.childNodes].map(text).join(' ');
return text(document.body).replace(/\\s*([.()])\\s*/g, '$1');
""")


def wait(what: str, condition: Callable[[], object], seconds: float = 120) -> object:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(StaleElementReferenceException):
            found = condition()
            if found:
                return found
        time.sleep(0.5)
    msg = f"{what} did not come within {seconds:.0f} s"
    raise TimeoutError(msg)


def check(driver: webdriver.Chrome, url: str, screenshot: Path | None) -> None:
    driver.get(url)

    def epsilon() -> str | None:
        found = re.search(r"At epsilon = ([0-9.]+) the top reason", driver.find_element(By.TAG_NAME, "body").text)
        return found and found[1]

    def figure() -> str | None:
        return driver.execute_script(FIGURE)

    def settled() -> str | None:  # the figures, once they do not change by themselves
        first = figure()
        time.sleep(2)
        return first if first == figure() else None

    def move() -> bool:
        slider = driver.execute_script(SLIDER)
        if slider is None:
            return False
        driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", slider)
        ActionChains(driver).move_to_element(slider).click().send_keys(*[Keys.ARROW_RIGHT] * 3).perform()
        return True

    start = wait("the text with epsilon", epsilon)
    # As an app, too, the tour shows the code of what it shows, and numbers that people read.
    text = driver.execute_script(TEXT)
    for shown in ("dp.protect", "plot.answers(released", "Calls by region"):
        if shown not in text:
            sys.exit(f"the tour does not show {shown!r}")
    before = wait("the figures", settled)
    wait("the slider", move)
    wait("another epsilon", lambda: epsilon() not in (None, start))
    wait("another figure", lambda: figure() not in (None, before))
    print(f"the slider went from epsilon = {start} to {epsilon()}, and the figure with it")
    if screenshot is not None:
        wait("the figure at rest", settled)
        driver.save_screenshot(str(screenshot))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshot", type=Path)
    arguments = parser.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "marimo", "run", str(TOUR), "--headless", "--no-token", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        wait("the notebook", lambda: answers(url))
        with chrome(1100) as driver:
            check(driver, url, arguments.screenshot)
    finally:
        server.terminate()
        server.wait(20)


if __name__ == "__main__":
    main()
