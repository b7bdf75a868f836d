"""What the page counts and draws: one number for one thing, whole words, lines that have gaps, and no more of a graph than was asked for."""
import uuid

import pytest

TABLES = ("#/queues", "#/failures", "#/policies", "#/policies/payments.ledger", "#/daemons", "#/audit", "#/scope/stock/shelf-a", "#/scope/payments.ledger/month-end",
          "#/scope/gpus/rack-1")
# From now on the page gets the first answer again and again when it asks for the counts of namespaces.
STALE = """
    const done = arguments[arguments.length - 1], real = window.fetch;
    let first = null;
    window.fetch = async (path, options) => {
      if (!String(path).startsWith('api/v1/namespaces')) return real(path, options);
      first ??= await (await real(path, options)).text();
      return new Response(first, { headers: { 'Content-Type': 'application/json' } });
    };
    import('/store.js').then(({ store }) => store.loadSpaces()).then(done);"""

# All keys of a namespace are on their way between databases, as its daemon answers then.
MOVING = """
    const done = arguments[arguments.length - 1], real = window.fetch;
    const answer = (body, status) => new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });
    window.fetch = async (path, options) => {
      if (String(path).startsWith('api/v1/leases')) return answer({ error: { reason: 'DATABASE_UNAVAILABLE', message: 'keys of jobs are on their way' } }, 503);
      if (!String(path).startsWith('api/v1/namespaces')) return real(path, options);
      return answer({ namespaces: [{ namespace: { segments: ['jobs'] }, held: '0', waiting: '0', expired: '0', failing: '0', partial: true }], next_page_token: '' }, 200);
    };
    import('/store.js').then(({ store }) => store.load('jobs').catch(() => store.loadSpaces())).then(done);"""


def numbers(page):
    """Of what is held: the tile, the way to the view, the root of the tree, the line above the list, and the rows."""
    return page.run("""
        const digits = (css) => document.querySelector(css).textContent.match(/[0-9,]+/)[0];
        return [digits('.tile b'), digits('nav a .badge'), digits('.tree a span:last-child'), digits('.list .mute'), String(document.querySelectorAll('.lease').length)]""")


def test_the_counts_of_a_page_are_of_one_moment(own, own_page):
    page = own_page
    own.acquire("stock", "shelf-a", "picker-1")
    page.open("#/leases")
    page.sees(".lease", "picker-1")
    page.driver.execute_async_script(STALE)
    own.acquire("stock", "shelf-b", "picker-2")
    own.acquire("ci", "build", "runner")
    page.sees(".lease", "runner")
    page.sees(".tree a", "ci")
    assert len(set(numbers(page))) == 1, numbers(page)
    assert page.sees("h1").text.startswith(numbers(page)[0] + " leases held"), page.sees("h1").text
    page.run("location.hash = '#/queues'")
    page.sees("h1", "Nobody waits")
    own.wait_for("stock", "shelf-a", "counter-1")
    page.sees("h1", "1 request waits for 1 scope")
    assert page.sees("nav a[href='#/queues'] .badge").text.split() == ["1", "wait"]
    page.run("location.hash = '#/leases'")


def test_leases_on_their_way_do_not_look_like_none(own_page):
    page = own_page
    page.open("#/leases/jobs")
    page.sees("h1", "Nothing is held in jobs")
    page.driver.execute_async_script(MOVING)
    page.sees("h1", "What is held in jobs is not known")
    assert page.sees(".tree a", "jobs").text.split()[:2] == ["jobs", "0+"]


def test_a_graph_has_only_the_queue_that_was_asked_about(own, own_page):
    """Its waiter holds five other scopes, of which nobody wants anything."""
    page, session = own_page, str(uuid.uuid4())
    for i in range(5):
        own.acquire("stock", f"shelf-{i}", "picker", lease_key=session)
    own.acquire("stock", "lift", "cleaner")
    own.wait_for("stock", "lift", "picker", lease_key=session)
    for place in ("#/scope/stock/lift", "#/queues"):
        page.open(place)
        page.sees(".graph .scope", "lift")
        page.until(lambda: "cleaner holds lift" in page.run("return document.querySelector('.graph').getAttribute('aria-label')"), "the holder")
        said = page.run("return document.querySelector('.graph').getAttribute('aria-label')")
        assert sorted(said.split("; ")) == ["cleaner holds lift", "picker waits for lift"], said


def test_a_leader_is_alive_and_its_row_is_whole(own, own_page):
    """It has held for days, and no policy says that this is too long."""
    page = own_page
    own.acquire("app", "leader", "node-1")
    own.psql("update leasehold.scope set acquired_at = acquired_at - interval '12 d 13 h', token = 9023372036854775807 where key = 'leader'")
    page.size(1440, 900)
    page.open("#/leases")
    row = page.sees(".lease", "leader").text
    assert "alive" in row and "12 d 13 h" in row and "9023372036854775807" in row, row
    page.sees("h1", "every holder alive")
    cut = page.run("return [...document.querySelectorAll('.lease > *, .lease-head > *')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)")
    assert cut == []


@pytest.mark.parametrize("width", (1440, 1001, 800, 375))
def test_no_word_of_a_table_is_broken(page, width):
    page.size(width, 900)
    found = {}
    for view in TABLES:
        page.open(view)
        page.sees("main td")
        # A word of usual length has one box; longer ones may break where there is no room.
        found[view] = page.run("""
            const broken = [], walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
            for (let text; (text = walk.nextNode());) if (text.parentElement.closest('td'))
              for (const { 0: word, index } of text.data.matchAll(/[^\\s]{1,24}(?![^\\s])/g)) {
                if (index && /[^\\s]/.test(text.data[index - 1])) continue;
                const range = document.createRange();
                range.setStart(text, index); range.setEnd(text, index + word.length);
                if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word);
              }
            return broken""")
        assert page.is_too_wide() == [], view
    assert {view: words for view, words in found.items() if words} == {}


def test_a_line_has_gaps_where_nothing_was_measured(page):
    page.open("#/daemons")
    page.sees(".chart")
    lines = page.driver.execute_async_script("""
        const done = arguments[arguments.length - 1];
        import('/charts.js').then(({ chart }) => done([...chart('x', [[1, 2, null, null, 3, null, 4, 5, 6]], String, '', 90).querySelectorAll('polyline')].map((line) => line.getAttribute('points').split(' ').length)))""")
    assert lines == [2, 2, 3], lines
