"""Each of the console's parts, clicked in Chromium against a real daemon. A picture of each is kept."""
import harness
from browser import Page
from databases import write_settings
from harness import duration, lease_ref, pb
from site_of_tests import bearer, literal


def test_leases_are_live_with_tree_search_and_pause(own, own_page):
    page = own_page
    for i in range(6):
        own.acquire(f"payments.{('invoices', 'refunds')[i % 2]}", f"order-{i}", f"worker-{i}", labels={"team": "billing"})
    lease = own.acquire("ci", "build", "runner-1/pid 9")
    page.open("#/leases")
    page.sees(".tree a", "invoices")
    # Everything about a lease: scope, holder, principal, label, liveness in words, time left, token.
    row = page.sees(".lease", "order-0").text
    for words in ("payments.invoices", "worker-0", "token:worker", "team=billing", "alive", "exclusive", "of 1 h"):
        assert words in row, row
    assert own.psql("select token from leasehold.scope where key = 'order-0'") in row
    # What happens on the daemon comes by itself, both ways.
    own.release(lease)
    page.sees_no(".lease", "runner-1")
    own.acquire("ci", "deploy", "runner-2")
    page.sees(".lease", "runner-2")
    # Search, then the tree.
    page.type("input[type=search]", "WORKER-3")
    page.sees_no(".lease", "order-0")
    assert "order-3" in page.sees(".lease").text
    assert page.find(".list .mute", "1 lease")
    page.type("input[type=search]", "no such owner")
    page.sees(".none", "No lease fits")
    page.click(".tree a", "refunds")
    page.sees(".lease", "order-1")
    page.sees_no(".lease", "order-0")
    assert len(page.driver.find_elements("css selector", ".lease")) == 3
    # The pause holds the list still; afterwards it is up to date again.
    page.click("#pause button", "Pause")
    page.sees("#live", "Paused at")
    own.acquire("payments.refunds", "late", "worker-late")
    # The stream has told of it: the page knows, and does not show it.
    page.until(lambda: "1 change since" in page.text("#pause"), "the change that the pause holds back")
    assert page.find(".lease", "worker-late") is None
    page.click("#pause button", "Pause")
    page.sees(".lease", "worker-late")
    page.sees("#live", "Live")


def test_what_the_page_does_not_have_is_found_by_the_daemon(own, own_page):
    """The page keeps 20,000 leases; behind them are more."""
    page = own_page
    own.psql("insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, incarnation, check_at, duration, grace, owner,"
             " principal) select case when i > 20000 then 'z' else 'a' end, 'key-' || to_char(i, 'FM00000'), 'held', gen_random_uuid(), i, now(), now(), now() + interval '1 h',"
             " x.id, now() + interval '1 h', interval '1 h', interval '1 s', 'crowd', 'token:worker' from generate_series(1, 20010) i, leasehold.incarnation x")
    own.acquire("z", "last", "the one behind them")
    page.open("#/leases")
    page.sees(".list .mute", "among the first 20,000")
    page.sees(".tree a", "10,000+")
    page.sees(".tile", "+")
    page.type("input[type=search]", "ONE Behind")
    assert "last" in page.sees(".lease").text
    page.sees(".list .mute", "1 lease")
    page.type("input[type=search]", "key-")
    page.sees(".list .mute", "1,000 leases, so far")
    page.click(".list button", "Search further")
    page.sees(".list .mute", "2,000 leases, so far")
    page.type("input[type=search]", "key-20001")
    assert "key-20001" in page.sees(".lease").text
    page.sees(".list .mute", "1 lease")


def test_liveness_is_said_in_words_and_trouble_is_first(page):
    page.open("#/leases")
    page.sees("h1", "silent")
    page.sees(".lease.silent .liveness", "silent")
    page.sees(".lease.overdue .liveness", "held too long")
    page.sees(".lease.dead .liveness", "expired")
    assert "floor-3" in page.run("return [...document.querySelectorAll('.lease')].find((row) => row.getAttribute('aria-rowindex') === '2').innerText")
    page.picture("1-leases")
    page.click(".tile", "Silent")
    page.sees_no(".lease.alive")
    assert "production" in page.sees(".lease").text
    page.click(".tile", "Silent")
    page.sees(".lease.alive")


