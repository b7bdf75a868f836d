"""Schedules in Chromium: the list, one schedule, the picture of a day; what an administrator does, and what others cannot. A picture of each is kept."""
import datetime

import pytest

from browser import Page
from harness import wait_until
from site_of_tests import Site


@pytest.fixture(scope="module")
def many(cluster):
    site = Site(cluster)
    site.fill_schedules(others=196)
    yield site
    site.close()


def row(page, name):
    return page.sees("tbody tr", name).text


def test_the_list_says_how_each_schedule_stands(page):
    page.open("#/schedules")
    page.sees("h1", "4 schedules, 1 running, ")  # sensors.s000 misses its ticks as time goes by
    page.sees("nav a[aria-current=page]", "Schedules")
    nightly = row(page, "reports.nightly")
    for words in ("0 3 * * *", "Europe/Berlin", "in ", "done", "1 missed", "1 dead", "Pause", "Run now"):
        assert words in nightly, nightly
    assert "runner-3/pid 8" in row(page, "reports.hourly")
    assert "paused" in row(page, "reports.paused")
    page.picture("10-schedules")
    page.click("td a", "reports.nightly")
    page.sees("h1", "reports.nightly")
    page.open("#/schedules/sensors")
    page.sees("h1", "1 schedule, ")
    assert page.find("tbody tr", "reports") is None


def test_one_schedule_shows_its_ticks_and_what_they_said(page):
    page.open("#/schedule/reports.nightly")
    page.sees(".note", "1 was missed and 1 is dead")
    for state, said in (("done", '{"rows": 7}'), ("failed", "the disk is full"), ("dead", "the disk is full"), ("missed", "–"), ("skipped", "–")):
        assert said in row(page, state)
    failed = row(page, "failed")
    assert "tried again in" in failed and "runner-1/pid 7" in failed and "2" in failed
    page.sees("h2", "in Europe/Berlin")
    page.click("button", "In my time zone")
    page.sees_no("h2", "in Europe/Berlin")
    page.picture("11-schedule")
    # A tick leads to its lease.
    page.click("td a time")
    page.sees("main p a", "reports.nightly")


def show_in(page, zone):
    page.sees("select[name=zone]")
    page.run("const zone = document.querySelector('select[name=zone]'); zone.append(new Option(arguments[0])); zone.value = arguments[0]; zone.dispatchEvent(new Event('change'))", zone)


def afternoon():
    """A zone where it is between 16 and 17 o'clock: all that the site did in the last 14 hours was today. And that day."""
    now = datetime.datetime.now(datetime.timezone.utc)
    offset = (16 - now.hour + 12) % 24 - 12
    return f"Etc/GMT{-offset:+d}", (now + datetime.timedelta(hours=offset)).date()  # POSIX has the sign the other way round


def marks(page, name):
    """The classes of the marks of one row, and what a pointer says of them."""
    return page.run("""
        const row = [...document.querySelectorAll('.day-row')].find((e) => e.innerText.includes(arguments[0]));
        return row ? [...row.querySelectorAll('svg rect')].map((e) => [e.getAttribute('class'), e.textContent, +e.getAttribute('x'), +e.getAttribute('width')]) : []""", name)


def test_the_picture_has_a_mark_for_each_state_at_its_time(page):
    page.open("#/schedules?show=day")
    page.sees(".day-row", "reports.nightly")
    page.sees(".legend li", "dead: failed for good")
    zone, day = afternoon()
    show_in(page, zone)
    page.sees("h2", str(day))
    wanted = {}
    for state, at in (line.split("|") for line in page_site_ticks(page, zone)):
        wanted.setdefault(state, []).append(at)
    assert len(wanted) == 5, wanted
    found = {}
    for kind, words, x, _ in page.until(lambda: marks(page, "reports.nightly"), "marks"):
        if kind not in ("coming", "due", "more"):
            found.setdefault(kind, []).append(words[:5])
            hour, minute = map(int, words[:5].split(":"))
            assert abs(x - (hour * 60 + minute)) < 7, (words, x)
    assert {kind: sorted(each) for kind, each in found.items()} == {kind: sorted(each) for kind, each in wanted.items()}
    assert any(kind == "running" for kind, *_ in marks(page, "reports.hourly"))
    assert not any(kind == "coming" for kind, *_ in marks(page, "reports.paused"))
    # What each mark is stands in words, too.
    said = page.sees(".day-row", "reports.nightly").text
    assert all(f"{len(each)} {kind}" in said for kind, each in wanted.items()), said
    page.picture("12-schedules-today")


def page_site_ticks(page, zone):
    return page.site.psql(f"select state || '|' || to_char(at at time zone '{zone}', 'HH24:MI') from leasehold.tick where schedule = 'reports.nightly' and state <> 'due'"
                          f" and (at at time zone '{zone}')::date = (now() at time zone '{zone}')::date").split()


def test_a_tick_each_minute_is_one_band_with_its_gap(page):
    page.open("#/schedules?show=day")
    show_in(page, "UTC")  # the site's gap is from 5 to 6 there
    page.sees(".day-row", "sensors.s000")
    drawn = page.until(lambda: marks(page, "sensors.s000"), "marks")
    done = [each for each in drawn if each[0] == "done"]
    assert 0 < len(done) < 12, drawn
    midnight = page.site.psql("select count(*) from leasehold.tick where schedule = 'sensors.s000' and state = 'done' and (at at time zone 'UTC')::date = (now() at time zone 'UTC')::date")
    assert f"{int(midnight):,} done" in page.sees(".day-row", "sensors.s000").text
    # Nothing is drawn from 5 to 6, where there was no tick.
    assert not any(x < 359 and x + width > 301 for _, _, x, width in done), done


