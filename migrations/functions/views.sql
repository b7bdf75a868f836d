-- The views for people. A view reads tables with its owner's rights, but calls functions with its reader's: those below
-- are granted, and what they read is read for them.

-- leasehold_internal.life for whoever may read the views, and the time; stable, for a balancer must not take what reads for what writes. Locks
-- nothing.
create or replace function leasehold_internal.life_and_time(out life leasehold.life_now, out now timestamptz)
language plpgsql stable
security definer
as $$
begin
  life := leasehold_internal.life(null);
  now := clock_timestamp();
end
$$;

-- May the reader see other holders' fencing tokens? A guard takes one, so a client that knows it could keep a lease from ending.
-- Where rules name roles, what may be read may be read whole, and a guard needs its own right. The search path is pinned, or a client could
-- lay out a function of its own for it. Locks nothing.
create or replace function leasehold_internal.sees_tokens() returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_has_role('leasehold_reader', 'member') or pg_has_role('leasehold_admin', 'member')
         or pg_has_role('leasehold_coordinator', 'member') or pg_has_role('leasehold_owner', 'member')
         or leasehold_internal.rules_name_roles();
end
$$;

-- Each view shows what its reader may read, and is a security barrier: a function of the reader's in its WHERE sees nothing else. What is
-- asked once for a query stands in a subquery.

-- The columns of a lease as the view tells it, behind namespace and key. A part of the query that calls it, and so of its reader's search path:
-- what decides who sees something is named in full. Locks nothing.
create or replace function leasehold_internal.lease_columns(
  p_scope leasehold.scope, p_rules leasehold.rules, p_life leasehold.life_now, p_now timestamptz)
returns table (
  token bigint, owner text, liveness text, remaining interval, held interval, acquired_at timestamptz, heartbeat_at timestamptz, heartbeats bigint,
  deadline timestamptz, expires_at timestamptz, duration interval, grace interval, labels jsonb, reap_failures integer, lease_key uuid,
  principal text, rests_until timestamptz, {{shape.table}}, states text[])
language sql stable
as $$
  select case when (select leasehold_internal.sees_tokens()) then s.token end, s.owner, f.liveness, s.deadline - p_now, p_now - s.acquired_at,
         s.acquired_at, s.heartbeat_at, s.heartbeats, s.deadline,
         leasehold_internal.expires_at(p_scope, p_life, (p_rules).expiry, p_now),
         s.duration, s.grace, s.labels, s.reap_failures,
         case when pg_catalog.pg_has_role('leasehold_admin', 'member') then s.lease_key end, s.principal,
         case when s.at_least is not null then leasehold_internal.rests_until(p_scope, p_life, p_now) end,
         {{shape.columns f}},
         leasehold_internal.lease_states(p_scope, p_rules, p_life, p_now)
    from (select (p_scope).*) s
   cross join lateral leasehold_internal.lease_facts(p_scope, p_rules, p_life, p_now) f
$$;