def test_a_link_opens_the_same_view(page):
    page.open("#/leases/payments.refunds?search=worker-1")
    page.sees(".lease", "worker-1")
    page.sees_no(".lease", "worker-2")
    assert page.run("return document.querySelector('input[type=search]').value") == "worker-1"
    page.open("#/scope/stock/shelf-a")
    page.sees("h1", "shelf-a")
    page.open("#/no-such-view")
    page.sees("h1", "reap fails")


def test_the_queue_of_a_scope_and_who_waits_for_whom(page):
    page.open("#/queues")
    page.sees("h1", "7 requests wait for 3 scopes")
    page.sees("tbody tr", "picker-1")
    page.sees(".note.bad", "in a circle")
    for owner, what in (("trainer-9", "shared: 5 units"), ("maintenance", "exclusive")):
        assert what in page.sees("tbody tr", owner).text
    # The leases come after the queue.
    assert "trainer-9" in page.sees("tbody tr", "the holders").text and "trainer-9" in page.sees("tbody tr", "maintenance").text
    page.picture("2-queues")
    page.click("td a", "shelf-a")
    page.sees("h1", "shelf-a")
    rows = page.until(lambda: [row.text for row in page.driver.find_elements("css selector", "section tbody tr") if "counter" in row.text or "picker" in row.text], "rows of waiters")
    assert ["picker-2" in rows[0], "counter-0" in rows[1], "counter-1" in rows[2], "counter-2" in rows[3]] == [True] * 4, rows
    assert "the holder" in rows[0] and "picker-2" in rows[1] and "counter-0" in rows[2], rows
    page.sees(".graph .here", "shelf-a")
    said = page.run("return document.querySelector('.graph').getAttribute('aria-label')")
    for words in ("counter-0 waits for shelf-a", "picker-1 holds shelf-a", "picker-1 waits for shelf-b", "picker-2 holds shelf-b"):
        assert words in said, said
    assert len(page.driver.find_elements("css selector", ".graph g.circle")) == 4


def test_a_queue_with_priorities_is_in_the_order_of_service(own, own_page):
    page = own_page
    own.policy("jobs", max_priority="9", ageing="1 day")
    held = own.acquire("jobs", "batch", "holder")
    for i, priority in enumerate((0, 5, 0, 9, 5)):
        own.wait_for("jobs", "batch", f"waiter-{i}", priority=priority)
    for view in ("#/queues", "#/scope/jobs/batch"):
        page.open(view)
        page.sees("th", "Priority")
        shown = page.until(lambda: [row.text.split("\n") for row in page.driver.find_elements("css selector", "tbody tr") if "waiter-" in row.text], "the waiters")
        text = [" ".join(row) for row in shown]
        assert [next(word for word in row.split() if word.startswith("waiter-")) for row in text] == [f"waiter-{i}" for i in (3, 1, 4, 0, 2)], text
        assert [row.count("waiter-") for row in text] == [1, 2, 2, 2, 2], "each is behind the one before it"
        assert "token:worker 9 exclusive" in text[0] and "token:worker 0 exclusive" in text[4], text
    page.picture("17-priority")
    own.release(held)
    page.sees("dd", "waiter-3")
    # A queue in which nobody has a priority has no such column.
    own.acquire("jobs", "plain", "holder")
    own.wait_for("jobs", "plain", "waiter-9")
    page.open("#/scope/jobs/plain")
    page.sees("tbody tr", "waiter-9")
    assert page.find("th", "Priority") is None