@pytest.mark.parametrize("zone, day, hours", (("Europe/Berlin", "2026-10-25T12:00:00Z", 25), ("Europe/Berlin", "2026-03-29T12:00:00Z", 23), ("Asia/Kathmandu", "2026-11-28T18:20:00Z", 24),
                                              ("Pacific/Kiritimati", "2026-11-28T11:00:00Z", 24)))
def test_a_day_is_from_midnight_to_midnight_of_its_zone(page, zone, day, hours):
    begins, ends, first, last = page.driver.execute_async_script("""
        const [zone, at, done] = arguments;
        import('/day.js').then(({today, hourMinute}) => { const day = today(Date.parse(at), zone); done([day.begins, day.ends, hourMinute(day.begins, zone), hourMinute(day.ends, zone)]); }, (e) => done(String(e)))""", zone, day)
    assert (ends - begins, first, last) == (hours * 3600 * 1000, "00:00", "00:00")
    assert begins <= datetime.datetime.fromisoformat(day.replace("Z", "+00:00")).timestamp() * 1000 < ends


def test_an_administrator_pauses_resumes_and_runs_now(own, own_page):
    page = own_page
    own.schedule("jobs.one", "@yearly")
    page.open("#/schedules")
    page.click("button", "Pause …")
    page.sees("dialog", "instants until then are skipped")
    page.click("dialog button", "Cancel")
    assert own.psql("select paused from leasehold.schedule") == "f"
    page.click("button", "Pause …")
    page.click("dialog button", "Pause")
    page.sees("tbody tr", "paused")
    assert own.psql("select paused from leasehold.schedule") == "t"
    page.open("#/schedule/jobs.one")
    page.sees(".note.warn", "Paused")
    page.click("button", "Run now …")
    page.sees("dialog", "though the schedule is paused")
    page.click("dialog button", "Run now")
    page.sees("dialog .note.good", "is due")
    page.click("dialog button", "Close")
    assert "by hand" in row(page, "due")
    # What a worker does then comes by itself.
    own.psql("select count(*) from leasehold.claim_tick('jobs.one', 'worker-8', '1 hour')")
    page.sees(".note", "worker-8 runs it now")
    page.sees("tbody tr", "running")
    page.click("button", "Resume …")
    page.click("dialog button", "Resume")
    page.sees(".note.good")
    assert own.psql("select paused from leasehold.schedule") == "f"
    assert own.psql("select string_agg(action || ' ' || principal, ',' order by at) from leasehold.audit where action in ('schedule_pause', 'schedule_run', 'schedule_resume')") == (
        "schedule_pause token:ops,schedule_run token:ops,schedule_resume token:ops")


def test_one_without_rights_sees_and_cannot_act(driver, filled):
    page = Page(driver, filled.base)
    page.sign_in(filled.tokens["reader"])
    page.open("#/schedules")
    page.sees("tbody tr", "reports.nightly")
    assert page.find("button", "Run now") is None and page.find("button", "Pause …") is None
    page.open("#/schedule/reports.nightly")
    page.sees("tbody tr", "dead")
    assert page.find("button", "Run now") is None
    for path, body in (("schedule-pause", {"namespace": "reports.nightly", "paused": True}), ("schedule-run", {"namespace": "reports.nightly"})):
        status = page.driver.execute_async_script("""
            const [path, body, done] = arguments;
            fetch('api/v1/session').then((r) => r.json()).then(({csrf_token}) => fetch('api/v1/' + path, {method: 'POST', body: JSON.stringify(body),
              headers: {'Content-Type': 'application/json', 'X-CSRF-Token': csrf_token}})).then((r) => done(r.status), (e) => done(String(e)))""", path, body)
        assert status == 403, (path, status)
    # One who may read elsewhere alone sees none.
    page = Page(driver, filled.base)
    page.sign_in(filled.tokens["payments-admin"])
    page.open("#/schedules")
    page.sees("h1", "No schedule")
    page.sees(".none", "leasehold schedule add")
    page.picture("13-no-schedule")


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_two_hundred_schedules_fit_and_are_accessible(driver, many, scheme):
    page = Page(driver, many.base)
    page.sign_in(many.tokens["ops"])
    page.colours(scheme)
    page.open("#/schedules")
    page.sees("h1", "200 schedules, 1 running")
    wait_until(lambda: len(page.driver.find_elements("css selector", "tbody tr")) == 200, 60, "all rows")
    page.open("#/schedules?show=day")
    page.sees(".day-row", "sensors.s196")
    assert len(page.driver.find_elements("css selector", ".day-row svg.day")) == 200
    page.picture(f"14-schedules-200-{scheme}")
    assert page.accessibility() == []
    page.size(375, 800)
    page.sees(".day-row", "reports.nightly")
    assert page.is_too_wide() == []
    page.picture(f"15-schedules-narrow-{scheme}")
    page.open("#/schedules")
    page.sees("tbody tr", "reports.nightly")
    assert page.is_too_wide() == []
    page.picture(f"16-schedules-list-narrow-{scheme}")
    assert page.complaints() == []


def test_a_picture_is_reached_and_left_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys
    page.open("#/schedules")
    page.sees("a.button", "Picture of today")
    page.run("[...document.querySelectorAll('a.button')].find((e) => e.textContent === 'Picture of today').focus()")
    page.press(Keys.ENTER)
    page.sees(".day-row", "reports.nightly")
    page.run("document.querySelector('select[name=zone]').focus()")
    for _ in range(2):
        page.press(Keys.TAB)
    assert page.run("return document.activeElement.matches('.day-name a')")
    page.press(Keys.ENTER)
    page.sees("p a", "All schedules")
