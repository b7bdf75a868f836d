-- The audit: who did what as an administrator, and what was denied.

-- Who it is that asks: the principal that a daemon names, else the role that is logged in. Only daemons are believed. Locks nothing.
create or replace function leasehold_internal.principal_of_call(p_by text) returns text
language sql stable
as $$
  select case when p_by is not null and pg_has_role(session_user, 'leasehold_coordinator', 'member') then p_by
              else 'role:' || session_user end
$$;

-- The same of the address. Locks nothing.
create or replace function leasehold_internal.peer_of_call(p_by text, p_peer text) returns text
language sql stable
as $$
  select case when p_by is not null and pg_has_role(session_user, 'leasehold_coordinator', 'member') then p_peer
              else host(inet_client_addr()) end
$$;

-- Write down what was done, in its transaction; also one line in the server's log. `p_by` and `p_peer` are the principal and the address
-- of a daemon's caller. Locks the audit ROW EXCLUSIVE.
create or replace function leasehold_internal.audit_add(
  p_by text, p_peer text, p_action text, p_namespace text, p_key text, p_token bigint, p_reason text, p_outcome text default 'done',
  p_count bigint default 1)
returns void
language plpgsql
as $$
declare
  v_principal constant text := left(leasehold_internal.principal_of_call(p_by), 1024);
  v_peer constant text := left(leasehold_internal.peer_of_call(p_by, p_peer), 255);
begin
  insert into leasehold.audit (at, principal, peer, action, namespace, key, token, reason, outcome, count)
  values (clock_timestamp(), v_principal, v_peer, p_action, coalesce(p_namespace, ''), p_key, p_token, left(p_reason, 8192),
          p_outcome, p_count);
  raise log 'audit action=% outcome=% principal=% peer=% namespace=% key=% token=% count=%: %', p_action, p_outcome, v_principal, v_peer,
    coalesce(p_namespace, ''), left(p_key, 128), p_token, p_count, left(p_reason, 256);
end
$$;

-- What a daemon has to write down: denials, and what it did without a function of ours.
create or replace function leasehold_internal.audit_write(
  p_principal text, p_peer text, p_action text, p_namespace text, p_key text, p_token bigint, p_reason text, p_outcome text,
  p_count bigint)
returns void
language plpgsql
security definer
as $$
begin
  perform leasehold_internal.audit_add(p_principal, p_peer, p_action, p_namespace, p_key, p_token, p_reason, p_outcome, p_count);
end
$$;
comment on function leasehold_internal.audit_write is 'Write down in the audit what a daemon''s caller did or was denied';

-- How long the audit is kept. Returns nothing. For members of leasehold_owner: an administrator does not shorten what is known of
-- administrators. Acts within seconds. Locks a row of leasehold.keeping.
create or replace function leasehold.set_audit_retention(retention interval) returns void
language plpgsql
security definer
as $$
begin
  if retention is null or retention < interval '0' or retention > interval '1000 years' then
    raise exception 'invalid_argument: retention must be 0 to 1000 years%', leasehold_internal.is_words(retention)
      using errcode = 'LH002', detail = 'retention', hint = '0 to 1000 years' || leasehold_internal.is_words(retention);
  end if;
  update leasehold.keeping k set retention = set_audit_retention.retention, look_at = clock_timestamp() where k.name = 'audit';
  perform leasehold_internal.audit_add(null, null, 'policy_set', '', null, null, format('audit_retention = %s', retention));
end
$$;
comment on function leasehold.set_audit_retention is
  'How long the audit is kept; by a member of leasehold_owner. Example:
  select leasehold.set_audit_retention(''400 days'')';

grant execute on function leasehold_internal.audit_write to leasehold_coordinator;