def test_a_holder_is_asked_to_hand_over_and_refuses(own, own_page, driver):
    page = own_page
    held = own.acquire("jobs", "batch", "worker-3/pid 8")
    page.open("#/scope/jobs/batch")
    page.click("button", "Ask to hand over")
    page.sees("dialog", "Its lease does not end by this")
    page.type("dialog textarea", "its host is drained")
    page.click("dialog button", "Ask")
    page.sees("dialog .note.good", "worker-3/pid 8 is asked")
    page.click("dialog button", "Close")
    for words in ("no answer yet", "token:ops", "its host is drained", "to answer by"):
        page.sees("dd", words)
    page.picture("18-asked")
    assert own.scope("jobs", "batch") == "held"
    assert own.psql("select action || ' ' || principal || ' ' || reason from leasehold.audit where action = 'ask_hand_over'") == "ask_hand_over token:ops its host is drained"
    own.client.lease.RefuseHandOver(pb.RefuseHandOverRequest(lease=lease_ref(held), reason="done in a minute"), metadata=bearer(own.tokens["worker"]), timeout=60)
    page.sees("dd .liveness.dead", "refused")
    page.sees("dd", "done in a minute")
    assert page.accessibility() == []
    # An answer that does not come is seen, too; each of several holders has its own.
    own.policy("gpus", hand_over_grace="0 s", capacity="4")
    own.share("gpus", "rack", "trainer-1")
    own.share("gpus", "rack", "trainer-2")
    page.open("#/scope/gpus/rack")
    page.sees("tbody tr", "trainer-1")
    page.click("button[aria-label*='trainer-2']", "Ask to hand over")
    page.type("dialog textarea", "maintenance")
    page.click("dialog button", "Ask")
    page.sees("dialog .note.good", "trainer-2 is asked")
    page.click("dialog button", "Close")
    page.sees("tbody tr", "not answered")
    assert "trainer-2" in page.sees("tbody tr", "not answered").text and "Asked" not in page.sees("tbody tr", "trainer-1").text
    page.picture("19-asked-shared")
    # One who may only read sees the request, and asks nobody.
    reader = Page(driver, own.base)
    reader.sign_in(own.tokens["reader"])
    reader.open("#/scope/jobs/batch")
    reader.sees("dd", "done in a minute")
    assert reader.find("button", "Ask to hand over") is None


def test_a_phone_shows_the_first_lease_at_once(page):
    page.size(375, 800)
    page.open()
    page.sees(".lease", "floor-3")
    assert page.run("return document.querySelector('.lease').getBoundingClientRect().bottom <= innerHeight")
    assert page.is_too_wide() == []


def test_the_history_has_an_axis_and_what_is_shown_can_be_copied(page):
    page.open("#/scope/payments.ledger/month-end")
    page.sees(".axis", "now")
    assert len(page.run("return [...document.querySelectorAll('.axis span')].filter((e) => / ago$/.test(e.textContent))")) == 4
    for what in ("key", "owner", "token"):
        page.driver.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.click("button", f"Copy {what}")
        page.until(lambda: page.run("return window.copied"), "the copy")
        words = page.run("const text = window.copied; window.copied = ''; return text")
        assert words == "month-end" if what == "key" else words == "closer-4/pid 12" if what == "owner" else words.isdigit(), (what, words)


def test_the_audit_can_be_searched(page):
    page.open("#/audit")
    page.sees("tbody tr", "policy set")
    page.type("main input[type=search]", "burned down")
    page.sees_no("tbody tr", "policy set")
    assert "force release" in page.sees("tbody tr", "month-end").text
    page.type("main input[type=search]", "no such words")
    page.sees(".none", "No row fits.")
    page.run("location.reload()")
    page.sees("tbody tr", "policy set")


def test_two_threads_of_one_process_are_no_circle(own, own_page):
    """One holds and the other waits, each by its own lease key; and two processes whose names are the same."""
    own.acquire("stock", "shelf-a", "picker")
    own.acquire("stock", "shelf-b", "picker")
    own.wait_for("stock", "shelf-a", "picker")
    own.wait_for("stock", "shelf-b", "picker")
    for place, lines in (("#/queues", 4), ("#/scope/stock/shelf-a", 2)):
        own_page.open(place)
        own_page.sees(".graph .scope", "shelf-a")
        own_page.until(lambda: len(own_page.driver.find_elements("css selector", ".graph svg > path")) == lines, "its holder and its waiter")
        own_page.sees_no(".graph g.circle")
        own_page.sees_no(".note.bad")


def test_a_scope_is_explained_first_and_its_history_follows(page):
    page.open("#/scope/payments.ledger/month-end")
    advice = page.sees(".advice").text
    assert advice.startswith("Wait: closer-4/pid 12 is alive"), advice
    page.sees("dd", "closer-4/pid 12")
    rows = page.until(lambda: [row.text for row in page.driver.find_elements("css selector", "tbody tr")], "the history")
    assert len(rows) == 4
    assert "closer-3" in rows[0] and "forced" in rows[0] and "postgres" in rows[0], rows
    assert "failed" in rows[2] and "connection refused by the bank" in rows[2], rows
    assert '{"rows": 118}' in rows[3] and "released" in rows[3], rows
    page.picture("3-scope")
    # One without a history says so, and one that nobody ever held is no error.
    page.open("#/scope/etl.nightly/warehouse-load")
    page.sees("section p", "keeps no history")
    page.sees(".advice", "longer than")
    page.open("#/scope/etl/never%20held")
    page.sees(".advice")
    page.sees_no("button", "Force release")


