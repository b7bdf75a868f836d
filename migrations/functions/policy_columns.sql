-- The settings of a policy, in the order in which programs are told of them. Locks nothing.
create or replace function leasehold_internal.policy_columns() returns text[]
language sql immutable parallel safe
as $$
  select array['min_duration', 'max_duration', 'grace', 'max_hold', 'dead_after', 'expiry', 'reaper', 'frozen', 'max_leases',
               'max_waiters', 'history', 'max_reap_failures', 'hook_timeout', 'free_retention', 'history_retention',
               'at_least', 'capacity', 'end_at_max_hold', 'max_priority', 'ageing', 'hand_over_grace']
$$;

-- Where each setting in force for a namespace comes from, in that order: the longest prefix that sets it; '' is the root.
-- Locks nothing.
create or replace function leasehold_internal.policy_sources(p_namespace text) returns text[]
language sql stable
as $$
  with p as materialized (
    select p.namespace, to_jsonb(p) as settings
      from leasehold.policy p
     where p.namespace = any (leasehold_internal.prefixes(p_namespace)))
  select array_agg(coalesce((select p.namespace
                               from p
                              where p.settings ->> c.name is not null
                              order by length(p.namespace) desc
                              limit 1), '')
                   order by c.place)
    from unnest(leasehold_internal.policy_columns()) with ordinality as c (name, place)
$$;

-- What a setting may be, in words. Locks nothing.
create or replace function leasehold_internal.policy_bound(p_column text) returns text
language sql immutable parallel safe
as $$
  select case
    when p_column in ('min_duration', 'max_duration') then '100 ms to 1000 years'
    when p_column in ('grace', 'max_hold', 'dead_after', 'hook_timeout', 'free_retention', 'history_retention')
      then '0 to 1000 years'
    when p_column in ('at_least', 'hand_over_grace') then '0 to 1 day'
    when p_column = 'max_priority' then '0 to 1000'
    when p_column = 'ageing' then '1 ms to 1 day'
    when p_column = 'capacity' then '1 to 1000000'
    when p_column = 'expiry' then 'takeover, reap or manual'
    when p_column = 'reaper' then 'auto or external'
    when p_column in ('frozen', 'history', 'end_at_max_hold') then 'true or false'
    when p_column in ('max_leases', 'max_waiters') then '0 to 999999999999999999'
    when p_column = 'max_reap_failures' then '0 to 999999999'
  end
$$;

-- A setting given as text, as the SQL literal to store; null when it is out of its bounds. Durations are microseconds.
-- Locks nothing. The intervals must read back as what they were written.
create or replace function leasehold_internal.policy_literal(p_column text, p_value text) returns text
language sql immutable
set intervalstyle = 'postgres'
as $$
  select case
    when p_column in ('min_duration', 'max_duration') then
      case when p_value ~ E'^\\d{6,17}$' and p_value::bigint between 100000 and 31557600000000000
           then quote_literal(leasehold_internal.from_us(p_value::bigint)::text) end
    when p_column in ('grace', 'max_hold', 'dead_after', 'hook_timeout', 'free_retention', 'history_retention') then
      case when p_value ~ E'^\\d{1,17}$' and p_value::bigint <= 31557600000000000
           then quote_literal(leasehold_internal.from_us(p_value::bigint)::text) end
    when p_column in ('at_least', 'hand_over_grace') then
      case when p_value ~ E'^\\d{1,17}$' and p_value::bigint <= 86400000000
           then quote_literal(leasehold_internal.from_us(p_value::bigint)::text) end
    when p_column = 'ageing' then
      case when p_value ~ E'^\\d{4,11}$' and p_value::bigint between 1000 and 86400000000
           then quote_literal(leasehold_internal.from_us(p_value::bigint)::text) end
    when p_column = 'max_priority' then case when p_value ~ E'^\\d{1,4}$' and p_value::integer <= 1000 then p_value end
    when p_column = 'expiry' then case when p_value in ('takeover', 'reap', 'manual') then quote_literal(p_value) end
    when p_column = 'reaper' then case when p_value in ('auto', 'external') then quote_literal(p_value) end
    when p_column in ('frozen', 'history', 'end_at_max_hold') then
      case when lower(p_value) in ('true', 'false', 't', 'f', 'on', 'off', '1', '0') then quote_literal(p_value) end
    when p_column in ('max_leases', 'max_waiters') then case when p_value ~ E'^\\d{1,18}$' then p_value end
    when p_column = 'capacity' then case when p_value ~ E'^\\d{1,7}$' and p_value::integer between 1 and 1000000 then p_value end
    when p_column = 'max_reap_failures' then case when p_value ~ E'^\\d{1,9}$' then p_value end
  end
$$;

-- A setting given as text, as people read it in the audit. Locks nothing.
create or replace function leasehold_internal.policy_words(p_column text, p_value text, p_namespace text) returns text
language sql immutable
set intervalstyle = 'postgres_verbose'
as $$
  select case
    when p_value is null then case when p_namespace = '' then 'default' else 'inherited' end
    when p_column in ('min_duration', 'max_duration', 'grace', 'max_hold', 'dead_after', 'hook_timeout', 'free_retention', 'history_retention', 'at_least',
                      'ageing', 'hand_over_grace')
      then ltrim(justify_hours(leasehold_internal.from_us(p_value::bigint))::text, '@ ')
    else lower(p_value) end
$$;

-- What keeps it from being a namespace, or '' for the root; null when nothing does. Locks nothing.
create or replace function leasehold_internal.subtree_problem(p_namespace text) returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
declare
  v_bound text := leasehold_internal.namespace_problem(p_namespace);
begin
  return case when p_namespace is distinct from '' and v_bound is not null
              then row('namespace', v_bound)::leasehold_internal.problem end;
end
$$;
