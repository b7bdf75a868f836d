-- A page of what is held, as programs are told of it: in `p_namespace` ('' is everything), with what is below it or without,
-- of one owner (null: all), with `p_search` in its name, owner, principal or token, whatever the case (null: all), after (`p_after_namespace`,
-- `p_after_key`, `p_after_token`), of one of the states of lease_states() (null: all), held for that long (null: however long), in the order of the bytes, then of the tokens; without a token after all of that scope. Each shared holder is a row.
-- Where `p_look_at` scopes (null: any number) did not fill the page, the last row has the last one of them and no token. Locks nothing.
create or replace function leasehold_internal.list_leases(
  p_namespace text, p_include_children boolean, p_limit integer, p_after_namespace text, p_after_key text, p_owner text,
  p_search text default null, p_look_at integer default null, p_after_token bigint default null,
  p_state text default null, p_longer_than_us bigint default null)
returns table (
  namespace text, key text, {{lease.table}}, {{shape.table}})
language plpgsql
security definer
{{page.settings}}
as $$
#variable_conflict use_column
declare
  v_after_namespace constant text := coalesce(p_after_namespace, '');
  v_after_key constant text := coalesce(p_after_key, '');
  v_after_token constant bigint := coalesce(p_after_token, 9223372036854775807);
  v_found leasehold.scope[];
  v_last text;
  v_search text := lower(nullif(p_search, '') collate "default");
  v_stop_namespace text;
  v_stop_key text;
  v_now constant timestamptz := clock_timestamp();
  v_begun_until constant timestamptz := v_now - leasehold_internal.from_us(p_longer_than_us);
  v_life leasehold.life_now;
  v_rules leasehold.rules[];
begin
  perform leasehold_internal.refuse(leasehold_internal.subtree_problem(p_namespace));
  -- '/' is the byte after '.': what is below p comes before p || '/'. Each shared holder has a row of leasehold.scope beside it.
  v_last := case
    when p_namespace = '' then (select max(s.namespace) from leasehold.scope s)
    when p_include_children then p_namespace || '/'
    else p_namespace
  end;
  if p_look_at is not null then
    select s.namespace, s.key
      into v_stop_namespace, v_stop_key
      from leasehold.scope s
     where s.namespace >= p_namespace and s.namespace <= v_last
       and (s.namespace, s.key) > (v_after_namespace collate "C", v_after_key collate "C")
     order by s.namespace, s.key
    offset p_look_at - 1
     limit 1;
  end if;
  if p_state is not null then
    v_life := leasehold_internal.life(null);
    v_rules := array(
      select r
        from leasehold_internal.policies_of(array(
               select distinct s.namespace
                 from leasehold.scope s
                where s.namespace >= p_namespace and s.namespace <= v_last
                  and (s.namespace, s.key, s.token) > (v_after_namespace collate "C", v_after_key collate "C", case s.state when 'shared' then 0 else v_after_token end)
                  and (v_stop_namespace is null or (s.namespace, s.key) <= (v_stop_namespace collate "C", v_stop_key collate "C"))
                  and leasehold_internal.is_in_subtree(s.namespace, p_namespace)
                  and s.state <> 'free')) r);
  end if;
  v_found :=
    array(
      select s
        from leasehold.scope s
        left join unnest(v_rules) r
          on r.namespace = s.namespace
       where s.namespace >= p_namespace and s.namespace <= v_last
         and (s.namespace, s.key, s.token) > (v_after_namespace collate "C", v_after_key collate "C", v_after_token)
         and (v_stop_namespace is null or (s.namespace, s.key) <= (v_stop_namespace collate "C", v_stop_key collate "C"))
         and leasehold_internal.is_in_subtree(s.namespace, p_namespace)
         and s.state = 'held'
         and (nullif(p_owner, '') is null or s.owner = p_owner)
         and (v_begun_until is null or s.acquired_at <= v_begun_until)
         and (p_state is null or p_state = any (leasehold_internal.lease_states(s, r, v_life, v_now)))
         and (v_search is null
              or strpos(lower(concat_ws(E'\n', s.namespace || '/' || s.key, s.owner, s.principal, s.token) collate "default"), v_search) > 0)
       order by s.namespace, s.key
       limit p_limit)
    || array(
      select leasehold_internal.scope_of_share(h)
        from (select x.*
                from leasehold.share x
                left join unnest(v_rules) r
                  on r.namespace = x.namespace
               where x.namespace >= p_namespace and x.namespace <= v_last
                 and (x.namespace, x.key, x.token) > (v_after_namespace collate "C", v_after_key collate "C", v_after_token)
                 and (v_stop_namespace is null or (x.namespace, x.key) <= (v_stop_namespace collate "C", v_stop_key collate "C"))
                 and leasehold_internal.is_in_subtree(x.namespace, p_namespace)
                 and x.state = 'held'
                 and (nullif(p_owner, '') is null or x.owner = p_owner)
                 and (v_begun_until is null or x.acquired_at <= v_begun_until)
                 and (p_state is null
                      or p_state = any (leasehold_internal.lease_states(leasehold_internal.scope_of_share(x), r, v_life, v_now)))
                 and (v_search is null
                      or strpos(lower(concat_ws(E'\n', x.namespace || '/' || x.key, x.owner, x.principal, x.token) collate "default"), v_search) > 0)
               order by x.namespace, x.key, x.token
               limit p_limit) h);
  return query
    select t.* from leasehold_internal.tell_leases(v_found) t order by t.namespace, t.key, t.token limit p_limit;
  if v_stop_namespace is not null and cardinality(v_found) < p_limit then
    namespace := v_stop_namespace;
    key := v_stop_key;
    return next;
  end if;
