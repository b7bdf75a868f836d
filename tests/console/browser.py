"""One headless Chromium, and what a person does with it: look, click, type, wait.

Everything waits for a condition, never for a time to pass. Pictures go to LEASEHOLD_CONSOLE_PICTURES, by default leasehold-console in the
directory for temporary files.
"""
import functools
import os
import pathlib
import sys
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import JavascriptException, StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import npm  # noqa: E402

BOUND = 60  # seconds until a test gives up; never a measurement
PICTURES = pathlib.Path(os.environ.get("LEASEHOLD_CONSOLE_PICTURES") or pathlib.Path(tempfile.gettempdir()) / "leasehold-console")
# It has no display, is root in a container, and must not look for updates.
FLAGS = ("--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
         "--disable-sync --disable-dev-shm-usage --hide-scrollbars").split()
# A page that is not on the screen of a person is slowed down otherwise.
FLAGS += ["--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows"]


COOKIES = {}

FIND = """
    const [css, text] = arguments;
    const isVisible = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && [...e.getClientRects()].some((box) => box.width && box.height);
    return [...document.querySelectorAll(css)].find((e) => (e.innerText || e.textContent || '').includes(text) && isVisible(e)) || null"""


def start_driver():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.set_script_timeout(BOUND)
    driver.set_page_load_timeout(BOUND)
    return driver


class Page:
    """The console at `base`, in the one browser."""

    def __init__(self, driver, base):
        self.driver = driver
        self.base = base
        # The page of the test before goes first: it would ask, and complain, without its cookie.
        self.open_nothing()
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        driver.get_log("browser")
        self.size(1280, 800)
        self.colours("light")

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def open_nothing(self):
        self.driver.get("about:blank")

    def open(self, place=""):
        """The view as one who opens a link in a new tab sees it."""
        self.open_nothing()
        self.driver.get(f"{self.base}/{place}")

    def sign_in(self, token):
        """By the form the first time; then by the cookie of that time, because attempts to sign in are limited."""
        self.open()
        if (self.base, token) in COOKIES:
            self.driver.add_cookie(COOKIES[self.base, token])
            self.open()
        else:
            self.type("input[name=token]", token)
            self.click("button", "Sign in")
        self.sees("nav a")
        COOKIES[self.base, token] = self.driver.get_cookie("leasehold_session")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, condition, what):
        """Repeats what a page that draws itself anew at that moment refuses."""
        end = time.monotonic() + BOUND
        while True:
            try:
                value = condition()
                if value:
                    return value
            except (StaleElementReferenceException, JavascriptException, WebDriverException) as error:
                value = error
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {BOUND} s ({value}); the page says:\n{self.text('body')}\n{self.complaints()}")
            time.sleep(0.05)

    def find(self, css, text=""):
        """The first visible element whose text has `text`, or None. The page looks for it: to ask about each element is a request of its own."""
        return self.run(FIND, css, text)

    def sees(self, css, text=""):
        return self.until(lambda: self.find(css, text), f"{css} with {text!r}")

    def sees_no(self, css, text=""):
        self.until(lambda: self.find(css, text) is None, f"no {css} with {text!r}")

    def click(self, css, text=""):
        def press():
            element = self.find(css, text)
            if element:
                element.click()
            return element
        self.until(press, f"{css} with {text!r} to click")

    def type(self, css, text):
        field = self.sees(css)
        field.clear()
        field.send_keys(text)

    def press(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def text(self, css="main"):
        return self.run("const found = document.querySelector(arguments[0]); return found ? found.innerText : ''", css)

    def focused(self):
        return self.run("const e = document.activeElement; return e.getAttribute('aria-label') || e.textContent || e.name")

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def complaints(self):
        """What the browser said against the page: errors, and what the security policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def accessibility(self):
        """axe-core's findings, one line each."""
        if not self.run("return Boolean(window.axe)"):
            # Put into the page by the browser, for the page's own security policy allows no foreign script.
            self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": read_axe()})
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run(document).then((r) => done(r.violations), (e) => done([{id: String(e), nodes: []}]))")
        return [f"{each['id']}: {node['html']} {node['failureSummary']}" for each in found for node in each["nodes"] or [{"html": "", "failureSummary": ""}]]

    def heap_bytes(self):
        """Of the page's scripts, after a collection."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        self.driver.execute_cdp_cmd("Performance.enable", {})
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize")

    def is_too_wide(self):
        """The elements that reach beyond the right edge of a page that scrolls to the side."""
        return self.run("""
            if (document.documentElement.scrollWidth <= innerWidth) return [];
            return [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 100))""")


@functools.lru_cache
def read_axe():
    return (pathlib.Path(npm.installed(str(HERE))) / "axe-core/axe.min.js").read_text()
