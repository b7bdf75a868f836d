-- Rules and tokens a page at a time, for administrators who ask a daemon. SQL users read the tables.

-- The rules after this one (null: from the first), at most `p_limit`, by principal and namespace. Locks nothing.
create or replace function leasehold_internal.access_list(p_limit integer, p_after_principal text, p_after_namespace text)
returns setof leasehold.access_rule
language sql stable
security definer
as $$
  select r.*
    from leasehold.access_rule r
   where p_after_principal is null or (r.principal, r.namespace) > (p_after_principal, p_after_namespace)
   order by r.principal, r.namespace
   limit p_limit
$$;
comment on function leasehold_internal.access_list is 'The rules of access, as a coordinator lists them';

-- The tokens after this one (null: from the first), at most `p_limit`, by name and ID. Locks nothing.
create or replace function leasehold_internal.token_list(p_limit integer, p_after_name text, p_after_id text)
returns table (
  id text, name text, created_at timestamptz, created_by text, expires_at timestamptz, last_used_at timestamptz)
language sql stable
security definer
as $$
  select t.id, t.name, t.created_at, t.created_by, t.expires_at, t.last_used_at
    from leasehold.access_token t
   where p_after_name is null or (t.name, t.id collate "C") > (p_after_name, p_after_id)
   order by t.name, t.id collate "C"
   limit p_limit
$$;
comment on function leasehold_internal.token_list is 'Bearer tokens without their secrets, as a coordinator lists them';

grant execute on function leasehold_internal.access_list, leasehold_internal.token_list to leasehold_coordinator;
