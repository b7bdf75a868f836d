-- The end of a hold: where the policy says end_at_max_hold, no renewal moves a deadline past acquired_at + max_hold, and the lease expires then as
-- any other does. The quick paths leave such namespaces alone (is_plain, core_rules, ending_in).

-- How long a lease may be held; null: for as long as it is renewed. Locks nothing.
create or replace function leasehold_internal.hold_limit(p_rules leasehold.rules) returns interval
language sql immutable
as $$
  select case when (p_rules).end_at_max_hold then (p_rules).max_hold end
$$;

-- Those of the given namespaces in which holds may have an end: a policy above one says so, though one nearer to it may say no. Locks nothing.
create or replace function leasehold_internal.ending_in(p_namespaces text[]) returns text[]
language sql stable
as $$
  select array(select distinct n
                 from unnest(p_namespaces) n
                where exists (select from leasehold.policy p where p.end_at_max_hold and leasehold_internal.covers(p.namespace, n)))
$$;

-- The rules of the namespaces of these scopes, where any policy ends a hold; else none. Locks nothing.
create or replace function leasehold_internal.ending_rules(p_namespaces text[]) returns leasehold.rules[]
language plpgsql stable
as $$
begin
  if not exists (select from leasehold.policy p where p.end_at_max_hold) then
    return '{}';
  end if;
  return array(select r from leasehold_internal.policies_of(array(select distinct n from unnest(p_namespaces) n where n is not null)) r);
end
$$;

-- The deadline after a renewal for `p_duration`. A renewal never takes back what the holder has been promised (the answer may get lost): where the
-- limit is newer than the hold, or the clock was set forward, the deadline stays where it is. Promise 9: in a new life of the database what the last
-- renewal gave counts from the start of that life. Nothing makes it later than a renewal without a limit would. Locks nothing.
create or replace function leasehold_internal.renewed_until(
  p_scope leasehold.scope, p_duration interval, p_limit interval, p_life leasehold.life_now, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select case when p_limit is null then p_now + p_duration
              else least(p_now + p_duration,
                         greatest((p_scope).acquired_at + p_limit,
                                  case when (p_scope).incarnation = (p_life).id or (p_scope).heartbeat_at between (p_life).started_at and p_now
                                       then (p_scope).deadline else (p_life).started_at + leasehold_internal.renewed_for(p_scope) end)) end
$$;

-- The same for a heartbeat; `p_rules` from ending_rules(). Locks nothing.
create or replace function leasehold_internal.next_deadline(
  p_scope leasehold.scope, p_rules leasehold.rules[], p_life leasehold.life_now, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select leasehold_internal.renewed_until(
           p_scope, (p_scope).duration,
           (select leasehold_internal.hold_limit(r) from unnest(p_rules) r where r.namespace = (p_scope).namespace), p_life, p_now)
$$;

-- What becomes of the outcome `expired`: max_hold, where the deadline was the end of the hold. It is earlier then than the last renewal + duration, and
-- no other is. Locks nothing.
create or replace function leasehold_internal.outcome_at_end(
  p_outcome text, p_deadline timestamptz, p_heartbeat_at timestamptz, p_duration interval)
returns text
language sql stable
as $$
  select case when p_outcome = 'expired' and p_deadline < p_heartbeat_at + p_duration then 'max_hold' else p_outcome end
$$;
