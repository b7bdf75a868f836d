#!/usr/bin/python3
"""The checker's own test: good histories pass, and each kind of broken one is found for what it is."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_history  # noqa: E402
import request_histories  # noqa: E402


def history(text):
    """Lines of `at kind scope lease token until actor units slots priority` become a history; missing fields at the end are `-`."""
    lines = []
    for number, line in enumerate(text.strip().splitlines(), 1):
        fields = line.split()
        lines.append('\t'.join([str(number)] + fields + ['-'] * (10 - len(fields))))
    return lines


GOOD = {
    'a hold after another': '''
        1 grant k A 10 31
        2 renew k A 10 32
        3 end k A
        3 grant k B 11 33
        4 end k B''',
    'a hold after a rest': '''
        1 grant k A 10 31
        1 rest k A - 5
        2 end k A
        5 grant k B 11 31''',
    'a takeover after the expiry': '''
        1 grant k A 10 31
        31.001 grant k B 11 60''',
    'a lease that lives as long again in a new life of the database': '''
        1 grant k A 10 31
        21 renew k A 10 51
        60 life
        89 renew k A 10 119
        90 life
        120.1 grant k C 11 130
        120.2 end k C
        89 grant k B 12 119
        119.5 renew k B 12 150
        151 crash
        151.1 renew k B 12 181
        151.2 life''',
    'a lost lease that no new life makes longer': '''
        1 grant k A 10 31
        32 lost k A
        33 crash
        34 life
        34.1 grant k B 11 64''',
    'a reap after the expiry': '''
        1 grant k A 10 31
        31.5 reap k - 10
        32 grant k B 11 60''',
    'waiters in their order': '''
        1 grant k A 10 31
        2 queue k B - 60
        3 queue k C - 60
        4 end k A
        4 grant k B 11 60
        5 end k B
        5 grant k C 12 60''',
    'a waiter that left is not overtaken': '''
        1 grant k A 10 31
        2 queue k B - 60
        3 leave k B
        4 end k A
        4 grant k C 11 60''',
    'a waiter whose time has passed is not overtaken': '''
        1 grant k A 10 31
        2 queue k B - 5
        6 end k A
        6 grant k C 11 60''',
    'a waiter of a dead coordinator is not overtaken': '''
        1 alive - - - - c1
        1 grant k A 10 31
        2 queue k B - - c1
        4.6 end k A
        4.6 grant k C 11 60''',
    'a guard beside renewals': '''
        1 grant k A 10 31
        2 guard k A 10 - w
        3 renew k A 10 33
        4 unguard k A
        5 end k A''',
    'two scopes do not mind each other': '''
        1 grant k A 10 31
        2 grant l B 9 31
        3 end k A
        4 end l B''',
    'a lease granted while its waiter was leaving': '''
        1 queue k A - 60
        2 grant k A 10 31
        3 leave k A
        4 grant k B 11 31''',
    'a wait behind the place of a dead waiter': '''
        1 grant k A 10 31
        2 queue k B - 18
        3 queue k C - 60
        4 end k A
        19 grant k C 11 60''',
    'a place that a dead client left behind': '''
        1 grant k A 10 31
        2 queue k B - 60
        3 gone k B
        4 end k A
        5 stop''',
    'readers together, then a writer': '''
        1 grant k A 10 31 - 1
        2 grant k B 11 31 - 1
        3 queue k C - 60
        4 end k A
        5 end k B
        5 grant k C 12 60''',
    'more readers than a capacity would let in, where there is none': '''
        1 grant k A 10 31 - 1000
        2 grant k B 11 31 - 1000''',
    'a semaphore of three': '''
        0 capacity k - 3
        1 grant k A 10 31 - 1 1
        2 grant k B 11 31 - 2 2,3
        3 end k A
        4 grant k C 12 31 - 1 1
        5 end k B
        6 grant k D 13 31 - 1 2''',
    'a small request that waits behind a large one': '''
        0 capacity k - 3
        1 grant k A 10 31 - 2 1,2
        2 queue k B - 60 - 2
        3 queue k C - 60 - 1
        4 end k A
        4 grant k B 11 60 - 2 1,2
        4 grant k C 12 60 - 1 3''',
    'the lease of a shared holder expires, and its units are taken': '''
        0 capacity k - 2
        1 grant k A 10 31 - 1 1
        1 grant k B 11 60 - 1 2
        31.5 grant k C 12 60 - 1 1''',
    'an expired shared holder that nobody needed the room of gives it back': '''
        0 capacity k - 3
        1 grant k A 10 31 - 1 1
        32 grant k B 11 60 - 1 2
        33 end k A''',
    'a renewal of a shared holder beside others': '''
        1 grant k A 10 31 - 1
        1 grant k B 11 31 - 1
        2 renew k A 10 60
        32 grant k C 12 60 - 1
        32.5 reap k - 11
        33 renew k A 10 70''',
    'an exclusive lease that becomes shared lets others in': '''
        0 capacity k - 3
        1 grant k A 10 31
        2 queue k B - 60 - 1
        3 down k A 11 33 - 2 1,2
        3 grant k B 12 60 - 1 3
        4 renew k A 11 34
        5 end k A''',
    'a shared lease gives units back, the highest slots': '''
        0 capacity k - 3
        1 grant k A 10 31 - 3 1,2,3
        2 down k A 10 31 - 1 1
        3 grant k B 11 31 - 2 2,3''',
    'shared holders come and go beside a guard of one': '''
        1 grant k A 10 31 - 1
        1 grant k B 11 31 - 1
        2 guard k A 10 - w
        3 grant k C 12 31 - 1
        4 end k B
        5 unguard k A
        6 end k A''',
    'a rest goes on after the lease became shared': '''
        1 grant k A 10 31
        1 rest k A - 5
        2 down k A 11 32 - 1
        5 grant k B 12 36 - 1''',
    'two scopes at once': '''
        1 all k A
        1 all l A
        1 grant k A 10 31
        1 grant l A 11 31 - 1
        2 end l A
        3 end k A''',
    'a wait for two scopes, of which one is free for long': '''
        1 grant k A 10 60
        2 all k B
        2 all l B
        2 queue k B 5 60
        2 queue l B 5 60
        3 queue l C 6 60
        30 end k A
        30 grant l B 11 60
        30 rest l B - 32
        30 grant k B 12 60
        31 end l B
        32 grant l C 13 60''',
    'a wait for two scopes that ends': '''
        1 grant k A 10 60
        2 all k B
        2 all l B
        2 queue k B 5 60
        2 queue l B 5 60
        3 leave l B
        3 grant l C 11 60
        4 leave k B''',
    'everybody served at the end': '''
        1 grant k A 10 31
        2 queue k B - 60
        3 end k A
        3 grant k B 11 60
        4 end k B
        5 stop - - - - -''',
    **request_histories.GOOD,
}

BROKEN = {
    **request_histories.BROKEN,
    'a second holder': ('double holder', '''
        1 grant k A 10 31
        30.9 grant k B 11 60'''),
    'a second holder after a renewal': ('double holder', '''
        1 grant k A 10 31
        20 renew k A 10 50
        31.5 grant k B 11 60'''),
    'a loss that is told before the expiry': ('lost', '''
        1 grant k A 10 31
        30.9 lost k A'''),
    'a renewal after the expiry in a new life of the database': ('renewal', '''
        1 grant k A 10 31
        2 crash
        3 life
        33.1 renew k A 10 63'''),
    'a second holder while nobody has written down a new life': ('double holder', '''
        1 grant k A 10 31
        2 crash
        30 grant k B 11 60'''),
    'a second holder in a new life of the database': ('double holder', '''
        1 grant k A 10 31
        20 life
        49 grant k B 11 60'''),
    'a second holder after a grant while a new life was written down': ('double holder', '''
        20 life
        21 grant k A 10 51
        50.9 grant k B 11 80'''),
    'a grant in a rest': ('rest', '''
        1 grant k A 10 31
        1 rest k A - 5
        2 end k A
        4.9 grant k B 11 31'''),
    'a token that goes back': ('token', '''
        1 grant k A 10 31
        2 end k A
        2 grant k B 9 60'''),
    'a token used twice': ('token', '''
        1 grant k A 10 31
        2 end k A
        2 grant k B 10 60'''),
    'a renewal with another token': ('token', '''
        1 grant k A 10 31
        2 renew k A 11 32'''),
    'a newcomer that overtakes a waiter': ('overtaking', '''
        1 grant k A 10 31
        2 queue k B - 60
        3 end k A
        3 grant k C 11 60'''),
    'a later waiter that overtakes an earlier one': ('overtaking', '''
        1 grant k A 10 31
        2 queue k B - 60
        3 queue k C - 60
        4 end k A
        4 grant k C 11 60'''),
    'an overtaken waiter of a live coordinator': ('overtaking', '''
        1 grant k A 10 31
        2 queue k B - - c1
        5 alive - - - - c1
        8.4 end k A
        8.4 grant k C 11 60'''),
    'a takeover that overtakes a waiter': ('overtaking', '''
        1 grant k A 10 31
        2 queue k B - 60
        32 grant k C 11 60'''),
    'a wake-up that was lost': ('stall', '''
        1 grant k A 10 31
        2 queue k B - 60
        3 end k A
        20 grant k B 11 60'''),
    'a waiter nobody ever served': ('stall', '''
        1 grant k A 10 31
        2 queue k B - 60
        3 end k A
        9 stop'''),
    'a dead client that is overtaken in its time': ('overtaking', '''
        1 grant k A 10 31
        2 queue k B - 60
        3 gone k B
        4 end k A
        4 grant k C 11 60'''),
    'a renewal after the expiry': ('renewal', '''
        1 grant k A 10 31
        32 renew k A 10 60'''),
    'a renewal by a stranger': ('renewal', '''
        1 grant k A 10 31
        2 renew k B 10 60'''),
    'a release by a stranger': ('release', '''
        1 grant k A 10 31
        2 end k B'''),
    'a reap before the expiry': ('reap', '''
        1 grant k A 10 31
        30 reap k - 10'''),
    'a reap of a hold that was over': ('reap', '''
        1 grant k A 10 31
        2 end k A
        33 reap k - 10'''),
    'a stale guard': ('guard', '''
        1 grant k A 10 31
        2 end k A
        2 grant k B 11 31
        3 guard k A 10 - w'''),
    'a lease that ended under a guard': ('guard', '''
        1 grant k A 10 31
        2 guard k A 10 - w
        3 end k A
        4 unguard k A'''),
    'a takeover under a guard': ('guard', '''
        1 grant k A 10 31
        2 guard k A 10 - w
        32 grant k B 11 60
        33 unguard k A'''),
    'a lease key granted twice': ('granted twice', '''
        1 grant k A 10 31
        2 end k A
        3 grant k A 11 31'''),
    'a writer beside a reader': ('double holder', '''
        1 grant k A 10 31 - 1
        2 grant k B 11 31'''),
    'a reader beside a writer': ('double holder', '''
        1 grant k A 10 31
        2 grant k B 11 31 - 1'''),
    'a writer beside a reader that renewed': ('double holder', '''
        1 grant k A 10 31 - 1
        20 renew k A 10 60
        32 grant k B 11 60'''),
    'more units than the capacity': ('capacity', '''
        0 capacity k - 3
        1 grant k A 10 31 - 2 1,2
        2 grant k B 11 31 - 2 3,4'''),
    'more units than the capacity in one request': ('capacity', '''
        0 capacity k - 3
        1 grant k A 10 31 - 4 1,2,3,4'''),
    'a slot given twice': ('slots', '''
        0 capacity k - 3
        1 grant k A 10 31 - 1 1
        2 grant k B 11 31 - 1 1'''),
    'a slot that is not the lowest': ('slots', '''
        0 capacity k - 3
        1 grant k A 10 31 - 1 2'''),
    'fewer slots than units': ('slots', '''
        0 capacity k - 3
        1 grant k A 10 31 - 2 1'''),
    'no slots under a capacity': ('slots', '''
        0 capacity k - 3
        1 grant k A 10 31 - 1'''),
    'slots without a capacity': ('slots', '''
        1 grant k A 10 31 - 1 1'''),
    'a reader that overtakes a waiting writer': ('overtaking', '''
        1 grant k A 10 31 - 1
        2 queue k B - 60
        3 grant k C 11 31 - 1'''),
    'a small request that overtakes a large one': ('overtaking', '''
        0 capacity k - 3
        1 grant k A 10 31 - 2 1,2
        2 queue k B 5 60 - 2
        2 queue k C 6 60 - 1
        3 grant k C 11 31 - 1 3'''),
    'a reader that fits and is not woken': ('stall', '''
        1 grant k A 10 90
        2 queue k B - 60 - 1
        2 queue k C - 60 - 1
        3 end k A
        3 grant k B 11 60 - 1
        20 grant k C 12 60 - 1'''),
    'a token of a shared lease that goes back': ('token', '''
        1 grant k A 10 31 - 1
        2 grant k B 9 31 - 1'''),
    'a downgrade without a new token': ('token', '''
        1 grant k A 10 31
        2 down k A 10 32 - 1'''),
    'a downgrade by a stranger': ('downgrade', '''
        1 grant k A 10 31
        2 down k B 11 32 - 1'''),
    'a downgrade after the expiry': ('downgrade', '''
        1 grant k A 10 31
        32 down k A 11 60 - 1'''),
    'a downgrade that takes more units': ('downgrade', '''
        0 capacity k - 3
        1 grant k A 10 31 - 1 1
        2 down k A 10 32 - 2 1,2'''),
    'a downgrade that gives back the lowest slots': ('downgrade', '''
        0 capacity k - 3
        1 grant k A 10 31 - 2 1,2
        2 down k A 10 32 - 1 2'''),
    'a downgrade under a guard': ('guard', '''
        1 grant k A 10 31
        2 guard k A 10 - w
        3 down k A 11 33 - 1
        4 unguard k A'''),
    'an exclusive grant after a downgrade': ('double holder', '''
        1 grant k A 10 31
        2 down k A 11 32 - 1
        3 grant k B 12 33'''),
    'a grant in the rest of a lease that became shared': ('rest', '''
        1 grant k A 10 31
        1 rest k A - 5
        2 down k A 11 32 - 1
        4 grant k B 12 36 - 1'''),
    'the lease of a guard that ended among others': ('guard', '''
        1 grant k A 10 31 - 1
        1 grant k B 11 31 - 1
        2 guard k A 10 - w
        3 end k A'''),
    'the units of a guarded holder taken over': ('guard', '''
        0 capacity k - 1
        1 grant k A 10 31 - 1 1
        2 guard k A 10 - w
        32 grant k B 11 60 - 1 1'''),
    'a guard with the token from before the downgrade': ('guard', '''
        1 grant k A 10 31
        2 down k A 11 32 - 1
        3 guard k A 10 - w'''),
    'a reap of one shared holder before its expiry': ('reap', '''
        1 grant k A 10 31 - 1
        1 grant k B 11 20 - 1
        21 reap k - 10'''),
    'a release of a shared lease that had ended': ('release', '''
        1 grant k A 10 31 - 1
        1 grant k B 11 31 - 1
        2 end k A
        3 end k A'''),
    'one scope of two': ('part', '''
        1 all k A
        1 all l A
        1 grant k A 10 31
        2 end k A'''),
    'one scope of two, to the end': ('part', '''
        1 all k A
        1 all l A
        1 grant k A 10 31'''),
    'one scope after the other': ('part', '''
        1 all k A
        1 all l A
        1 grant k A 10 31
        2 grant l A 11 31'''),
    'one scope while it waits for the other': ('part', '''
        1 all k A
        1 all l A
        1 grant k A 10 31
        1 queue l A 5 60
        2 grant l A 11 31'''),
    'a place in one queue of two': ('part', '''
        1 grant k B 9 10
        1 all k A
        1 all l A
        1 queue k A 5 60
        2 end k B
        2 grant k A 10 60
        2 grant l A 11 60'''),
    'a ticket for each queue': ('part', '''
        1 all k A
        1 all l A
        1 queue k A 5 60
        1 queue l A 6 60
        2 leave k A
        2 leave l A'''),
    'one who waits for two scopes is overtaken where one is free': ('overtaking', '''
        1 grant k A 10 60
        2 all k B
        2 all l B
        2 queue k B 5 60
        2 queue l B 5 60
        3 grant l C 11 60'''),
    'two scopes that were free for long': ('stall', '''
        1 grant k A 10 60
        1 grant l A 10 60
        2 all k B
        2 all l B
        2 queue k B 5 60
        2 queue l B 5 60
        3 end k A
        4 end l A
        20 grant k B 11 60
        20 grant l B 12 60'''),
    'two scopes that nobody ever granted': ('stall', '''
        1 grant k A 10 60
        2 all k B
        2 all l B
        2 queue k B 5 60
        2 queue l B 5 60
        3 end k A
        9 stop'''),
    'a second holder of one scope of two': ('double holder', '''
        1 grant k A 10 60
        2 all k B
        2 all l B
        2 grant k B 11 60
        2 grant l B 12 60'''),
    'two scopes twice for one lease key': ('granted twice', '''
        1 all k A
        1 all l A
        1 grant k A 10 60
        1 grant l A 11 60
        2 end k A
        2 end l A
        3 grant k A 12 60'''),
    'an event of no known kind': ('unknown', '''
        1 borrow k A 10 31'''),
}


def main():
    passed = failed = 0
    cases = [(name, None, text) for name, text in GOOD.items()]
    cases += [(name, fault, text) for name, (fault, text) in BROKEN.items()]
    for name, wanted, text in cases:
        faults = check_history.check(history(text)).faults
        kinds = {fault.split(':')[0] for fault in faults}
        if kinds == ({wanted} if wanted else set()):
            passed += 1
        else:
            failed += 1
            print('FAILED: %s: wanted %s, found %s' % (name, wanted or 'no fault', faults or 'no fault'))
    shuffled = history(GOOD['a hold after another'])
    shuffled[1], shuffled[2] = shuffled[2], shuffled[1]
    if any(fault.startswith('order:') for fault in check_history.check(shuffled).faults):
        passed += 1
    else:
        failed += 1
        print('FAILED: a history out of order was accepted')
    print('soak checker: %d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
