#!/usr/bin/python3
"""Answer calls until none waits: worker.py [SERVER]. LEASEHOLD_DATABASE says where they are; without SERVER the leases are in SQL."""
import os
import sys

import leasehold
import psycopg
from psycopg.types.json import Jsonb

WAITING = "select id, request from calls.call where state = 'waiting' order by id limit 1"
MARK = "update calls.call set state = 'running', attempts = attempts + 1 where id = %s and state = 'waiting' returning request"


def take(client, connection):
    """The oldest call that waits: its row is marked and its lease begins together, or neither. The client renews it from then on."""
    while found := connection.execute(WAITING).fetchone():
        lease = client.lease("calls", str(found[0]), duration=10)
        try:
            with lease.acquire_in(connection):
                if connection.execute(MARK, [found[0]]).fetchone() is None:
                    raise psycopg.Rollback  # another worker was faster, and has ended
        except leasehold.Held:
            continue
        if lease.is_held():
            return lease, found[1]
    return None


def main():
    database = os.environ["LEASEHOLD_DATABASE"]
    target = {"server": sys.argv[1]} if sys.argv[1:] else {"database": database}
    with leasehold.Client(**target) as client, psycopg.connect(database, autocommit=True) as connection:
        while call := take(client, connection):
            lease, request = call
            response = {"shouted": str(request).upper()}  # the work; lease.check() tells whether it still has a point
            with lease.release_in(connection):
                connection.execute("update calls.call set state = 'done', response = %s where id = %s", [Jsonb(response), int(lease.key)])
            print(f"call {lease.key}: {response}")


if __name__ == "__main__":
    main()
