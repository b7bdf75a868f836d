"""A history of leases and waiters, taken by triggers in the database, in the transactions of the changes, and judged by the soak's
checker.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import check_history  # noqa: E402

RECORD = """
create schema record;
create table record.event (
  number bigserial primary key, tx xid8 not null default pg_current_xact_id(), at timestamptz not null, kind text not null,
  scope text, lease uuid, token bigint, until timestamptz, actor text);

create function record.on_scope() returns trigger language plpgsql security definer as $$
begin
  if old.state = 'held' and new.state = 'free' then
    insert into record.event (at, kind, scope, lease, token)
    values (clock_timestamp(), case new.last_outcome when 'expired' then 'reap' else 'end' end, new.key, old.lease_key, old.token);
  elsif new.state = 'held' and new.lease_key is distinct from old.lease_key then
    -- From one holder to the next in one update: released first, where it was not taken over.
    if old.state = 'held' and new.last_outcome <> 'expired' then
      insert into record.event (at, kind, scope, lease, token) values (new.ended_at, 'end', new.key, old.lease_key, old.token);
    end if;
    insert into record.event (at, kind, scope, lease, token, until)
    values (new.acquired_at, 'grant', new.key, new.lease_key, new.token, new.deadline + new.grace);
  elsif new.state = 'held' and new.heartbeat_at <> old.heartbeat_at then
    insert into record.event (at, kind, scope, lease, token, until)
    values (new.heartbeat_at, 'renew', new.key, new.lease_key, new.token, new.deadline + new.grace);
  end if;
  return null;
end $$;
create trigger record after update on leasehold.scope for each row execute function record.on_scope();

create function record.on_waiter() returns trigger language plpgsql security definer as $$
begin
  if tg_op = 'INSERT' then
    insert into record.event (at, kind, scope, lease, actor)
    values (clock_timestamp(), 'queue', new.key, new.lease_key, new.coordinator);
  elsif tg_op = 'DELETE' then
    insert into record.event (at, kind, scope, lease) values (clock_timestamp(), 'leave', old.key, old.lease_key);
  else
    insert into record.event (at, kind, scope, lease, actor)
    values (clock_timestamp(), case when new.away_until is null then 'move' else 'away' end, new.key, new.lease_key, new.coordinator);
  end if;
  return null;
end $$;
create trigger record after insert or update or delete on leasehold.waiter for each row execute function record.on_waiter();

create function record.on_coordinator() returns trigger language plpgsql security definer as $$
begin
  insert into record.event (at, kind, until, actor) values (new.seen_at, 'alive', clock_timestamp(), new.id);
  return null;
end $$;
create constraint trigger record after insert or update on leasehold.coordinator deferrable initially deferred
  for each row execute function record.on_coordinator();
"""

# Whoever is granted the scope leaves the queue in the same transaction: that is no leaving.
EXPORT = """
select concat_ws(E'\\t', number, extract(epoch from at)::numeric(20, 6), kind, coalesce(scope, '-'), coalesce(lease::text, '-'),
  coalesce(token::text, '-'), coalesce(extract(epoch from until)::numeric(20, 6)::text, '-'), coalesce(actor, '-'), '-', '-')
  from record.event e
 where not (kind = 'leave' and exists (
         select from record.event g where g.kind = 'grant' and g.tx = e.tx and g.scope = e.scope and g.lease = e.lease))
 order by number
"""


class Judge(check_history.Judge):
    """With waiters that change their coordinator, places of calls that are away, and coordinators that come back.

    `until` of a sign of life says when it was about to be committed: on a busy machine much later than it was given."""

    UNCLEAR_S = 0.5  # whether a sign of life, or a move away from a dead coordinator, that was just written was seen already

    def __init__(self):
        super().__init__()
        self.back = {}    # coordinators and waiters that passed for dead: when they were back

    def live_until(self, waiter):
        return 0.0 if waiter.until == 0.0 else super().live_until(waiter)

    def on_alive(self, event, scope):
        known_at = event.at if event.until is None else event.until
        if known_at > self.seen.get(event.actor, 0.0) + check_history.ALIVE_S - self.UNCLEAR_S:
            self.back[event.actor] = known_at
        super().on_alive(event, scope)

    def on_move(self, event, scope):
        waiter = scope.waiters.get(event.lease)
        if waiter is not None:
            if event.at > self.live_until(waiter) - self.UNCLEAR_S:
                self.back[event.lease] = event.at
            scope.waiters[event.lease] = waiter._replace(actor=event.actor, until=None)

    def on_away(self, event, scope):
        waiter = scope.waiters.get(event.lease)
        if waiter is not None:
            scope.waiters[event.lease] = waiter._replace(until=0.0)

    def check_line(self, event, scope, room_at):
        unclear = {lease: waiter for lease, waiter in scope.waiters.items() if lease != event.lease
                   and event.at < max(self.back.get(waiter.actor, 0.0), self.back.get(lease, 0.0)) + self.UNCLEAR_S}
        for lease in unclear:
            del scope.waiters[lease]
        super().check_line(event, scope, room_at)
        scope.waiters.update(unclear)


def judge(lines):
    verdict = Judge()
    for line in lines:
        verdict.judge(check_history.parse(line))
    verdict.finish()
    return verdict


def history(text):
    rows = [line.split() for line in text.strip().splitlines()]
    return ["\t".join([str(n), *row, *["-"] * (9 - len(row))]) for n, row in enumerate(rows, 1)]
