"""What holds for every view: who may see and do what, hostile text, screen readers, keyboards, narrow screens."""
import pytest
from selenium.webdriver.common.keys import Keys

from browser import Page
from site_of_tests import EVIL, Site

VIEWS = ("#/leases", "#/queues", "#/failures", "#/policies", "#/policies/payments.ledger", "#/daemons", "#/audit", "#/scope/stock/shelf-a",
         "#/scope/payments.ledger/month-end", "#/scope/gpus/rack-1", "#/scope/cron/nightly", "#/policies/gpus", "#/schedules", "#/schedules?show=day", "#/schedule/reports.nightly")


def settled(page, view):
    page.open(view)
    page.sees("main h1")
    page.until(lambda: "Asking the daemon" not in page.text() and page.find("#live", "Live"), f"{view} drawn")


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_nothing(page, scheme):
    page.colours(scheme)
    found = {}
    for view in VIEWS:
        settled(page, view)
        found[view] = page.accessibility()
    page.open("#/scope/stock/shelf-a")
    page.click("button", "Force release")
    page.sees("dialog[open]")
    found["dialog"] = page.accessibility()
    if scheme == "light":
        page.size(320, 800)
        for view in VIEWS:
            settled(page, view)
            found[view + " at 320"] = page.accessibility()
    assert {view: each for view, each in found.items() if each} == {}


def test_axe_finds_nothing_where_one_signs_in(driver, filled):
    page = Page(driver, filled.base)
    page.open()
    page.sees("input[name=token]")
    assert page.accessibility() == []


def test_hostile_text_stays_text(driver, cluster):
    site = Site(cluster)
    try:
        role = site.fill_evil()
        page = Page(driver, site.base)
        page.sign_in(site.tokens["ops"])
        seen = ""
        for view, place in (("#/leases", ".lease"), ("#/queues", "tbody tr"), ("#/failures", "pre"), ("#/scope/evil/" + "".join("%%%02x" % byte for byte in EVIL.encode()), "pre")):
            page.open(view)
            page.sees(place, "<img src=x")
            seen += page.text()
        page.click("button", "Force release")
        page.type("dialog textarea", EVIL)
        page.type("dialog input", EVIL)
        page.click("dialog button", "Force release")
        page.sees("dialog tbody tr", EVIL)
        page.open("#/audit")
        page.sees("tbody tr", EVIL)
        # As owner, key, result, error of a hold, hook error; a label; a principal.
        page.open("#/scope/evil.role/by-role")
        page.sees("dd", "role:" + role[:20])
        for words in (EVIL, "note=" + EVIL):
            assert words in seen
        assert page.run("return [document.querySelectorAll('img, script:not([src])').length, document.title.includes('broken')]") == [0, False]
        assert page.complaints() == []
    finally:
        site.close()


def test_one_without_rights_has_no_buttons_and_is_refused(driver, filled):
    page = Page(driver, filled.base)
    page.sign_in(filled.tokens["reader"])
    page.sees("#who", "token:reader")
    page.sees("#who", "read only")
    for view, button in (("#/scope/stock/shelf-a", "Force release"), ("#/failures", "Retry all in"), ("#/policies/payments.ledger", "Freeze")):
        settled(page, view)
        assert page.find("main button", button) is None, view
    page.open("#/audit")
    page.sees(".note", "token:reader has the right admin nowhere")
    # What the page hides the daemon refuses, too.
    for path, body in (("force-release", {"namespace": "stock", "key": "shelf-a", "reason": "x"}), ("reap", {"namespace": "printers"}), ("policy", {"namespace": "stock", "frozen": True})):
        status = page.driver.execute_async_script("""
            const [path, body, done] = arguments;
            fetch('api/v1/session').then((r) => r.json()).then(({csrf_token}) => fetch('api/v1/' + path, {method: 'POST', body: JSON.stringify(body),
              headers: {'Content-Type': 'application/json', 'X-CSRF-Token': csrf_token}})).then((r) => done(r.status), (e) => done(String(e)))""", path, body)
        assert status == 403, (path, status)
    assert filled.scope("stock", "shelf-a") == "held"


def test_an_administrator_of_one_namespace_has_buttons_there_alone(driver, filled):
    page = Page(driver, filled.base)
    page.sign_in(filled.tokens["payments-admin"])
    page.open("#/scope/payments.ledger/month-end")
    page.sees("button", "Force release")
    page.open("#/scope/stock/shelf-a")
    page.sees("main h1")
    page.until(lambda: "Asking" not in page.text(), "an answer")
    assert page.find("button", "Force release") is None
    assert "picker-1" not in page.text("main")


