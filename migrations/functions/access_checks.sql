-- What a role may do, once a rule names one. The role is the one that is logged in, with its memberships: SET ROLE changes nothing.

-- Does any rule name a role? As long as none does, every role may do what it is granted in SQL. Locks nothing.
create or replace function leasehold_internal.rules_name_roles() returns boolean
language plpgsql stable
security definer
as $$
begin
  return a.names_roles from leasehold.access_state a;
end
$$;

-- Do no rules bind the session? Superusers are members of every role. Locks nothing.
create or replace function leasehold_internal.is_above_rules() returns boolean
language sql stable
as $$
  select pg_has_role(session_user, 'leasehold_admin', 'member') or pg_has_role(session_user, 'leasehold_coordinator', 'member')
         or pg_has_role(session_user, 'leasehold_owner', 'member')
$$;

-- The principals of the session's role, and of those that it is a member of. Locks nothing.
create or replace function leasehold_internal.session_principals() returns text[]
language sql stable
as $$
  with recursive r as (
    select g.oid from pg_roles g where g.rolname = session_user
    union
    select m.roleid from r join pg_auth_members m on m.member = r.oid)
  select array(
    select 'role:' || g.rolname::text
      from pg_roles g
     where g.oid in (select r.oid from r)
        -- The only membership that is written nowhere.
        or (g.rolname = 'pg_database_owner' and pg_has_role(session_user, g.oid, 'member')))
$$;

-- Is one of these what a rule's pattern begins with? Locks nothing.
create or replace function leasehold_internal.fits_pattern(p_pattern text, p_principals text[]) returns boolean
language sql immutable parallel safe
as $$
  select exists (select from unnest(p_principals) p (principal) where starts_with(p.principal, left(p_pattern, -1)))
$$;

-- Has the session a right in a namespace, or above it? Whole principals are found by the primary key, patterns by an index of their own, so
-- that thousands of rules cost a call nothing. Locks nothing.
create or replace function leasehold_internal.session_may(p_right text, p_namespace text) returns boolean
language plpgsql stable
{{few.settings}}
as $$
declare
  v_rights constant text[] := case when p_right in ('read', 'lease') then array[p_right, 'admin'] else array[p_right] end;
  v_namespaces text[];
  v_principals text[];
begin
  if leasehold_internal.is_above_rules() then
    return true;
  end if;
  v_namespaces := leasehold_internal.prefixes(p_namespace);
  v_principals := leasehold_internal.session_principals();
  return exists (select from leasehold.access_rule r
                  where r.principal = any (v_principals) and r.namespace = any (v_namespaces) and r.rights && v_rights)
         or exists (select from leasehold.access_rule r
                     where right(r.principal, 1) = '*' and r.namespace = any (v_namespaces) and r.rights && v_rights
                       and leasehold_internal.fits_pattern(r.principal, v_principals));
end
$$;

-- Why the session may not do what needs this right in a namespace; null: it may. What is no namespace its caller refuses. The server's log
-- gets a line, which stays where the caller of the API catches the error; the audit gets nothing, for the error undoes what would be
-- written. A snapshot that cannot see the rules of today is turned away (40001), but where something is only read. Locks nothing.
create or replace function leasehold_internal.denial(p_right text, p_namespace text) returns text
language plpgsql stable
as $$
begin
  if p_right <> 'read' then
    perform leasehold_internal.check_rule_marks();
  end if;
  if not (select a.names_roles from leasehold.access_state a)
     or leasehold_internal.namespace_problem(p_namespace) is not null
     or leasehold_internal.session_may(p_right, p_namespace) then
    return null;
  end if;
  raise log 'access denied principal=role:% right=% namespace=%', session_user, p_right, p_namespace;
  return format('access_denied: role:%s needs the right %s in %s or above', session_user, p_right, p_namespace);
end
$$;

-- The namespaces in which the session has the right to read by a rule. Locks nothing.
create or replace function leasehold_internal.read_by_session() returns text[]
language plpgsql stable
{{few.settings}}
as $$
declare
  v_principals constant text[] := leasehold_internal.session_principals();
begin
  return array(select r.namespace
                 from leasehold.access_rule r
                where r.principal = any (v_principals) and r.rights && array['read', 'admin']
               union
               select r.namespace
                 from leasehold.access_rule r
                where right(r.principal, 1) = '*' and r.rights && array['read', 'admin']
                  and leasehold_internal.fits_pattern(r.principal, v_principals));
end
$$;

-- What readable() says of the session, whatever role asks. Locks nothing.
create or replace function leasehold_internal.readable_by_session() returns text[]
language plpgsql stable
security definer
as $$
begin
  if not (select a.names_roles from leasehold.access_state a) or leasehold_internal.is_above_rules() then
    return array['%'];
  end if;
  return array(select case when n = '' then '%' else regexp_replace(n, E'([\\\\%_])', E'\\\\\\1', 'g') || '.%' end
                 from unnest(leasehold_internal.read_by_session()) n);
end
$$;

-- Which namespaces the session may read, as patterns of LIKE for a namespace with a dot after it. For the views and the policies of row
-- security, which ask once for a query; in functions of the API the answer is everything. Locks nothing.
create or replace function leasehold_internal.readable() returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return case when pg_has_role('leasehold_owner', 'member') then array['%'] else leasehold_internal.readable_by_session() end;
end
$$;

-- The namespaces above those, whose policies are in force in them. Locks nothing.
create or replace function leasehold_internal.above_readable() returns text[]
language plpgsql stable
security definer
as $$
begin
  return array(select distinct p
                 from unnest(leasehold_internal.read_by_session()) n
                cross join lateral unnest(leasehold_internal.prefixes(n)) p);
end
$$;

-- Row security where people read tables. It needs a lock that readers wait for, so only where it is missing.
do $$
declare
  v_table text;
begin
  foreach v_table in array array['policy', 'history', 'audit', 'watch', 'spread'] loop
    continue when exists (select from pg_catalog.pg_policy p
                           where p.polrelid = format('leasehold.%I', v_table)::regclass and p.polname = 'readable');
    execute format($q$
      create policy readable on leasehold.%I for select
       using ((namespace || '.') like any ((select leasehold_internal.readable())::text[]) %s) $q$,
      v_table, case when v_table in ('policy', 'spread') then 'or namespace = any ((select leasehold_internal.above_readable())::text[])' else '' end);
    execute format('alter table leasehold.%I enable row level security', v_table);
  end loop;
end
$$;

grant execute on function leasehold_internal.rules_name_roles, leasehold_internal.readable, leasehold_internal.readable_by_session,
  leasehold_internal.above_readable to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
