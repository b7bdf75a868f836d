-- Requests to hand a lease over, as they are written and read. A holder has one at most, under its token: it ends with the lease, and who asks
-- later joins it. Nothing of this is on the paths of acquire, renewal and release.

-- Does this lease still hold its scope? Locks nothing.
create or replace function leasehold_internal.is_asked_still(p_asked leasehold.hand_over) returns boolean
language sql stable
as $$
  select exists (select
                   from leasehold.scope s
                  where s.namespace = (p_asked).namespace and s.key = (p_asked).key and s.token = (p_asked).token and s.state = 'held' and not s.lapsed)
         or exists (select
                      from leasehold.share h
                     where h.namespace = (p_asked).namespace and h.key = (p_asked).key and h.lease_key = (p_asked).lease_key
                       and h.token = (p_asked).token and h.state = 'held' and not h.lapsed)
$$;

-- How it stands with a request: open, refused or unanswered. Locks nothing.
create or replace function leasehold_internal.hand_over_state(p_answer_by timestamptz, p_refused_at timestamptz, p_now timestamptz) returns text
language sql immutable
as $$
  select case when p_refused_at is not null then 'refused' when p_answer_by > p_now then 'open' else 'unanswered' end
$$;

-- Let all live daemons read the requests again. Locks nothing.
create or replace function leasehold_internal.tell_asked(p_now timestamptz) returns void
language sql volatile
as $$
  select pg_notify(leasehold_internal.channel_of(c, null), 'asked') from unnest(leasehold_internal.live_coordinators(p_now)) c
$$;

-- Ask the holders of a scope, with this token (null: all of them), but not `p_asker`. One who has a request keeps it until its answer_by; it is a new one
-- after that, or where it was asked by a clock that has stepped back since, with `p_is_once` where another waiter asked. Returns the requests of all of them, none where nobody holds it. Locks the rows that
-- it writes, and those of ended leases, which it deletes.
create or replace function leasehold_internal.ask_holders(
  p_namespace text, p_key text, p_token bigint, p_asker uuid, p_asked_by text, p_principal text, p_reason text, p_is_once boolean)
returns setof leasehold.hand_over
language plpgsql
as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_count integer;
begin
  delete from leasehold.hand_over o
   where (o.namespace, o.key, o.token) in (
           select x.namespace, x.key, x.token
             from leasehold.hand_over x
            where x.namespace = p_namespace and x.key = p_key and not leasehold_internal.is_asked_still(x)
              for update skip locked);
  insert into leasehold.hand_over as o (namespace, key, token, lease_key, asked_at, asked_by, principal, reason, answer_by, asker)
  select p_namespace, p_key, h.token, h.lease_key, v_now, p_asked_by, p_principal, p_reason,
         v_now + leasehold_internal.hand_over_grace_of(p_namespace), p_asker
    from (select s.token, s.lease_key from leasehold.scope s where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and not s.lapsed
           union all
          select x.token, x.lease_key from leasehold.share x where x.namespace = p_namespace and x.key = p_key and x.state = 'held' and not x.lapsed) h
   where h.lease_key is distinct from p_asker and (p_token is null or h.token = p_token)
   order by h.token
      on conflict (namespace, key, token) do update
     set asked_at = excluded.asked_at,
         asked_by = excluded.asked_by,
         principal = excluded.principal,
         reason = excluded.reason,
         answer_by = excluded.answer_by,
         asker = excluded.asker,
         refusal = null,
         refused_at = null
   where (o.answer_by <= v_now or o.asked_at > v_now + interval '1 s') and not (p_is_once and o.asker is not distinct from p_asker);
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform leasehold_internal.tell_asked(v_now);
  end if;
  return query
    select o.*
      from leasehold.hand_over o
     where o.namespace = p_namespace and o.key = p_key and (p_token is null or o.token = p_token) and o.lease_key is distinct from p_asker
       and leasehold_internal.is_asked_still(o)
     order by o.token;
end
$$;

-- Refuse, as the holder with this lease key. Returns refused, not_asked or not_held. The first words stay. Locks the request's row.
create or replace function leasehold_internal.refuse_one(p_namespace text, p_key text, p_lease_key uuid, p_reason text) returns text
language plpgsql
as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  if not exists (select from leasehold.scope s
                  where s.namespace = p_namespace and s.key = p_key and s.lease_key = p_lease_key and s.state = 'held' and not s.lapsed)
     and not exists (select from leasehold.share h
                      where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state = 'held' and not h.lapsed) then
    return 'not_held';
  end if;
  update leasehold.hand_over o
     set refusal = coalesce(o.refusal, p_reason),
         refused_at = coalesce(o.refused_at, v_now)
   where o.namespace = p_namespace and o.key = p_key and o.lease_key = p_lease_key and leasehold_internal.is_asked_still(o);
  if not found then
    return 'not_asked';
  end if;
  perform leasehold_internal.tell_asked(v_now);
  return 'refused';
end
$$;

-- Delete requests whose leases have ended. Locks their rows, skipping those that others have.
create or replace function leasehold_internal.forget_hand_overs() returns void
language plpgsql
as $$
begin
  if exists (select from leasehold.hand_over) then
    delete from leasehold.hand_over o
     where (o.namespace, o.key, o.token) in (
             select x.namespace, x.key, x.token
               from leasehold.hand_over x
              where not leasehold_internal.is_asked_still(x)
                for update skip locked);
  end if;
end
$$;

-- What is wrong with a request, or with the words of a refusal; null when nothing is. Lock nothing.
create or replace function leasehold_internal.ask_problem(p_namespace text, p_key text, p_reason text, p_token bigint)
returns leasehold_internal.problem
language plpgsql immutable
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.scope_problem(p_namespace, p_key);
begin
  return case
    when v_problem.field is not null then v_problem
    when p_reason is null or octet_length(p_reason) > 1024
      then row('reason', '0 to 1024 bytes, ' || coalesce('has ' || octet_length(p_reason), 'is null'))::leasehold_internal.problem
    when p_token <= 0 then row('token', '1 or more, or null for all holders, is ' || p_token)::leasehold_internal.problem end;
end
$$;

create or replace function leasehold_internal.refusal_problem(p_namespace text, p_key text, p_lease_key uuid, p_reason text)
returns leasehold_internal.problem
language plpgsql immutable
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.holder_problem(p_namespace, p_key, p_lease_key);
begin
  return case
    when v_problem.field is not null then v_problem
    when coalesce(p_reason, '') = '' or octet_length(p_reason) > 1024
      then row('reason', '1 to 1024 bytes, has ' || coalesce(octet_length(p_reason), 0))::leasehold_internal.problem end;
end
$$;

-- The waiter who asks, or null where it does not wait in this queue. Locks nothing.
create or replace function leasehold_internal.waiter_of(p_namespace text, p_key text, p_lease_key uuid) returns leasehold.waiter
language sql stable
as $$
  select w
    from leasehold.waiter w
   where w.namespace = p_namespace and w.key = p_key and w.lease_key = p_lease_key and (w.wait_until is null or w.wait_until > clock_timestamp())
$$;
