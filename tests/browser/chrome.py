"""What the checks in a real browser share. Needs chromium and chromedriver (Debian: chromium, chromium-driver)."""

from __future__ import annotations

import base64
import json
import socket
import tempfile
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update"),
)
# The elements of the page, those inside web components too. One script each time: an element that is kept from
# one call to the next may have been drawn anew in between.
DEEP = """
const deep = (root, selector) => [...root.querySelectorAll('*')].flatMap((element) => [
  ...(element.matches(selector) ? [element] : []),
  ...(element.shadowRoot ? deep(element.shadowRoot, selector) : []),
]);
"""


def with_deep(script: str) -> str:
    return DEEP + script


def chrome(width: int = 1280, height: int = 900) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.add_argument(f"--user-data-dir={tempfile.mkdtemp()}")
    for flag in (*FLAGS, f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options, Service("/usr/bin/chromedriver"))


def resize(driver: webdriver.Chrome, width: int, height: int = 900) -> None:
    """Give the page another size; a window is never narrower than 500 px."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def picture(driver: webdriver.Chrome, **options: object) -> bytes:
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


def requests(driver: webdriver.Chrome) -> list[str]:
    """Return the addresses that the browser asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False