def test_a_scope_that_several_share(page, filled):
    # In the list a row for each holder.
    page.open("#/leases/gpus")
    page.until(lambda: len(page.driver.find_elements("css selector", ".lease")) == 3, "a row for each holder")
    assert "shared: 3 units, slots 1–3" in page.sees(".lease", "trainer-1").text
    assert "shared: 2 units, slots 6–7" in page.sees(".lease", "trainer-3").text
    page.open("#/scope/gpus/rack-1")
    assert page.sees(".advice").text.startswith("Join the queue: 7 of 10 units taken by 3 holders")
    page.sees("h2", "Shared by 3 holders")
    page.sees(".units", "7 of 10 units taken, 3 free")

    def row(table, owner):
        return page.sees(f"{table} tbody tr", owner).find_elements("css selector", "td")

    cells = [cell.text for cell in row("main section:not([aria-label]) table", "trainer-2")]
    assert cells[1:4] == ["alive", "2", "4–5"] and "job=run-1" in cells[0], cells
    for place, words in ((0, "trainer-2/pid 501"), (1, cells[7].split()[0])):
        copied = page.run("navigator.clipboard.writeText = async (text) => { window.copied = text; };"
                          "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.startsWith('trainer-2')).querySelectorAll('.copy')[%d].click();"
                          "return window.copied" % place)
        assert copied == words, (place, copied)
    waiting = page.sees("tbody tr", "trainer-9").text
    assert "shared: 5 units" in waiting and "the holders" in waiting, waiting
    assert "exclusive" in page.sees("tbody tr", "maintenance").text
    ended = page.sees("tbody tr", "trainer-0").text
    assert "shared: 4 units, slots 1–4" in ended and "released" in ended, ended
    said = page.run("return document.querySelector('.graph').getAttribute('aria-label')")
    for words in ("trainer-1/pid 500 holds rack-1", "trainer-3/pid 502 holds rack-1", "maintenance waits for rack-1"):
        assert words in said, said
    page.picture("9-shared")


def test_one_holder_of_several_is_released_by_force_then_all(own, own_page):
    page = own_page
    own.policy("gpus", capacity="10", history="true")
    leases = [own.share("gpus", "rack-1", f"trainer-{i}", units=2) for i in range(4)]
    page.open("#/leases/gpus")
    page.sees(".lease", "trainer-3")
    page.open("#/scope/gpus/rack-1")

    def force(button, which, reason):
        page.until(lambda: (found := page.find(f"button[aria-label*='{which}']", button)) and (found.click(), found)[1], f"{button} of {which}")
        page.type("dialog textarea", reason)
        page.type("dialog input", "rack-1")
        page.click("dialog button", "Force release")
        # A look of the daemon's own may have the row at that moment: then it says that one must try again.
        page.until(lambda: page.find("dialog .note.good") or page.find("dialog", "is busy") and page.click("dialog button", "Force release"), "an answer")

    def held():
        return own.psql("select string_agg(owner, ' ' order by token) from leasehold.lease where namespace = 'gpus'")

    force("Force release", f"trainer-1, token {leases[1].token}", "stuck")
    page.sees("dialog .note.good", f"token {leases[1].token} has ended")
    assert str(leases[1].token) in page.sees("dialog tbody tr", "stuck").text
    assert held() == "trainer-0 trainer-2 trainer-3"
    page.click("dialog button", "Close")
    page.sees("h2", "Shared by 3 holders")
    page.sees(".units", "6 of 10 units taken, 4 free")
    assert "forced" in page.sees("tbody tr", "shared: 2 units, slots 3–4").text
    # An exclusive one that is shared from now on is still one row.
    writer = own.acquire("gpus", "rack-2", "writer")
    own.client.lease.Downgrade(pb.DowngradeRequest(lease=lease_ref(writer), units=9), metadata=bearer(own.tokens["worker"]), timeout=60)
    force("Force release all", "all 3 holders", "the rack is switched off")
    page.sees("dialog .note.good", "3 leases have ended")
    page.sees("dialog tbody tr", "the rack is switched off")
    assert held() == "writer"
    page.click("dialog button", "Close")
    page.sees("h2", "The last hold")
    page.open("#/leases/gpus")
    page.until(lambda: [row.text.split()[0] for row in page.driver.find_elements("css selector", ".lease")] == ["rack-2"], "the one lease that is left")
    page.sees(".lease", "shared: 9 units, slots 1–9")
    page.open("#/scope/gpus/rack-2")
    assert "exclusive" in page.sees("tbody tr", "went on as shared").text


