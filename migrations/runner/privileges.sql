-- What in the two schemas belongs to somebody else than leasehold_owner, may not be used by a role that needs it, or may be used by PUBLIC or
-- one of our roles that should not: a restore with --no-owner or --no-privileges makes all of that. One row for each, with the statement
-- that puts it right; first those that the installer runs, then those of leasehold_owner. Rights of other roles are the site's.
-- Reads the catalog only, as any role with any search_path, whatever is wrong. privileges.py fills in what is expected.
with expected (kind, object, col, privilege, role) as (
  values
    -- the rows of privileges.py
), object as (
  select 'schema' as kind, n.nspname::text as name, n.nspowner as owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) as acl, 'schema' as noun
    from pg_namespace n
   where n.nspname in ('leasehold', 'leasehold_internal')
  union all
  select 'function',
         format('%I.%I(%s)', n.nspname, p.proname,
                (select string_agg(case when m.nspname = 'pg_catalog' then format_type(t.oid, null)
                                        else format('%I.%I', m.nspname, coalesce(e.typname, t.typname)) || case when e.oid is null then '' else '[]' end
                                   end, ',' order by a.nth)
                   from unnest(p.proargtypes) with ordinality a (type, nth)
                   join pg_type t on t.oid = a.type
                   join pg_namespace m on m.oid = t.typnamespace
                   left join pg_type e on e.typarray = t.oid)),
         p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)), 'routine'
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
   where n.nspname in ('leasehold', 'leasehold_internal')
  union all
  select case c.relkind when 'c' then 'type' when 'S' then 'sequence' else 'table' end, format('%I.%I', n.nspname, c.relname), c.relowner,
         case c.relkind when 'c' then null else coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner)) end,
         case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type' else 'table' end
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
   where n.nspname in ('leasehold', 'leasehold_internal') and c.relkind in ('r', 'p', 'v', 'S', 'c')
     -- Sequences of identity columns go with their tables.
     and not exists (select from pg_depend d
                      where c.relkind = 'S' and d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid
                        and d.refclassid = 'pg_catalog.pg_class'::regclass and d.deptype in ('a', 'i'))
), given as (
  select o.kind, o.name as object, '' as col, lower(a.privilege_type) as privilege, coalesce(r.rolname, 'public')::text as role
    from object o
   cross join lateral aclexplode(o.acl) a
    left join pg_roles r on r.oid = a.grantee
   where a.grantee <> o.owner
  union all
  select 'table', format('%I.%I', n.nspname, c.relname), t.attname, lower(a.privilege_type), coalesce(r.rolname, 'public')
    from pg_attribute t
    join pg_class c on c.oid = t.attrelid
    join pg_namespace n on n.oid = c.relnamespace
   cross join lateral aclexplode(t.attacl) a
    left join pg_roles r on r.oid = a.grantee
   where n.nspname in ('leasehold', 'leasehold_internal') and a.grantee <> c.relowner
), excess as (
  select g.* from given g
   where g.role in ('public', 'leasehold_client', 'leasehold_reader', 'leasehold_coordinator', 'leasehold_admin')
  except
  select e.* from expected e
), missing as (
  select e.* from expected e where exists (select from object o where o.kind = e.kind and o.name = e.object)
  except
  select g.* from given g
), problem (nth, words, repair) as (
  select case o.kind when 'schema' then 1 else 2 end, format('%s %s belongs to %s', o.kind, o.name, pg_get_userbyid(o.owner)),
         format('alter %s %s owner to leasehold_owner', o.noun, o.name)
    from object o
   where pg_get_userbyid(o.owner) <> 'leasehold_owner'
  union all
  select 3, format('%s should not have the right %s on %s %s', e.role, e.privilege, e.kind, concat_ws('.', e.object, nullif(e.col, ''))),
         format('revoke %s%s on %s %s from %s', e.privilege, ' (' || quote_ident(nullif(e.col, '')) || ')',
                case e.kind when 'function' then 'routine' else e.kind end, e.object, e.role)
    from excess e
  union all
  select 4, format('%s lacks the right %s on %s %s', m.role, m.privilege, m.kind, concat_ws('.', m.object, nullif(m.col, ''))),
         format('grant %s%s on %s %s to %s', m.privilege, ' (' || quote_ident(nullif(m.col, '')) || ')',
                case m.kind when 'function' then 'routine' else m.kind end, m.object, m.role)
    from missing m
)
select p.nth <= 2 as is_owner, p.words, p.repair from problem p order by p.nth, p.words
