-- Is this namespace the prefix, or below it? Everything is below the root. Locks nothing.
create or replace function leasehold_internal.is_in_subtree(p_namespace text, p_prefix text) returns boolean
language sql immutable parallel safe
as $$
  select p_prefix = '' or p_namespace = p_prefix or starts_with(p_namespace, p_prefix || '.')
$$;

-- Change settings of one namespace, and write that down in the audit: `p_values` are texts, durations in microseconds; null inherits again, at the root it is
-- the default. Returns null, or what is wrong: the caller raises it, and nothing is written.
-- Locks the policy table against other changes of policies, never against its readers; for settings of the history what
-- make_days() does, and a row of leasehold.keeping; then, skipping what others have, the rows that the reaper had put aside,
-- so that it looks at them again. Daemons are told to ask again where it matters to those who wait.
create or replace function leasehold_internal.change_policy(
  p_by text, p_peer text, p_namespace text, p_columns text[], p_values text[])
returns leasehold_internal.problem
language plpgsql
as $$
declare
  v_change record;
  v_set text;
  v_words text;
  v_contradiction text;
  v_rules leasehold.rules[];
  v_problem leasehold_internal.problem := leasehold_internal.subtree_problem(p_namespace);
begin
  {{problem.text}}
  for v_change in
    select c.name, c.value from unnest(p_columns, p_values) with ordinality as c (name, value, place) order by c.place
  loop
    if v_change.name is null or v_change.name <> all (leasehold_internal.policy_columns()) then
      return row('column_name', 'one of ' || array_to_string(leasehold_internal.policy_columns(), ', '))::leasehold_internal.problem;
    end if;
    if v_change.value is not null and leasehold_internal.policy_literal(v_change.name, v_change.value) is null then
      return row(v_change.name, leasehold_internal.policy_bound(v_change.name) || case
        when v_change.value ~ '^-?\d{1,17}$' and leasehold_internal.policy_bound(v_change.name) ~ '(year|day)s?$'
          then leasehold_internal.is_words(leasehold_internal.from_us(v_change.value::bigint))
        else ', is ' || left(v_change.value, 64) end)::leasehold_internal.problem;
    end if;
  end loop;

  select string_agg(format('%I = %s', c.name, coalesce(leasehold_internal.policy_literal(c.name, c.value),
                                                       case when p_namespace = '' then 'default' else 'null' end)), ', '),
         string_agg(format('%s = %s', c.name, leasehold_internal.policy_words(c.name, c.value, p_namespace)), ', ')
    into v_set, v_words
    from (select distinct on (u.name) u.name, u.value
            from unnest(p_columns, p_values) with ordinality as u (name, value, place)
           order by u.name, u.place desc) c;
  if v_set is null then
    return null;
  end if;

  lock table leasehold.policy in share row exclusive mode;
  perform leasehold_internal.check_rule_marks();
  perform setval('leasehold.policy_mark', pg_current_xact_id()::text::bigint);
  insert into leasehold.policy
  select (jsonb_populate_record(null::leasehold.policy, jsonb_build_object('namespace', p_namespace))).*
      on conflict (namespace) do nothing;
  begin
    execute format('update leasehold.policy set %s where namespace = $1', v_set) using p_namespace;
  exception when check_violation then
    -- The two durations contradict each other; everything else was looked at above.
    v_contradiction := p_namespace;
  end;
  delete from leasehold.policy p
   where p.namespace = p_namespace and p.namespace <> ''
     and jsonb_strip_nulls(to_jsonb(p)) = jsonb_build_object('namespace', p.namespace);

  -- A namespace below may set one of the two durations and inherit the other.
  v_rules := array(
    select r
      from leasehold_internal.policies_of(array(select p_namespace
                                        union
                                       select p.namespace from leasehold.policy p
                                        where leasehold_internal.is_in_subtree(p.namespace, p_namespace))) r);
  v_contradiction := coalesce(v_contradiction, (select min(r.namespace) from unnest(v_rules) r where r.min_duration > r.max_duration));
  if v_contradiction is not null then
    return row(case when 'min_duration' = any (p_columns) then 'min_duration' else 'max_duration' end,
               case when 'min_duration' = any (p_columns) then 'at most max_duration' else 'at least min_duration' end
               || case when v_contradiction = p_namespace then '' else ' in ' || v_contradiction end)::leasehold_internal.problem;
  end if;
  select x.* into v_problem
    from unnest(v_rules) r
   cross join lateral leasehold_internal.end_problem(r, p_namespace, p_columns) x
   where x.field is not null
   order by r.namespace collate "C"
   limit 1;
  {{problem.text}}

  perform leasehold_internal.audit_add(p_by, p_peer, case when array_remove(p_values, null) = '{}' then 'policy_reset' else 'policy_set' end,
                                       p_namespace, null, null, v_words);
  -- Partitions for the history, before anything is written to it; a new retention is looked at within a second.
  if 'history' = any (p_columns) and exists (select from leasehold.policy p where p.history) then
    perform leasehold_internal.make_days('history', clock_timestamp());
  end if;
  if p_columns && array['history', 'history_retention'] then
    update leasehold.keeping k set look_at = clock_timestamp() where k.name = 'history';
  end if;

  -- A row that a batch has just now is free again in a moment; one in an open transaction is told of.
  for v_try in 1 .. 20 loop
    perform leasehold_internal.look_again(p_namespace);
    exit when not exists (select 1
                            from leasehold.scope s
                           where s.check_at = 'infinity' and s.state = 'held'
                             and leasehold_internal.is_in_subtree(s.namespace, p_namespace))
              and not exists (select from leasehold.share h
                               where h.check_at = 'infinity' and h.state = 'held'
                                 and leasehold_internal.is_in_subtree(h.namespace, p_namespace));
    if v_try = 20 then
      raise warning 'some leases of % are kept by other sessions: the reaper does not look at them before the policy is set '
                    'again, or reap() names the namespace', p_namespace;
    end if;
    perform pg_sleep(0.01);
  end loop;
  if 'free_retention' = any (p_columns) then
    perform leasehold_internal.look_at_free(p_namespace);
  end if;
  if p_columns && array['dead_after', 'max_hold', 'end_at_max_hold', 'expiry', 'capacity'] then
    perform leasehold_internal.let_ask_again(p_namespace);
  end if;
  return null;
