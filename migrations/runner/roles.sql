-- The roles, the schemas and whose they are. Run first, in the migration's transaction, as the role that logged in (the installer).
-- Everything after it runs as leasehold_owner. An installer may be any role that may create roles and schemas, or that finds
-- the roles made, is a member of leasehold_owner, and may create a schema or finds it made. It need not be a superuser.
do $leasehold$
declare
  v_role text;
  v_schema text;
  v_statement text;
  v_schema_owner oid;
  v_me constant oid := (select r.oid from pg_catalog.pg_roles r where r.rolname = current_user);
  v_is_superuser constant boolean := (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user);
begin
  -- Roles belong to the cluster, not to the database: a migration of another database may have made them, or do so now.
  foreach v_role in array array['leasehold_owner', 'leasehold_client', 'leasehold_reader', 'leasehold_coordinator', 'leasehold_admin'] loop
    continue when exists (select from pg_catalog.pg_roles r where r.rolname = v_role);
    begin
      execute format('create role %I nologin', v_role);
    exception
      when duplicate_object or unique_violation then
        null;
      when insufficient_privilege then
        raise exception 'the role % does not exist, and % may not create roles', v_role, current_user
          using errcode = 'insufficient_privilege',
          hint = format('let a role with CREATEROLE run: create role %I nologin; and for leasehold_owner: grant leasehold_owner to %I',
                        v_role, current_user);
    end;
  end loop;

  -- Whoever is in a hook runs as this role.
  if (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = 'leasehold_owner') then
    raise exception 'the role leasehold_owner is a superuser'
      using errcode = 'insufficient_privilege', hint = 'let a superuser run: alter role leasehold_owner nosuperuser nologin';
  end if;
  -- From PostgreSQL 16 on the creator of a role may grant it, to itself too, but is not yet able to be it.
  if not pg_catalog.pg_has_role(
           current_user, 'leasehold_owner',
           case when current_setting('server_version_num')::integer >= 160000 then 'SET' else 'MEMBER' end) then
    begin
      execute format('grant leasehold_owner to %I', current_user);
    exception when insufficient_privilege then
      raise exception '% is not a member of leasehold_owner, which owns the schema', current_user
        using errcode = 'insufficient_privilege',
        hint = format('migrate as a role that is; or let a role that may grant it run: grant leasehold_owner to %I', current_user);
    end;
  end if;

  foreach v_schema in array array['leasehold', 'leasehold_internal'] loop
    select n.nspowner into v_schema_owner from pg_catalog.pg_namespace n where n.nspname = v_schema;
    if not found then
      begin
        execute format('create schema %I authorization leasehold_owner', v_schema);
      exception when insufficient_privilege then
        raise exception '% may not create a schema in the database %', current_user, current_database()
          using errcode = 'insufficient_privilege',
          hint = format('let the owner of the database run: grant create on database %I to %I', current_database(), current_user);
      end;
    elsif v_schema_owner <> 'leasehold_owner'::regrole then
      -- An installation from before there was leasehold_owner is taken over where its owner could have become this role anyway.
      -- Any other schema of this name may hold triggers and functions that somebody laid out for us.
      if not (case when v_is_superuser
                   then v_schema_owner = v_me
                        or (select r.rolsuper from pg_catalog.pg_roles r where r.oid = v_schema_owner)
                   else pg_catalog.pg_has_role(v_schema_owner, 'USAGE') end) then
        raise exception 'the schema % belongs to %, and not to leasehold_owner: it is not touched', v_schema, v_schema_owner::regrole
          using errcode = 'insufficient_privilege',
          hint = format('if it is an older Leasehold, migrate once as %1$s, or let a superuser who trusts it run: alter schema %2$s '
                        'owner to leasehold_owner; otherwise drop it', v_schema_owner::regrole, v_schema);
      end if;
      begin
        execute format('alter schema %I owner to leasehold_owner', v_schema);
      exception when insufficient_privilege then
        raise exception 'the schema % belongs to %, and % may not give it to leasehold_owner: %',
                        v_schema, v_schema_owner::regrole, current_user, sqlerrm
          using errcode = 'insufficient_privilege',
          hint = format('let the owner of the database run: grant create on database %I to %I', current_database(), current_user);
      end;
    end if;
  end loop;

  for v_statement in
    select format('alter %s %s owner to leasehold_owner',
                  case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type' else 'table' end,
                  c.oid::regclass)
      from pg_catalog.pg_class c
     where c.relnamespace = 'leasehold'::regnamespace and c.relowner <> 'leasehold_owner'::regrole
       and c.relkind in ('r', 'p', 'v', 'S', 'c')
       -- Sequences of identity columns go with their tables.
       and not exists (select from pg_catalog.pg_depend d
                        where c.relkind = 'S' and d.classid = 'pg_class'::regclass and d.objid = c.oid
                          and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i'))
    union all
    select format('alter routine %s owner to leasehold_owner', p.oid::regprocedure)
      from pg_catalog.pg_proc p
     where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and p.proowner <> 'leasehold_owner'::regrole
  loop
    execute v_statement;
  end loop;
end
$leasehold$;
