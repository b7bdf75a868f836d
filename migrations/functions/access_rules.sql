-- Rules: what a principal may do in a namespace and in all below it.

-- What is wrong with a rule; null when nothing is. Locks nothing.
create or replace function leasehold_internal.rule_problem(p_principal text, p_namespace text, p_rights text[])
returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
begin
  return case
    when coalesce(octet_length(p_principal), 0) not between 1 and 1024 or p_principal ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then
      row('principal', '1 to 1024 bytes without control characters')::leasehold_internal.problem
    when position('*' in left(p_principal, -1)) > 0 then
      row('principal', 'a principal, or the beginning of one with * after it')::leasehold_internal.problem
    when (leasehold_internal.subtree_problem(p_namespace)).field is not null then leasehold_internal.subtree_problem(p_namespace)
    when p_rights is null or array_position(p_rights, null) is not null or not p_rights <@ array['admin', 'guard', 'lease', 'read'] then
      row('rights', 'of admin, guard, lease and read')::leasehold_internal.problem
  end;
end
$$;

-- Tell daemons and the SQL API that rules or tokens have changed: daemons look once a second. Locks access_state's row until the end of the transaction.
create or replace function leasehold_internal.access_changed() returns void
language sql volatile
as $$
  update leasehold.access_state
     set version = version + 1,
         names_roles = exists (select from leasehold.access_rule r where r.principal >= 'role:' and r.principal < 'role;');
  select setval('leasehold.access_mark', pg_current_xact_id()::text::bigint)
$$;

-- Give a principal rights in a namespace, besides those that it has there. Returns whether any is new. Locks the rule's row and what
-- access_changed() does.
create or replace function leasehold_internal.grant_rights(p_by text, p_peer text, p_principal text, p_namespace text, p_rights text[])
returns boolean
language plpgsql
as $$
begin
  insert into leasehold.access_rule as r (principal, namespace, rights, created_at, created_by)
  values (p_principal, p_namespace, array(select distinct u from unnest(p_rights) u order by u), clock_timestamp(),
          leasehold_internal.principal_of_call(p_by))
      on conflict (principal, namespace) do update
     set rights = array(select distinct u from unnest(r.rights || excluded.rights) u order by u)
   where not r.rights @> excluded.rights;
  if not found then
    return false;
  end if;
  perform leasehold_internal.access_changed();
  perform leasehold_internal.audit_add(p_by, p_peer, 'access_grant', p_namespace, null, null,
                                       p_principal || ': ' || array_to_string(p_rights, ', '));
  return true;
end
$$;

-- Take rights from a principal in a namespace; '{}': the whole rule. Returns whether it had any of them there. Locks the same.
create or replace function leasehold_internal.revoke_rights(p_by text, p_peer text, p_principal text, p_namespace text, p_rights text[])
returns boolean
language plpgsql
as $$
declare
  v_had text[];
  v_left text[];
begin
  select r.rights into v_had
    from leasehold.access_rule r
   where r.principal = p_principal and r.namespace = p_namespace
     for update;
  if not found or (p_rights <> '{}' and not v_had && p_rights) then
    return false;
  end if;
  v_left := array(select u from unnest(v_had) u where p_rights <> '{}' and u <> all (p_rights) order by u);
  if v_left = '{}' then
    delete from leasehold.access_rule r where r.principal = p_principal and r.namespace = p_namespace;
  else
    update leasehold.access_rule r set rights = v_left where r.principal = p_principal and r.namespace = p_namespace;
  end if;
  perform leasehold_internal.access_changed();
  perform leasehold_internal.audit_add(p_by, p_peer, 'access_revoke', p_namespace, null, null,
                                       p_principal || ': ' || array_to_string(case when p_rights = '{}' then v_had else p_rights end, ', '));
  return true;
end
$$;

-- Give a principal rights in a namespace ('' is all) and all below it. Returns whether any is new. Daemons obey within a second.
-- Locks what grant_rights() does.
create or replace function leasehold.access_grant(principal text, namespace text, variadic rights text[]) returns boolean
language plpgsql
security definer
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.rule_problem(principal, namespace, rights);
begin
  if v_problem.field is null and rights = '{}' then
    v_problem := row('rights', 'of admin, guard, lease and read');
  end if;
  {{refused.text}}
  return leasehold_internal.grant_rights(null, null, principal, namespace, rights);
end
$$;
comment on function leasehold.access_grant is
  'Give a principal rights (read, lease, guard, admin) in a namespace and all below it: whether any is new. Example:
  select leasehold.access_grant(''token:ci'', ''jobs'', ''read'', ''lease'')';

-- The opposite; where no right is named, the whole rule goes. Returns whether the principal had any of them by this rule.
create or replace function leasehold.access_revoke(principal text, namespace text, variadic rights text[] default '{}') returns boolean
language plpgsql
security definer
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.rule_problem(principal, namespace, rights);
begin
  {{refused.text}}
  return leasehold_internal.revoke_rights(null, null, principal, namespace, rights);
end
$$;
comment on function leasehold.access_revoke is
  'Take rights from a principal in a namespace, or all where none is named: whether it had any by this rule. Example:
  select leasehold.access_revoke(''token:ci'', ''jobs'', ''lease'')';

-- Both for a daemon: `p_by` and `p_peer` are its caller's principal and address. They return the rule as it is then, or no row where none is
-- left. They wait for no longer than a second: a daemon sends its signs of life over the same connection.
create or replace function leasehold_internal.access_grant_by(p_by text, p_peer text, p_principal text, p_namespace text, p_rights text[])
returns setof leasehold.access_rule
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.rule_problem(p_principal, p_namespace, nullif(p_rights, '{}')));
  perform leasehold_internal.grant_rights(p_by, p_peer, p_principal, p_namespace, p_rights);
  return query select r.* from leasehold.access_rule r where r.principal = p_principal and r.namespace = p_namespace;
end
$$;
comment on function leasehold_internal.access_grant_by is 'Give a principal rights in a namespace, by a coordinator';

create or replace function leasehold_internal.access_revoke_by(p_by text, p_peer text, p_principal text, p_namespace text, p_rights text[])
returns setof leasehold.access_rule
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.rule_problem(p_principal, p_namespace, p_rights));
  perform leasehold_internal.revoke_rights(p_by, p_peer, p_principal, p_namespace, p_rights);
  return query select r.* from leasehold.access_rule r where r.principal = p_principal and r.namespace = p_namespace;
end
$$;
comment on function leasehold_internal.access_revoke_by is 'Take rights from a principal in a namespace, by a coordinator';

-- All rules, for a daemon. Locks nothing.
create or replace function leasehold_internal.access_rules() returns table (principal text, namespace text, rights text[])
language sql stable
security definer
as $$
  select r.principal, r.namespace, r.rights from leasehold.access_rule r order by r.principal, r.namespace
$$;
comment on function leasehold_internal.access_rules is 'What each principal may do, as a coordinator reads it';

grant execute on function leasehold.access_grant, leasehold.access_revoke to leasehold_admin;
grant execute on function leasehold_internal.access_grant_by, leasehold_internal.access_revoke_by, leasehold_internal.access_rules
  to leasehold_coordinator;