def test_signing_in_and_out(driver, filled):
    page = Page(driver, filled.base)
    page.open("#/daemons")
    page.type("input[name=token]", "lht_" + "x" * 49)
    page.click("button", "Sign in")
    page.sees(".note.bad")
    page.type("input[name=token]", filled.tokens["stranger"])
    page.click("button", "Sign in")
    page.sees(".note.bad", "may read nothing")
    page.type("input[name=token]", filled.tokens["reader"])
    page.click("button", "Sign in")
    page.sees("h1", "daemon")
    cookie = driver.get_cookie("leasehold_session")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert filled.tokens["reader"] not in driver.page_source and page.run("return document.cookie") == ""
    page.click("#who button", "Sign out")
    page.sees("input[name=token]")
    assert driver.get_cookie("leasehold_session") is None
    page.complaints()


def test_a_keyboard_alone_reaches_and_does_everything(own, own_page):
    page = own_page
    own.acquire("stock", "shelf-a", "picker-1")
    page.open("#/leases")
    page.sees(".lease", "shelf-a")

    def tab_to(text, most=60):
        for _ in range(most):
            page.press(Keys.TAB)
            if text in (page.focused() or ""):
                return
        raise AssertionError(f"{text} is not reached; the focus is on {page.focused()}")

    page.run("document.activeElement.blur()")
    page.driver.find_element("css selector", "body").send_keys(Keys.TAB)
    assert page.focused() == "Skip to the content"
    tab_to("shelf-a")
    page.press(Keys.ENTER)
    page.sees("h1", "shelf-a")
    # A new view begins at its heading.
    page.until(lambda: page.focused() == "shelf-a", "the focus at the heading")
    tab_to("Force release")
    page.press(Keys.ENTER)
    page.sees("dialog[open]")
    page.press(Keys.ESCAPE)
    page.sees_no("dialog")
    page.until(lambda: "Force release" in page.focused(), "the focus back on the button")
    page.press(Keys.ENTER)
    page.type("dialog textarea", "by hand")
    page.press(Keys.TAB)
    page.press("shelf-a", Keys.ENTER)
    page.sees("dialog .note.good")
    page.press(Keys.ENTER)
    page.sees_no("dialog")
    assert own.scope("stock", "shelf-a") == "free"


def test_the_focus_and_what_was_typed_outlive_updates(own, own_page):
    page = own_page
    for i in range(5):
        own.acquire("stock", f"shelf-{i}", f"picker-{i}")
    page.open("#/leases")
    page.sees(".lease", "shelf-3")
    page.run("[...document.querySelectorAll('.lease a')].find((a) => a.textContent === 'shelf-3').focus()")
    # Rows come before it, and one goes.
    own.acquire("aaa", "first", "early")
    own.psql("select leasehold.force_release('stock', 'shelf-1', 'x')")
    page.sees(".lease", "early")
    page.sees_no(".lease", "picker-1")
    assert page.focused() == "shelf-3"
    page.type("input[type=search]", "picker")
    own.acquire("stock", "shelf-9", "picker-9")
    page.sees(".lease", "picker-9")
    assert page.run("return [document.activeElement.type, document.activeElement.value]") == ["search", "picker"]
    # The live regions do not speak of each change.
    assert "picker-9" not in page.text("#said") + page.text("#live")


def test_320_pixels_need_no_scrolling_to_the_side(page):
    page.size(320, 800)
    for view in VIEWS:
        settled(page, view)
        assert page.is_too_wide() == [], view
    page.open("#/scope/stock/shelf-a")
    page.click("button", "Force release")
    page.sees("dialog[open]")
    assert page.is_too_wide() == []
    page.open("#/leases")
    page.sees(".lease")
    page.picture("10-narrow")


def test_a_wall_screen_is_filled(page):
    page.size(3840, 2160)
    page.colours("dark")
    settled(page, "#/leases")
    page.sees(".lease")
    assert page.run("return document.querySelector('.split').getBoundingClientRect().width") > 3600
    assert page.is_too_wide() == []


def test_the_policy_of_the_page_allows_no_foreign_script(page):
    page.open("#/leases")
    page.sees(".lease")
    assert page.run("""
        const script = document.createElement('script'); script.textContent = "document.title = 'broken'"; document.body.append(script);
        return document.title.includes('broken')""") is False
    assert any("Content Security Policy" in line for line in page.complaints())
