"""The cases about leaders and candidates; cases.py has the others."""
import signal

import leasehold
from cases import LONG, NAMESPACE, fresh, in_background
from harness import wait_until


def leader_killed_is_followed(place):
    key = fresh()
    first = place.program("lead", key, LONG)
    token = int(first.wait_for("leading").split()[1])
    second = place.program("lead", key, LONG)
    wait_until(lambda: place.waiting(key) == 1)
    first.process.kill()
    assert int(second.wait_for("leading").split()[1]) > token
    second.process.terminate()
    assert second.end() == 0, second.lines[-5:]
    assert place.row(key, "state, last_outcome") == "free|ok"


def leader_stopped_is_followed(place):
    key = fresh()
    first = place.program("lead", key, 4)
    first.wait_for("working")
    second = place.program("lead", key, 4)
    wait_until(lambda: place.waiting(key) == 1)
    first.process.send_signal(signal.SIGSTOP)
    second.wait_for("working")
    worked = first.lines.count(first.find("working"))
    first.process.send_signal(signal.SIGCONT)
    first.wait_for("over")
    assert first.lines.count(first.find("working")) <= worked + 1  # a step that had begun
    for program in (first, second):
        program.process.terminate()


def candidate_says_alive_while_it_waits(place):
    key, proxy = fresh(), place.proxy()
    with place.client().lease(NAMESPACE, key, duration=LONG):
        place.program("lead", key, 3, proxy.target)
        wait_until(lambda: place.waiting(key) == 1)
        sent = proxy.messages_sent
        wait_until(lambda: proxy.messages_sent >= sent + 4)
        assert place.waiting(key) == 1


def stopped_candidate_is_passed_over(place):
    key, proxy = fresh(), place.proxy()
    proxy.is_http = True
    first = place.program("lead", key, LONG)
    first.wait_for("leading")
    stopped = place.program("lead", key, 3, proxy.target)
    wait_until(lambda: place.waiting(key) == 1)
    second = place.program("lead", key, LONG)
    wait_until(lambda: place.waiting(key) == 2)
    stopped.process.send_signal(signal.SIGSTOP)
    first.process.kill()
    second.wait_for("leading")
    assert stopped.find("leading") is None


def leader_goes_on_after_a_reset(place):
    key, proxy = fresh(), place.proxy()
    proxy.is_http = True
    leader = place.program("lead", key, 6, proxy.target)
    leader.wait_for("working")
    place.program("lead", key, 6)
    wait_until(lambda: place.waiting(key) == 1)
    token = place.row(key, "token")
    proxy.cut_all()
    asked, beats = proxy.requests, place.heartbeats(key)
    wait_until(lambda: place.heartbeats(key) > beats + 3 and proxy.requests > asked, 60)
    assert place.row(key, "token") == token and leader.find("over") is None and place.waiting(key) == 1


def reset_is_no_release(place):
    key, proxy = fresh(), place.proxy()
    leader = place.program("lead", key, 30, proxy.target)
    leader.wait_for("working")
    proxy.cut_all()
    assert leader.wait_for("over") == "over unreachable"


def leader_resigns(place):
    key = fresh()
    first, second = place.client().lead(NAMESPACE, key), place.client().lead(NAMESPACE, key)
    one = next(first)
    waiting = in_background(lambda: next(second))
    wait_until(lambda: place.waiting(key) == 1)
    again = in_background(lambda: next(first))  # the end of the loop's body: gives it up, and stands again
    two = waiting()
    assert two.token > one.token and two.is_held() and not one.is_held()
    wait_until(lambda: place.waiting(key) == 1)
    second.close()
    three = again()
    assert three.token > two.token
    first.close()
    wait_until(lambda: place.row(key, "state") == "free")


def stream_that_fails_costs_no_lease(place):
    key, client, failures = fresh(), place.client(), []
    terms = client.lead(NAMESPACE, key, duration=6)
    leadership = next(terms)
    transport, other = client._core.transport, client.lease(NAMESPACE, fresh(), duration=6).acquire()
    tie = transport.tie

    def fail(lease):
        if len(failures) < 2:
            failures.append(1)
            raise leasehold.Unavailable("/run/token is empty", "CREDENTIALS")
        return tie(lease)

    transport.tie = fail
    inner = getattr(leadership, "lease", leadership)
    inner._tie = None  # the stream goes on; the client does not know any more
    wait_until(lambda: inner._tie is not None or not inner._is_held, 60)
    assert len(failures) == 2 and leadership.is_held() and other.is_held()
    assert other.release()
    terms.close()