end
$$;
comment on function leasehold_internal.list_leases is 'A page of what is held, as programs read it';

-- The first `p_limit` holders of one scope, the oldest first, in the same form. Locks nothing.
create or replace function leasehold_internal.get_holders(p_namespace text, p_key text, p_limit integer)
returns table (
  namespace text, key text, {{lease.table}}, {{shape.table}})
language plpgsql
security definer
as $$
#variable_conflict use_column
begin
  perform leasehold_internal.refuse(leasehold_internal.scope_problem(p_namespace, p_key));
  return query
    select t.*
      from leasehold_internal.tell_leases(
             array(select s from leasehold.scope s where s.namespace = p_namespace and s.key = p_key and s.state = 'held')
             || array(select leasehold_internal.scope_of_share(h)
                        from (select x.*
                                from leasehold.share x
                               where x.namespace = p_namespace and x.key = p_key and x.state = 'held'
                               order by x.acquired_at, x.token
                               limit p_limit) h)) t
     order by t.acquired_at, t.token;
end
$$;
comment on function leasehold_internal.get_holders is 'The holders of a scope, as programs read them';

-- Held scopes, and shared leases in the form of scope_of_share(), as programs are told of them. Locks nothing.
create or replace function leasehold_internal.tell_leases(p_scopes leasehold.scope[])
returns table (
  namespace text, key text, {{lease.table}}, {{shape.table}})
language plpgsql stable
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_rules leasehold.rules[];
begin
  v_rules := array(select r from leasehold_internal.policies_of(array(select distinct s.namespace from unnest(p_scopes) s)) r);
  return query
    select s.namespace, s.key, {{lease.columns f}}, {{shape.columns f}}
      from unnest(p_scopes) s
     cross join lateral (select r as rules from unnest(v_rules) r where r.namespace = s.namespace) r
     cross join lateral leasehold_internal.lease_facts(s, r.rules, v_life, v_now) f;
end
$$;

grant execute on function leasehold_internal.list_leases, leasehold_internal.get_holders to leasehold_coordinator, leasehold_admin;