end
$$;

-- What keeps a hold from being ended at max_hold under these rules, about one of the columns that were changed; null when nothing does. Locks nothing.
create or replace function leasehold_internal.end_problem(p_rules leasehold.rules, p_changed text, p_columns text[])
returns leasehold_internal.problem
language sql immutable
as $$
  select row(coalesce(case when c.name = any (p_columns) then c.name end, 'end_at_max_hold'),
             case when c.name = any (p_columns) then c.bound || ' while end_at_max_hold is true' else 'false while ' || c.trouble end
             || case when (p_rules).namespace = p_changed then '' else ' in ' || (p_rules).namespace end)::leasehold_internal.problem
    from (values ((p_rules).max_hold is null, 'max_hold', 'set', 'max_hold is not set'),
                 ((p_rules).max_hold < greatest((p_rules).min_duration, interval '100 ms'), case when 'min_duration' = any (p_columns) then 'min_duration' else 'max_hold' end,
                  case when 'min_duration' = any (p_columns) then 'at most max_hold' else 'at least min_duration' end,
                  'max_hold is below min_duration'),
                 ((p_rules).expiry = 'manual', 'expiry', 'takeover or reap', 'expiry is manual')) c (is_so, name, bound, trouble)
   where (p_rules).end_at_max_hold and c.is_so
   limit 1
$$;

