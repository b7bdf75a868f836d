-- Requests to hand a lease over, for people and programs.

create or replace view leasehold.hand_over_request with (security_barrier) as
  select o.namespace, o.key, case when (select leasehold_internal.sees_tokens()) then o.token end as token, h.owner,
         o.asked_at, o.asked_by, o.principal, o.reason, o.answer_by,
         case when o.refused_at is not null then 'refused' when o.answer_by > l.now then 'open' else 'unanswered' end as state,
         o.refusal, o.refused_at
    from leasehold_internal.life_and_time() l
   cross join leasehold.hand_over o
    join (select s.namespace, s.key, s.token, s.owner from leasehold.scope s where s.state = 'held' and not s.lapsed
           union all
          select x.namespace, x.key, x.token, x.owner from leasehold.share x where x.state = 'held' and not x.lapsed) h
      on h.namespace = o.namespace and h.key = o.key and h.token = o.token
   where coalesce((o.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false);
comment on view leasehold.hand_over_request is 'Holders who were asked to hand their lease over';
comment on column leasehold.hand_over_request.namespace is 'Dotted: payments.invoices';
comment on column leasehold.hand_over_request.key is 'The name inside of the namespace';
comment on column leasehold.hand_over_request.token is 'Fencing token of the lease; null as in leasehold.lease';
comment on column leasehold.hand_over_request.owner is 'The holder, in its own words';
comment on column leasehold.hand_over_request.asked_at is 'When it was asked last';
comment on column leasehold.hand_over_request.asked_by is 'Who asked, in its own words';
comment on column leasehold.hand_over_request.principal is 'Who asked, as proved';
comment on column leasehold.hand_over_request.reason is 'Why, in the asker''s words';
comment on column leasehold.hand_over_request.answer_by is 'asked_at + hand_over_grace';
comment on column leasehold.hand_over_request.state is 'open; refused; unanswered: answer_by has passed, and the lease is still held';
comment on column leasehold.hand_over_request.refusal is 'Why the holder refused; null: it did not';
comment on column leasehold.hand_over_request.refused_at is 'When it refused';
grant select on leasehold.hand_over_request to leasehold_reader, leasehold_coordinator, leasehold_admin;
-- Lease keys are in it.
grant select on leasehold.hand_over to leasehold_admin;

-- Ask the holders of a scope to hand it over, as a waiter of its queue or, without a lease key, as an administrator. Returns a row for each
-- holder, none where nobody holds it. Locks what ask_holders() does.
create or replace function leasehold.ask_hand_over(
  namespace text, key text, lease_key uuid default null, reason text default '', token bigint default null)
returns setof leasehold.hand_over_request
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_denial text := case when ask_hand_over.lease_key is not null then leasehold_internal.denial('lease', ask_hand_over.namespace)
                        else leasehold_internal.denial('admin', ask_hand_over.namespace) end;
  v_waiter leasehold.waiter;
  v_problem leasehold_internal.problem := leasehold_internal.ask_problem(
                                             ask_hand_over.namespace, ask_hand_over.key, ask_hand_over.reason, ask_hand_over.token);
  v_role constant name := coalesce(nullif(current_setting('role'), 'none'), session_user::text)::name;
  v_tokens bigint[];
begin
  if v_denial is null and ask_hand_over.lease_key is null and not leasehold_internal.rules_name_roles()
     and not pg_has_role(v_role, 'leasehold_admin', 'member') then
    v_denial := format('access_denied: role:%s needs the role leasehold_admin, or the lease key of a waiter', v_role);
  end if;
  if v_problem.field is null and v_denial is null and ask_hand_over.lease_key is not null then
    v_waiter := leasehold_internal.waiter_of(ask_hand_over.namespace, ask_hand_over.key, ask_hand_over.lease_key);
    if v_waiter.lease_key is null then
      v_problem := row('lease_key', 'that of a waiter in the queue of this scope');
    end if;
  end if;
  {{checked.text}}
  if v_waiter.lease_key is null then
    perform leasehold_internal.audit_add(null, null, 'ask_hand_over', ask_hand_over.namespace, ask_hand_over.key, ask_hand_over.token, ask_hand_over.reason);
  end if;
  v_tokens := array(
    select a.token
      from leasehold_internal.ask_holders(
             ask_hand_over.namespace, ask_hand_over.key, ask_hand_over.token, ask_hand_over.lease_key,
             coalesce(v_waiter.owner, 'role:' || session_user), coalesce(v_waiter.principal, 'role:' || session_user), ask_hand_over.reason, false) a);
  return query
    select r.namespace, r.key, case when leasehold_internal.may_read_tokens() then r.token end, r.owner, r.asked_at, r.asked_by, r.principal, r.reason,
           r.answer_by, r.state, r.refusal, r.refused_at
      from leasehold.hand_over_request r
     where r.namespace = ask_hand_over.namespace and r.key = ask_hand_over.key and r.token = any (v_tokens)
     order by r.token;
end
$$;
comment on function leasehold.ask_hand_over is
  'Ask the holders of a scope to hand it over: a row for each. Example:
  select owner, state, answer_by from leasehold.ask_hand_over(''jobs'', ''nightly'', reason => ''its host is drained'')';

-- Refuse to hand a lease over, as its holder. Returns false where nobody asked, or it is not held. Locks the request's row.
create or replace function leasehold.refuse_hand_over(namespace text, key text, lease_key uuid, reason text) returns boolean
language plpgsql
security definer
as $$
declare
  v_denial text := leasehold_internal.denial('lease', refuse_hand_over.namespace);
  v_problem leasehold_internal.problem := leasehold_internal.refusal_problem(
                                             refuse_hand_over.namespace, refuse_hand_over.key, refuse_hand_over.lease_key, refuse_hand_over.reason);
begin
  {{checked.text}}
  return leasehold_internal.refuse_one(
           refuse_hand_over.namespace, refuse_hand_over.key, refuse_hand_over.lease_key, refuse_hand_over.reason) = 'refused';
end
$$;
comment on function leasehold.refuse_hand_over is
  'Refuse to hand a lease over, as its holder: false where nobody asked. Example:
  select leasehold.refuse_hand_over(''jobs'', ''nightly'', :''lease_key'', ''done in a minute'')';

-- The open requests of leases that are held under these lease keys: what a holder asks after each renewal. Locks nothing.
create or replace function leasehold.asked(lease_keys uuid[])
returns table (
  namespace text, key text, lease_key uuid, token bigint, asked_at timestamptz, asked_by text, principal text, reason text, answer_by timestamptz,
  answer_in interval)
language plpgsql stable
security definer
as $$
#variable_conflict use_column
declare
  v_problem leasehold_internal.problem;
begin
  if asked.lease_keys is null or cardinality(asked.lease_keys) > 10000 then
    v_problem := row('lease_keys', 'at most 10000, ' || coalesce('has ' || cardinality(asked.lease_keys), 'is null'));
  end if;
  {{refused.text}}
  return query
    select o.namespace, o.key, o.lease_key, o.token, o.asked_at, o.asked_by, o.principal, o.reason, o.answer_by,
           greatest(o.answer_by - clock_timestamp(), interval '0')
      from leasehold.hand_over o
     where o.lease_key = any (asked.lease_keys) and o.refused_at is null and leasehold_internal.is_asked_still(o)
       and (not (select a.names_roles from leasehold.access_state a) or leasehold_internal.session_may('lease', o.namespace))
     order by o.asked_at;
end
$$;
comment on function leasehold.asked is
  'Open requests to hand over leases that are held under these lease keys. Example:
  select key, asked_by, reason, answer_in from leasehold.asked(array[:''lease_key''::uuid])';

-- One line about the requests of a scope, for explain(); null: there is none. Locks nothing.
create or replace function leasehold_internal.hand_over_text(p_namespace text, p_key text, p_now timestamptz) returns text
language sql stable
as $$
  select format('; asked to hand over by %s %s ago: %s', coalesce(nullif(o.asked_by, ''), 'somebody'),
                leasehold_internal.duration_text(p_now - o.asked_at),
                case leasehold_internal.hand_over_state(o.answer_by, o.refused_at, p_now)
                  when 'refused' then 'refused, ' || left(o.refusal, 256)
                  when 'open' then format('no answer yet, it has %s left', leasehold_internal.duration_text(o.answer_by - p_now))
                  else 'not answered' end)
    from leasehold.hand_over o
   where o.namespace = p_namespace and o.key = p_key and leasehold_internal.is_asked_still(o)
   order by o.asked_at desc
   limit 1
$$;

-- For a daemon: ask the holders of a scope for its caller, settings by name as in schedule_daemon.sql: key, lease_key, token, owner, reason. Returns the
-- holders, the oldest first, with their requests; none where nobody holds it. Waits for no longer than a second. Locks what ask_holders() does.
create or replace function leasehold_internal.hand_over_ask_by(p_by text, p_peer text, p_namespace text, p_names text[], p_values text[])
returns table (
  namespace text, key text, token bigint, owner text, holder_principal text, duration bigint, remaining bigint, deadline timestamptz,
  acquired_at timestamptz, heartbeats bigint, heartbeat_at timestamptz, liveness text, grace bigint, mode text, units integer,
  asked_at timestamptz, asked_by text, principal text, reason text, answer_by timestamptz, answer_in bigint, refusal text)
language plpgsql
security definer
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_key constant text := leasehold_internal.setting_of(p_names, p_values, 'key');
  v_asker constant uuid := leasehold_internal.setting_of(p_names, p_values, 'lease_key')::uuid;
  v_token constant bigint := leasehold_internal.setting_of(p_names, p_values, 'token')::bigint;
  v_reason constant text := coalesce(leasehold_internal.setting_of(p_names, p_values, 'reason'), '');
  v_waiter leasehold.waiter;
  v_asked leasehold.hand_over[];
  v_now timestamptz;
begin
  perform leasehold_internal.refuse(leasehold_internal.ask_problem(p_namespace, v_key, v_reason, v_token));
  if v_asker is null then
    perform leasehold_internal.audit_add(p_by, p_peer, 'ask_hand_over', p_namespace, v_key, v_token, v_reason);
  else
    v_waiter := leasehold_internal.waiter_of(p_namespace, v_key, v_asker);
    if v_waiter.lease_key is null then
      perform leasehold_internal.refuse(row('lease_key', 'that of a waiter in the queue of this scope'));
    end if;
  end if;
  v_asked := array(
    select a
      from leasehold_internal.ask_holders(
             p_namespace, v_key, v_token, v_asker,
             coalesce(leasehold_internal.setting_of(p_names, p_values, 'owner'), v_waiter.owner, leasehold_internal.principal_of_call(p_by)),
             leasehold_internal.principal_of_call(p_by), v_reason, false) a);
  v_now := clock_timestamp();
  return query
    select t.namespace, t.key, t.token, t.owner, t.principal, t.duration_us, t.remaining_us, t.deadline, t.acquired_at, t.heartbeats, t.heartbeat_at,
           t.liveness, t.grace_us, t.mode, t.units,
           a.asked_at, a.asked_by, a.principal, a.reason, a.answer_by, leasehold_internal.to_us(greatest(a.answer_by - v_now, interval '0')), a.refusal
      from leasehold_internal.get_holders(p_namespace, v_key, 1000) t
      join unnest(v_asked) a on a.token = t.token
     order by t.acquired_at, t.token;
end
$$;
comment on function leasehold_internal.hand_over_ask_by is 'Ask the holders of a scope to hand it over, by a coordinator';

-- For a daemon: refuse for its caller. Returns the outcome of refuse_one() and the request. Waits for no longer than a second. Locks what refuse_one() does.
create or replace function leasehold_internal.hand_over_refuse_by(p_by text, p_peer text, p_namespace text, p_names text[], p_values text[])
returns table (
  outcome text, asked_at timestamptz, asked_by text, principal text, reason text, answer_by timestamptz, answer_in bigint, refusal text)
language plpgsql
security definer
set lock_timeout = '1s'
as $$
#variable_conflict use_column
declare
  v_key constant text := leasehold_internal.setting_of(p_names, p_values, 'key');
  v_lease_key constant uuid := leasehold_internal.setting_of(p_names, p_values, 'lease_key')::uuid;
  v_reason constant text := leasehold_internal.setting_of(p_names, p_values, 'reason');
begin
  perform leasehold_internal.refuse(leasehold_internal.refusal_problem(p_namespace, v_key, v_lease_key, v_reason));
  outcome := leasehold_internal.refuse_one(p_namespace, v_key, v_lease_key, v_reason);
  if outcome <> 'refused' then
    return next;
    return;
  end if;
  return query
    select 'refused', o.asked_at, o.asked_by, o.principal, o.reason, o.answer_by,
           leasehold_internal.to_us(greatest(o.answer_by - clock_timestamp(), interval '0')), o.refusal
      from leasehold.hand_over o
     where o.namespace = p_namespace and o.key = v_key and o.lease_key = v_lease_key and leasehold_internal.is_asked_still(o);
end
$$;
comment on function leasehold_internal.hand_over_refuse_by is 'Refuse to hand a lease over, by a coordinator';

-- For a daemon's waiters that asked for it: ask each holder that they wait behind, once; in the words of the waiter's row. Once a second, so nearly always
-- there is nothing to do. Waits for nobody longer than 50 ms, and leaves the rest to the next time then. Locks what ask_holders() does.
create or replace function leasehold_internal.hand_over_ask_all(p_namespaces text[], p_keys text[], p_lease_keys uuid[]) returns void
language plpgsql
security definer
set lock_timeout = '50ms'
as $$
declare
  v_waiter leasehold.waiter;
begin
  for v_waiter in
    select w.*
      from unnest(p_namespaces, p_keys, p_lease_keys) u (namespace, key, lease_key)
      join leasehold.waiter w
        on w.lease_key = u.lease_key and w.namespace = u.namespace and w.key = u.key
     where exists (select
                     from (select s.token from leasehold.scope s where s.namespace = u.namespace and s.key = u.key and s.state = 'held' and not s.lapsed
                            union all
                           select x.token from leasehold.share x where x.namespace = u.namespace and x.key = u.key and x.state = 'held' and not x.lapsed) h
                    where not exists (select
                                        from leasehold.hand_over o
                                       where o.namespace = u.namespace and o.key = u.key and o.token = h.token
                                         and (o.answer_by > clock_timestamp() or o.asker = u.lease_key)))
     order by w.namespace, w.key, w.ticket
  loop
    perform leasehold_internal.ask_holders(
              v_waiter.namespace, v_waiter.key, null, v_waiter.lease_key, coalesce(v_waiter.owner, ''), coalesce(v_waiter.principal, ''), '', true);
  end loop;
exception when lock_not_available or deadlock_detected then
  null;
end
$$;
comment on function leasehold_internal.hand_over_ask_all is 'Ask the holders before waiters of a coordinator to hand over';

-- All requests, for a daemon's memory, the newest 10,000: first a row with a fingerprint alone; the others follow where it is not `p_known`. Those of ended
-- leases are among them until they are swept: their tokens are nobody's. Locks nothing.
create or replace function leasehold_internal.hand_overs(p_known bigint)
returns table (
  fingerprint bigint, namespace text, key text, token bigint, lease_key uuid, asked_at timestamptz, asked_by text, principal text, reason text,
  answer_by timestamptz, refusal text)
language plpgsql stable
security definer
as $$
#variable_conflict use_column
begin
  select coalesce(sum(hashtextextended(format('%s %s %s %s %s', o.namespace, o.key, o.token, o.asked_at, o.refused_at), 0)), 0)::numeric % 9000000000000000000
    into fingerprint
    from leasehold.hand_over o;
  return next;
  if fingerprint is distinct from p_known then
    return query
      select null::bigint, o.namespace, o.key, o.token, o.lease_key, o.asked_at, o.asked_by, o.principal, o.reason, o.answer_by, o.refusal
        from leasehold.hand_over o
       order by o.asked_at desc
       limit 10000;
  end if;
end
$$;
comment on function leasehold_internal.hand_overs is 'All requests to hand a lease over, for a coordinator';

-- How many requests are open, refused and unanswered. Locks nothing.
create or replace function leasehold_internal.survey_hand_overs(out open bigint, out refused bigint, out unanswered bigint)
language sql stable
security definer
as $$
  select count(*) filter (where x.state = 'open'), count(*) filter (where x.state = 'refused'), count(*) filter (where x.state = 'unanswered')
    from (select leasehold_internal.hand_over_state(o.answer_by, o.refused_at, clock_timestamp()) as state
            from leasehold.hand_over o
           where leasehold_internal.is_asked_still(o)) x
$$;
comment on function leasehold_internal.survey_hand_overs is 'How many requests to hand over are open, refused and unanswered';

grant execute on function leasehold.ask_hand_over, leasehold.refuse_hand_over, leasehold.asked to leasehold_client, leasehold_admin;
grant execute on function leasehold_internal.hand_over_ask_by, leasehold_internal.hand_over_refuse_by, leasehold_internal.hand_over_ask_all,
  leasehold_internal.hand_overs, leasehold_internal.survey_hand_overs
  to leasehold_coordinator;
