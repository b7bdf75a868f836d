"""The faults that tests/simulation/mutants puts back. `seeds`: of how many, from the first on, one has to find it; several times what it took. `program`:
what has to find it, where that is not the simulation; a test without seeds is run as often as once. On 2026-11-30, at 3bcddbbb, each was found."""
import collections

import playing

Fault = collections.namedtuple('Fault', 'name what file edits seeds is_quick program')


# The core alone: what the library makes good again cannot be seen from its side.
CORE = 'tests/unit/test_lease_random'
# Tests of their own, for what no history of either meets: a row that only a batch committed late has written, and a stop in the milliseconds in which a lost grant
# of several leaves and its caller comes back. The fake database finds waiters again by itself after an outage.
AHEAD = 'tests/unit/test_lease_ahead'
TOGETHER = 'tests/unit/test_lease_together'
OUTAGE = 'tests/unit/test_lease_outage'


def fault(name, what, file, *edits, seeds=20000, is_quick=False, program=playing.PROGRAM):
    return Fault(name, what, file, edits, seeds, is_quick, program)


FAULTS = (
    fault('release_in_doubt_once', 'the release of an acquire that was given up is not repeated: a stalled network delivers the acquire behind it',
          'src/client/release/releases.c',
          ('if (lease->doubt_us == 0 || releases->is_closing', 'if (true || releases->is_closing'), seeds=40000),
    fault('others_of_several_kept', 'LEASE_ENDED of one scope of several: the leases of the others are left to nobody',
          'src/client/acquire/acquire_op.c',
          ('        if (op->count > 1) /* the others may be held yet, by nobody who knows */\n            give_back(op);\n', ''), seeds=3000),
    fault('cancel_crosses_grant', 'a cancelled acquire is not released where its answer was on its way',
          'src/client/acquire/acquire_op.c',
          ('(request->is_in_doubt || request->is_cut_off)', 'request->is_in_doubt'), seeds=3000),
    fault('lost_answer_forgotten', 'an acquire that fails for good is not released where an answer was lost',
          'src/client/attempt.c',
          ('        request->is_in_doubt = true;\n', '        request->is_in_doubt = false;\n'), seeds=2000),
    fault('own_key_released', 'what a key of the caller\'s own may have been granted is released, and meets its next acquire',
          'src/client/acquire/acquire_op.c',
          ('    if (op->is_own_key)\n        return;\n', ''), seeds=500),
    fault('retry_is_lost', 'a release that was told RETRY, and was done, is told to be lost',
          'src/client/release/release.c',
          ('    op->was_sent |= status == LH_UNAVAILABLE;', '    op->was_sent |= status == LH_CLOSED;'), seeds=10000),
    fault('doubt_behind_close', 'a release in doubt outlives its client',
          'src/client/release/releases.c',
          ('    releases->is_closing = true;\n', ''), seeds=500),
    fault('over_when_it_comes', 'a lease that was over before its process heard of it is given to the caller',
          'src/client/acquire/acquire_op.c',
          ('} else if (is_over(op, granted)) {', '} else if (is_over(op, granted) && op->count > LH_ACQUIRE_ALL_MAX) {'), seeds=200, is_quick=True),
    fault('renewal_counts_from_answer', 'a renewal on the stream counts from its answer',
          'src/client/renewal/keep_alive.c',
          ('&owed->batch, owed->sent_us, response)', '&owed->batch, lh_clock_us(), response)'), seeds=50, is_quick=True),
    fault('follower_forgotten', 'an acquire behind a release of its scope is not begun at the end of that',
          'src/client/release/releases.c',
          ('    lh_requests_resume(&lease->followers);\n', ''), seeds=50, is_quick=True),
    fault('unheard_takes_renewed', 'the server takes back a lease whose caller has asked again and has it',
          'src/service/methods/acquire_call.c',
          ('back->items[i].item.is_unheard = true;', 'back->items[i].item.is_unheard = false;'), seeds=10000),
    fault('later_caller_gives_back', 'of two calls with one lease key the later gives back what the earlier was granted',
          'src/lease/acquire_batch.c',
          ('        lh_waiter_set_grant(waiter, LH_GRANT_TAKEN);\n', ''), seeds=3000, program=CORE),
    fault('grant_for_nobody', 'a grant whose caller went in the same instant is kept',
          'src/lease/batch_scheduler.c',
          ('if (lane->entries[i].is_grant && !lane->entries[i].is_taken)', 'if (lane->entries[i].is_grant && lane->entries[i].is_taken && !lane->n)'), seeds=100, program=CORE),
    fault('older_statement_answers', 'a request is answered by a statement that was sent before it came',
          'src/lease/acquire_batch.c',
          ('return request->own.arrived_us <= entry->sent_us && (', 'return ('), seeds=2000),
    fault('lost_grant_forgotten', 'an acquire whose batch was lost with its connection is not taken for granted',
          'src/lease/acquire_batch.c',
          ('        if (lane->is_sent)\n            lh_waiter_doubt_grant(waiter);\n', ''), seeds=5000),
    fault('wake_in_flight_lost', 'a wake-up that comes while a batch is out is dropped',
          'src/lease/queue/scope.c',
          ('    if (scope->in_flight > 0 || (has_others && lh_list_is_empty(&scope->queue)))\n        scope->wake_when_answered = true;\n',
           '    if (scope->in_flight > 0 || (has_others && lh_list_is_empty(&scope->queue)))\n        return;\n'), seeds=500),
    fault('wake_lost_with_release', 'the wake-up that a lost answer to a release had is dropped',
          'src/lease/holder_op.c',
          ('    if (!lh_list_is_empty(&entry->own.scope->queue))\n        entry->own.scope->wake_when_answered = true;\n', ''), seeds=20000),
    fault('not_asked_after_outage', 'waiters are not asked for again when the coordinator has registered again',
          'src/lease/registration.c',
          ('        lh_scopes_ask_all(c);\n', ''), seeds=1, program=OUTAGE),
    fault('unknown_place_blocks', 'a place of ours that nobody knows blocks its queue',
          'src/lease/acquire_batch.c',
          ('    if (is_stuck)\n        look_ahead(entry);\n', '    (void)is_stuck;\n    (void)look_ahead;\n'), seeds=1, program=AHEAD),
    fault('newcomer_puts_off', 'an answer to a newcomer puts off what the first waiter sleeps for',
          'src/lease/queue/holder_liveness.c',
          ('if (decides || at_us < *look_us)', 'if (decides || at_us != *look_us)'), seeds=30000, program=CORE),
    fault('one_of_several_for_all', 'a lost grant of one scope answers who comes back for several',
          'src/lease/dequeue.c',
          ('request->own.is_fresh || (is_granted && request->also_count > 0)', 'request->own.is_fresh'), seeds=1, program=TOGETHER),
    fault('own_release_is_lost', 'a release that was sent again after a lost answer says that the lease was lost',
          'src/lease/holder_op.c',
          ('    entry->own.is_unknown |= lane->is_sent;\n', ''), seeds=200),
)