def test_the_list_follows_shared_leases_by_their_events(own, own_page):
    """The page is opened before; so many at once that they come in one message."""
    page = own_page
    page.open("#/leases/readers")
    page.sees("#live", "Live")
    page.sees(".none", "Nothing is held here")
    leases = [own.share("readers", "file", f"reader-{i}") for i in range(5)]
    page.until(lambda: len(page.driver.find_elements("css selector", ".lease")) == 5, "five rows")
    for lease in leases[:4]:
        own.release(lease)
    page.until(lambda: len(page.driver.find_elements("css selector", ".lease")) == 1, "one row")
    page.sees(".lease", "reader-4")
    page.sees(".lease", "shared: 1 unit")


def test_a_scope_that_rests_says_until_when_and_the_rest_is_ended(own, own_page):
    page = own_page
    lease = own.acquire("cron", "nightly", "host-a", at_least=duration(3600))
    page.open("#/scope/cron/nightly")
    page.sees(".note", "even if it is released")
    own.release(lease)
    page.sees(".advice", "rests for another")
    page.sees(".note", "before that it is granted to nobody.")
    page.click("button", "End the rest")
    page.type("dialog textarea", "it must run again now")
    page.type("dialog input", "nightly")
    page.click("dialog button", "End the rest")
    page.sees("dialog .note.good", "The rest has ended")
    page.click("dialog button", "Close")
    page.sees(".advice", "Free")
    page.sees_no("button", "End the rest")
    assert own.acquire("cron", "nightly", "host-b").token > lease.token


def test_a_failing_reap_is_shown_and_retried(own, own_page):
    page = own_page
    hook = own.failing_hook("printers", "the printer still holds page 12")
    for floor in (3, 4, 5):
        own.acquire("printers", f"floor-{floor}", f"spooler-{floor + 6}", seconds=1)
    page.open("#/failures")
    page.sees("h1", "3 leases cannot be reaped")
    page.sees("pre", "the printer still holds page 12")
    row = page.sees("tbody tr", "floor-3").text
    assert "spooler-9" in row and "printers" in row and "time" in row and ("in " in row or "now" in row), row
    page.picture("4-failing-reaps")
    # In one transaction: the daemon's own next try would reap all three.
    own.psql("begin; update leasehold.scope set next_try_at = now() + interval '1 h', check_at = now() + interval '1 h' where namespace = 'printers'; "
             f"create or replace function {hook}(p_event leasehold.lease_event) returns void language sql as 'select'; commit")
    page.click("button[aria-label^='Retry floor-4 now']")
    page.sees("h1", "2 leases cannot be reaped")
    page.sees_no("tbody tr", "floor-4")
    assert own.psql("select key from leasehold.audit where action = 'reap'") == "floor-4"
    page.click("button", "Retry all in printers")
    page.sees("h1", "No reap fails")
    assert own.scope("printers", "floor-3") in ("free", "")


def test_policies_show_where_each_value_comes_from_and_freeze(own, own_page):
    page = own_page
    own.policy("payments", grace="7 s")
    own.policy("payments.invoices", max_hold="2 h")
    own.policy("", max_duration="3 h")
    own.policy("payments.gpus", capacity="8", at_least="50 s")
    page.open("#/policies")
    page.sees("tbody tr", "grace = 7 s")
    assert "capacity = 8, at_least = 50 s" in page.sees("tbody tr", "payments.gpus").text
    page.click("td a", "payments.invoices")

    def setting(name):
        return page.sees("tbody tr", name).text

    page.sees("h1", "payments.invoices")
    assert "2 h" in setting("max_hold") and "here" in setting("max_hold")
    assert "7 s" in setting("grace") and "payments" in setting("grace")
    assert "3 h" in setting("max_duration") and "root" in setting("max_duration")
    assert "no limit" in setting("capacity") and "none" in setting("at_least")
    assert "no limit" in setting("max_leases") and "built in" in setting("max_leases")
    page.click("button", "Freeze")
    page.sees("dialog", "No new lease is granted")
    page.click("dialog button", "Freeze")
    page.sees(".note.warn", "Frozen: nobody gets a new lease")
    page.sees_no("dialog")
    assert own.psql("select frozen from leasehold.policy where namespace = 'payments.invoices'") == "t"
    page.picture("5-policies")
    page.click("button", "Thaw")
    page.click("dialog button", "Thaw")
    page.sees(".note", "Not frozen")
    assert own.psql("select frozen from leasehold.policy where namespace = 'payments.invoices'") == "f"