-- Let the reaper look again at the leases of a subtree that it had put aside. Locks their rows FOR NO KEY UPDATE SKIP LOCKED.
create or replace function leasehold_internal.look_again(p_namespace text) returns void
language sql volatile
as $$
  update leasehold.scope s
     set check_at = clock_timestamp()
    from (select x.namespace, x.key
            from leasehold.scope x
           where x.check_at = 'infinity' and x.state = 'held' and leasehold_internal.is_in_subtree(x.namespace, p_namespace)
           order by x.namespace, x.key
             for no key update skip locked) a
   where s.namespace = a.namespace and s.key = a.key;
  update leasehold.share h
     set check_at = clock_timestamp()
    from (select x.namespace, x.key, x.lease_key
            from leasehold.share x
           where x.check_at = 'infinity' and x.state = 'held' and leasehold_internal.is_in_subtree(x.namespace, p_namespace)
           order by x.namespace, x.key, x.lease_key
             for no key update skip locked) a
   where h.namespace = a.namespace and h.key = a.key and h.lease_key = a.lease_key
$$;

-- Let the reaper look sooner at the free rows of a subtree, and at shared leases that have ended, where their retention is shorter now. Locks their rows FOR NO KEY
-- UPDATE SKIP LOCKED; one that others have goes when it would have gone.
create or replace function leasehold_internal.look_at_free(p_namespace text) returns void
language sql volatile
as $$
  update leasehold.scope s
     set check_at = a.at
    from (select x.namespace, x.key, x.ended_at + r.free_retention as at
            from leasehold_internal.policies_of(array(select distinct f.namespace from leasehold.scope f
                                              where f.state = 'free' and leasehold_internal.is_in_subtree(f.namespace, p_namespace))) r
            join leasehold.scope x
              on x.namespace = r.namespace
           where x.state = 'free' and x.check_at > x.ended_at + r.free_retention
           order by x.namespace, x.key
             for no key update of x skip locked) a
   where s.namespace = a.namespace and s.key = a.key;
  update leasehold.share h
     set check_at = a.at
    from (select x.namespace, x.key, x.lease_key, x.ended_at + r.free_retention as at
            from leasehold_internal.policies_of(array(select distinct e.namespace from leasehold.share e
                                              where e.state = 'ended' and leasehold_internal.is_in_subtree(e.namespace, p_namespace))) r
            join leasehold.share x
              on x.namespace = r.namespace
           where x.state = 'ended' and x.check_at > x.ended_at + r.free_retention
           order by x.namespace, x.key, x.lease_key
             for no key update of x skip locked) a
   where h.namespace = a.namespace and h.key = a.key and h.lease_key = a.lease_key
$$;

-- What daemons told their waiters of the holders of a subtree, and when they look again, may not be true any more, and more of them may fit: let
-- their first waiter of each scope ask again, and SQL users, 10,000 at most. Locks nothing.
create or replace function leasehold_internal.let_ask_again(p_namespace text) returns void
language sql volatile
as $$
  select pg_notify(leasehold_internal.channel_of(w.coordinator, w.lease_key), w.namespace || chr(10) || w.key)
    from (select distinct q.coordinator, q.namespace, q.key, case when q.coordinator is null then q.lease_key end as lease_key
            from leasehold.waiter q
           where leasehold_internal.is_in_subtree(q.namespace, p_namespace)
           limit 10000) w
$$;

-- change_policy() for programs; `p_by` and `p_peer` are the principal and the address of a daemon's caller. Returns what policy_get() does after it; locks what change_policy() does, but waits for no
-- longer than a second: a daemon sends its signs of life over the same connection.
create or replace function leasehold_internal.policy_update(
  p_namespace text, p_columns text[], p_values text[], p_by text default null, p_peer text default null)
returns table (
  {{policy.table}})
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.change_policy(p_by, p_peer, p_namespace, p_columns, p_values));
  return query select g.* from leasehold_internal.policy_get(p_namespace) g;
end
$$;
comment on function leasehold_internal.policy_update is 'Change settings of a namespace, as programs do';

grant execute on function leasehold_internal.policy_update to leasehold_coordinator, leasehold_admin;