create or replace view leasehold.lease with (security_barrier) as
  select s.namespace, s.key, c.token, c.owner, c.liveness, c.remaining, c.held, c.acquired_at, c.heartbeat_at, c.heartbeats, c.deadline, c.expires_at,
         c.duration, c.grace, c.labels, c.reap_failures, c.lease_key, c.principal, c.rests_until, {{shape.columns c}}, c.states
    from leasehold_internal.life_and_time() l
   cross join leasehold_internal.rules_by_range() g
   -- A union at the top of a view would be no security barrier.
   cross join (select x as scope, x.namespace, x.key, x.token
                 from leasehold.scope x
                where x.state = 'held'
               union all
               select leasehold_internal.scope_of_share(h), h.namespace, h.key, h.token
                 from leasehold.share h
                where h.state = 'held') s
   cross join lateral (select leasehold_internal.rules_at(g.rules, g.starts, s.namespace) as rules offset 0) r
   cross join lateral leasehold_internal.lease_columns(s.scope, r.rules, l.life, l.now) c
   where coalesce((s.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false);

-- What a scope holds, as the view tells it, with the rules of its namespace alone: of one holder, or of all (`p_token` null). Whoever
-- acquires reads its lease back by it. Locks nothing.
create or replace function leasehold_internal.leases_of(p_namespace text, p_key text, p_token bigint default null) returns setof leasehold.lease
language plpgsql stable rows 1
as $$
declare
  v_rules constant leasehold.rules := leasehold_internal.policy_of(p_namespace);
  v_now constant timestamptz := clock_timestamp();
  v_life constant leasehold.life_now := leasehold_internal.life(null);
begin
  return query
    select s.namespace, s.key, c.*
      from (select x as scope, x.namespace, x.key, x.token
              from leasehold.scope x
             where x.namespace = p_namespace and x.key = p_key and x.state = 'held'
             union all
            select leasehold_internal.scope_of_share(h), h.namespace, h.key, h.token
              from leasehold.share h
             where h.namespace = p_namespace and h.key = p_key and h.state = 'held') s
     cross join lateral leasehold_internal.lease_columns(s.scope, v_rules, v_life, v_now) c
     where p_token is null or s.token = p_token;
end
$$;

-- As it was before it had `p_now`.
drop function if exists leasehold_internal.expires_at(leasehold.scope, leasehold.life_now, text);

comment on view leasehold.lease is 'What is held now; a shared lease is a row for each holder';
comment on column leasehold.lease.namespace is 'Dotted: payments.invoices';
comment on column leasehold.lease.key is 'The name inside of the namespace';
comment on column leasehold.lease.token is 'Fencing token: grows with each grant of the scope; null for roles that are members of leasehold_client alone, as long as no rule names a role';
comment on column leasehold.lease.owner is 'Who holds it, in the holder''s own words';
comment on column leasehold.lease.principal is 'Who holds it, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';
comment on column leasehold.lease.liveness is
  'alive; suspected_dead: silent for longer than dead_after; overdue: held for longer than max_hold; expired: will be reaped';
comment on column leasehold.lease.remaining is 'Until the deadline, without another heartbeat; negative when it has passed';
comment on column leasehold.lease.held is 'Since the grant';
comment on column leasehold.lease.acquired_at is 'When it was granted';
comment on column leasehold.lease.heartbeat_at is 'Last renewal, or the grant';
comment on column leasehold.lease.heartbeats is 'Renewals since the grant';
comment on column leasehold.lease.deadline is 'The owner must have stopped by then: last renewal + duration';
comment on column leasehold.lease.expires_at is
  'From then on it may be reaped or taken over: deadline + grace, later after a restart of the database; null: never by itself';
comment on column leasehold.lease.duration is 'How long it lives without a heartbeat';
comment on column leasehold.lease.grace is 'How long after the deadline it is still left alone';
comment on column leasehold.lease.labels is 'A JSON object of strings';
comment on column leasehold.lease.reap_failures is 'How often reaping it has failed';
comment on column leasehold.lease.rests_until is
  'Nobody else is granted the scope before then, whenever this lease ends (at_least); null: no minimum hold, or it is over';
comment on column leasehold.lease.mode is 'exclusive or shared';
comment on column leasehold.lease.units is 'How many units of its namespace''s capacity a shared lease has taken; 0: an exclusive lease has the whole scope';
comment on column leasehold.lease.slots is 'Which numbers of 1 to the capacity a shared lease has; null without a capacity';
comment on column leasehold.lease.states is
  'Why somebody should look at it; empty: for nothing. expired: will be reaped; overdue: past its deadline, within its grace; silent: no heartbeat for longer than dead_after; held_too_long: for longer than max_hold';
comment on column leasehold.lease.lease_key is 'The credential to renew and release it: shown to members of leasehold_admin only';

create or replace view leasehold.queue with (security_barrier) as
  select w.namespace, w.key,
         case when w.has_place then count(*) filter (where w.has_place)
                                     over (partition by w.namespace, w.key order by w.at, -w.priority, w.ticket)
         end as position,
         w.owner,
         w.now - w.enqueued_at as waiting,
         coalesce(w.away_until > w.now, false) as away,
         w.enqueued_at, w.wait_until, w.duration, w.coordinator, w.ticket, w.principal, w.rests_until,
         case when w.units is null then 'exclusive' else 'shared' end as mode, coalesce(w.units, 0) as units,
         coalesce(w.items, 1)::integer as scopes, w.priority
    from (select p.*,
                 max(p.enqueued_at - case when p.priority > 0 then p.priority * (leasehold_internal.policy_of(p.namespace)).ageing
                                          else interval '0' end)
                   filter (where p.has_place) over (partition by p.namespace, p.key, p.priority order by p.ticket) as at
    from (select x.*, n.now,
                 (select case when s.at_least is not null
                              then leasehold_internal.rests_until(s, n.life, n.now) end
                    from leasehold.scope s
                   where s.namespace = x.namespace and s.key = x.key) as rests_until,
                 (x.wait_until is null or x.wait_until > n.now)
                 and (x.away_until is null or x.away_until > n.now)
                 and (x.coordinator is null or c.seen_at > n.now - interval '3.5 s') is true as has_place
            from leasehold_internal.life_and_time() n
           cross join leasehold.waiter x
            left join leasehold.coordinator c
              on c.id = x.coordinator
           where coalesce((x.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false)) p) w;

comment on view leasehold.queue is 'Who waits for what: of one priority first come first served';
comment on column leasehold.queue.namespace is 'Of the scope';
comment on column leasehold.queue.key is 'Of the scope';
comment on column leasehold.queue.position is '1 is next; null: passed over, for its wait is over or its coordinator was not seen for 3.5 s';
comment on column leasehold.queue.owner is 'Who waits';
comment on column leasehold.queue.principal is 'Who waits, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';
comment on column leasehold.queue.rests_until is
  'Nobody is granted the scope before then, though its lease may end (at_least); null: no minimum hold, or it is over';
comment on column leasehold.queue.mode is 'exclusive or shared: what it waits for';
comment on column leasehold.queue.units is 'How many units of the capacity it waits for; 0: the whole scope';
comment on column leasehold.queue.scopes is
  'For how many scopes it waits together, with one ticket in the queue of each: it is granted all at once, and holds none before; 1: this one';
comment on column leasehold.queue.waiting is 'For how long';
comment on column leasehold.queue.away is 'Its call has ended but may come back: the place is kept for 10 s, and passed over';
comment on column leasehold.queue.enqueued_at is 'Since when';
comment on column leasehold.queue.wait_until is 'How long at most; null: no limit';
comment on column leasehold.queue.duration is 'Of the lease that it wants; null for a place taken by join_queue';
comment on column leasehold.queue.coordinator is 'The daemon that its caller waits at; null: a SQL user';
comment on column leasehold.queue.ticket is 'The place in the order of arrival';
comment on column leasehold.queue.priority is 'Each step of it counts as one ageing of the policy that it has waited longer';

create or replace view leasehold.lease_summary with (security_barrier) as
  select c.namespace, sum(c.held)::bigint as held, sum(c.waiting)::bigint as waiting, sum(c.expired)::bigint as expired,
         sum(c.failing)::bigint as failing
    from (select s.namespace, count(*) as held, 0 as waiting,
                 count(*) filter (where leasehold_internal.is_expired(s, l.life, (leasehold_internal.rules_at(g.rules, g.starts, s.namespace)).expiry, l.now)) as expired,
                 count(*) filter (where s.reap_failures > 0) as failing
            from leasehold_internal.life_and_time() l
           cross join leasehold_internal.rules_by_range() g
           cross join leasehold.scope s
           where s.state = 'held' and coalesce((s.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false)
           group by s.namespace
          union all
          select h.namespace, count(*), 0,
                 count(*) filter (where leasehold_internal.is_expired(leasehold_internal.scope_of_share(h), l.life,
                                                                      (leasehold_internal.rules_at(g.rules, g.starts, h.namespace)).expiry, l.now)),
                 count(*) filter (where h.reap_failures > 0)
            from leasehold_internal.life_and_time() l
           cross join leasehold_internal.rules_by_range() g
           cross join leasehold.share h
           where h.state = 'held' and coalesce((h.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false)
           group by h.namespace
          union all
          select q.namespace, 0, count(q.position), 0, 0
            from leasehold.queue q
           group by q.namespace) c
   group by c.namespace;

-- As it was before it told the time.
drop function if exists leasehold_internal.life_for_readers();

comment on view leasehold.lease_summary is 'How it stands in each namespace in which something is held or waited for';
comment on column leasehold.lease_summary.namespace is 'Dotted: payments.invoices';
comment on column leasehold.lease_summary.held is 'Leases that are held, each shared one, expired ones too';
comment on column leasehold.lease_summary.waiting is 'Places in the queues, without those that are passed over';
comment on column leasehold.lease_summary.expired is 'Of those held: past their expiry, so that a reaper or an acquirer may end them';
comment on column leasehold.lease_summary.failing is 'Of those held: reaping them has failed at least once';

create or replace view leasehold.effective_policy with (security_barrier) as
  select n.namespace,
         r.min_duration, r.max_duration, r.grace, r.max_hold, r.dead_after, r.expiry, r.reaper, r.frozen, r.max_leases,
         r.max_waiters, h.history, r.max_reap_failures, r.hook_timeout, r.free_retention, h.history_retention,
         jsonb_object(leasehold_internal.policy_columns(), leasehold_internal.policy_sources(n.namespace)) as sources, r.at_least, r.capacity,
         r.end_at_max_hold, leasehold_internal.hand_over_grace_of(n.namespace) as hand_over_grace
    from (select p.namespace from leasehold.policy p
           union
          select s.namespace from leasehold.scope s) n
   cross join lateral leasehold_internal.policy_of(n.namespace) r
   cross join lateral leasehold_internal.history_policy_of(n.namespace) h
   where coalesce((n.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false);

comment on view leasehold.effective_policy is 'The settings in force, for each namespace that has a policy or a scope';
comment on column leasehold.effective_policy.namespace is 'The namespace; '''' is the root';
comment on column leasehold.effective_policy.min_duration is 'Shortest duration of a lease';
comment on column leasehold.effective_policy.max_duration is 'Longest duration of a lease';
comment on column leasehold.effective_policy.grace is 'How long after its deadline a lease is left alone';
comment on column leasehold.effective_policy.max_hold is 'Held longer than this is reported as overdue, and ended where end_at_max_hold says so; null: never';
comment on column leasehold.effective_policy.end_at_max_hold is 'No renewal moves a deadline past acquired_at + max_hold: the lease ends then';
comment on column leasehold.effective_policy.dead_after is
  'A holder silent for longer is suspected dead; null: two thirds of its duration';
comment on column leasehold.effective_policy.expiry is
  'takeover: reaper or next acquirer; reap: the reaper only; manual: never by itself';
comment on column leasehold.effective_policy.reaper is 'auto: every daemon; external: only a reap that names the namespace';
comment on column leasehold.effective_policy.frozen is 'No new grants';
comment on column leasehold.effective_policy.max_leases is 'Held at once below the prefix that sets it; null: no limit';
comment on column leasehold.effective_policy.max_waiters is 'Queued for one scope; null: no limit';
comment on column leasehold.effective_policy.history is 'Keep a record of every hold';
comment on column leasehold.effective_policy.max_reap_failures is 'After so many failures a lease stays for a person';
comment on column leasehold.effective_policy.hook_timeout is 'How long a hook may take';
comment on column leasehold.effective_policy.free_retention is 'How long a free scope keeps its row at least';
comment on column leasehold.effective_policy.history_retention is 'How long history is kept';
comment on column leasehold.effective_policy.at_least is 'A scope rests until so long after its grant, whenever the lease ends; null: 0';
comment on column leasehold.effective_policy.capacity is 'How many units a scope has for shared leases; null: any number';
comment on column leasehold.effective_policy.hand_over_grace is 'How long a holder has to answer a request to hand over';
comment on column leasehold.effective_policy.sources is 'For each setting the prefix that it comes from; '''' is the root';

grant select on leasehold.lease, leasehold.queue, leasehold.lease_summary, leasehold.effective_policy, leasehold.coordinator, leasehold.policy,
  leasehold.migration
  to leasehold_reader, leasehold_coordinator, leasehold_admin;
-- Lease keys are in these.
grant select on leasehold.scope, leasehold.share, leasehold.waiter, leasehold.incarnation to leasehold_admin;

-- A client sees who holds what.
grant select on leasehold.lease, leasehold.policy to leasehold_client;
grant execute on function leasehold_internal.life_and_time, leasehold_internal.to_us, leasehold_internal.from_us,
  leasehold_internal.renewed_for, leasehold_internal.prefixes, leasehold_internal.policy_of,
  leasehold_internal.rules_over, leasehold_internal.rules_by_range, leasehold_internal.rules_at, leasehold_internal.expires_at,
  leasehold_internal.is_expired, leasehold_internal.sees_tokens, leasehold_internal.rests_until, leasehold_internal.rest_ends_at,
  leasehold_internal.lease_facts, leasehold_internal.scope_of_share, leasehold_internal.lease_states, leasehold_internal.lease_columns
  to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
grant execute on function leasehold_internal.policy_columns, leasehold_internal.policy_sources, leasehold_internal.history_policy_of,
  leasehold_internal.hand_over_grace_of
  to leasehold_reader, leasehold_coordinator, leasehold_admin;
-- Who does not decide has no use for the slots: granted before there were any.
revoke execute on function leasehold_internal.policies_of from leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