def test_force_release_wants_a_reason_and_the_key_and_shows_its_audit(own, own_page):
    page = own_page
    own.acquire("stock", "shelf-a", "picker-1")
    page.open("#/scope/stock/shelf-a")
    page.click("button", "Force release")
    page.type("dialog textarea", "the picker's host is gone")
    page.type("dialog input", "shelf-b")
    page.click("dialog button", "Force release")
    page.sees("dialog .note.bad", "not the key")
    assert own.scope("stock", "shelf-a") == "held"
    page.type("dialog input", "shelf-a")
    page.picture("6-force-release")
    page.click("dialog button", "Force release")
    row = page.sees("dialog tbody tr").text
    for words in ("token:ops", "force release", "shelf-a", "the picker's host is gone", "done"):
        assert words in row, row
    assert own.scope("stock", "shelf-a") == "free"
    page.click("dialog button", "Close")
    page.sees_no("dialog")
    page.sees("h2", "The last hold")
    page.sees("dd", "forced")
    # It is in the audit view too, newest first.
    own.psql("select leasehold.force_release('stock', 'nothing', 'later')", check=False)
    page.open("#/audit")
    page.sees("tbody tr", "the picker's host is gone")
    page.picture("8-audit")


def test_the_force_release_ends_only_the_lease_that_was_shown(own, own_page):
    page = own_page
    lease = own.acquire("stock", "shelf-a", "picker-1")
    page.open("#/scope/stock/shelf-a")
    page.click("button", "Force release")
    page.type("dialog textarea", "stuck")
    page.type("dialog input", "shelf-a")
    own.release(lease)
    own.acquire("stock", "shelf-a", "picker-2")
    page.click("dialog button", "Force release")
    page.sees("dialog .note.bad")
    assert own.scope("stock", "shelf-a", "state, owner") == "held|picker-2"
    page.click("dialog button", "Cancel")
    page.sees_no("dialog")
    page.complaints()  # The refusal's status 404.


def test_daemons_and_their_database(page, filled):
    page.open("#/daemons")
    page.sees("h1", "1 daemon live")
    page.sees("tbody tr", str(filled.daemon.process.pid))
    facts = page.text("dl.facts")
    version = filled.psql("show server_version").split()[0]
    for words in (version, "primary", "Timeline", "Oldest transaction", "Reaper behind by"):
        assert words in facts, facts
    # The samples end every ten seconds.
    page.until(lambda: len(page.driver.find_elements("css selector", ".chart .edge")) >= 4 and "Nothing measured" not in page.text(".chart figcaption"), "a sample in the charts")
    for title in ("Grants", "Renewals", "Waiters", "Latency"):
        page.sees(".chart", title)
    page.picture("7-daemons")


def test_each_of_several_databases_is_listed(driver, cluster, tmp_path):
    urls = {name: cluster.url(cluster.create_database(migrated=True)) for name in ("home", "eu")}
    path = write_settings(tmp_path / "leasehold.ini", [("home", urls["home"], "", "yes"), ("eu", urls["eu"], "orders, shop.eu", "no")])
    daemon = harness.Daemon("--config", path)
    page = Page(driver, f"http://127.0.0.1:{daemon.admin_port}")
    page.open("#/daemons")
    page.sees("h2", "Databases")
    rows = page.until(lambda: [each.text for each in page.driver.find_elements("css selector", "tbody tr") if "serving" in each.text], "its databases")
    assert [row.split()[0] for row in rows] == ["home", "eu"], rows
    assert rows[0].endswith("all others") and rows[1].endswith("orders, shop.eu"), rows
    assert page.complaints() == []
    assert daemon.stop() == 0, daemon.log()
    daemon.destroy()


def test_audit_is_newest_first(own, own_page):
    for i in range(3):
        own.psql(f"select leasehold.set_policy({literal('audited.n%d' % i)}, grace => '90 s', history => true)")
    own_page.open("#/audit")
    assert "grace = 1 min 30 secs, history = true" in own_page.sees("tbody tr", "audited.n2").text
    rows = [row.text for row in own_page.driver.find_elements("css selector", "tbody tr") if "audited" in row.text]
    assert [row.split("audited.n")[1][0] for row in rows] == ["2", "1", "0"], rows
