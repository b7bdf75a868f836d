-- What a hook leaves behind. Whatever it has queued for the end of the transaction runs inside of the call, with the rights of
-- leasehold_owner at most: at COMMIT it would run as the session's user, who may be a superuser.

-- The tables that have triggers which can be deferred, and how many rows this session has changed in each. Locks nothing.
create or replace function leasehold_internal.deferrable_changes(out tables oid[], out counts bigint[])
language sql volatile
as $$
  select coalesce(array_agg(t.tgrelid), '{}'),
         coalesce(array_agg(pg_stat_get_xact_tuples_inserted(t.tgrelid) + pg_stat_get_xact_tuples_updated(t.tgrelid)
                            + pg_stat_get_xact_tuples_deleted(t.tgrelid)), '{}')
    from (select distinct g.tgrelid from pg_trigger g where g.tgdeferrable) t
$$;

-- Run the deferred triggers of the tables in which more rows are changed than `p_tables` and `p_counts` say: those of a hook, and
-- of what its triggers have changed in their turn. Only of these tables: the caller of ours may have deferred triggers of its own
-- on others, whose code must not run with our rights. Afterwards these constraints are deferred again as they are declared.
-- Raises what the triggers raise. Locks what the triggers lock.
create or replace function leasehold_internal.run_deferred(p_tables oid[], p_counts bigint[]) returns void
language plpgsql
as $$
declare
  v_before_tables oid[] := p_tables;
  v_before_counts bigint[] := p_counts;
  v_now record;
  v_touched oid[];
  v_all oid[] := '{}';
begin
  -- A cursor WITH HOLD reads its rows at COMMIT.
  if exists (select from pg_cursors c where c.is_holdable and c.creation_time >= statement_timestamp()) then
    raise exception 'a hook has left a cursor WITH HOLD open';
  end if;
  for v_round in 1 .. 20 loop
    select d.* into v_now from leasehold_internal.deferrable_changes() d;
    exit when v_now.tables = '{}';
    if current_setting('track_counts') = 'off' then
      raise exception 'hooks need track_counts = on where tables have deferrable triggers';
    end if;
    v_touched := array(
      select n.oid
        from unnest(v_now.tables, v_now.counts) n (oid, changes)
        left join unnest(v_before_tables, v_before_counts) b (oid, changes)
          on b.oid = n.oid
       where n.changes > coalesce(b.changes, 0));
    exit when v_touched = '{}';
    if v_round = 20 then
      raise exception 'the deferred triggers of a hook set off each other without an end';
    end if;
    v_all := v_all || v_touched;
    v_before_tables := v_now.tables;
    v_before_counts := v_now.counts;
    execute leasehold_internal.set_constraints_sql(v_touched, v_all, 'immediate');
  end loop;
  if v_all <> '{}' then
    execute leasehold_internal.set_constraints_sql(v_all, v_all, 'deferred');
  end if;
end
$$;

-- The SET CONSTRAINTS for what can be deferred of these tables (`deferred`: of that, what is declared so). Constraints are set by
-- name, and in a schema several may have one name: raises where that would reach a table that no hook has changed (`p_changed`).
-- Locks nothing.
create or replace function leasehold_internal.set_constraints_sql(p_tables oid[], p_changed oid[], p_mode text) returns text
language plpgsql stable
as $$
declare
  v_names text;
  v_other text;
  v_closed text;
begin
  select string_agg(distinct format('%I.%I', n.nspname, c.conname), ', '),
         min(format('%s on %s', c.conname, s.conrelid::regclass)) filter (where s.oid is not null),
         min(n.nspname) filter (where not has_schema_privilege(n.oid, 'usage'))
    into v_names, v_other, v_closed
    from pg_trigger g
    join pg_constraint c
      on c.oid = g.tgconstraint and c.condeferrable and (c.condeferred or p_mode = 'immediate')
    join pg_namespace n
      on n.oid = c.connamespace
    -- A foreign key checks with the rights of its table's owner, whoever sets it off.
    left join pg_constraint s
      on s.conname = c.conname and s.connamespace = c.connamespace and s.condeferrable and s.contype <> 'f'
         and s.conrelid <> all (p_changed)
   where g.tgrelid = any (p_tables) and g.tgdeferrable;
  if v_other is not null then
    raise exception 'a hook has changed a table with the deferrable constraint %, which is not the only one of that name', v_other
      using hint = 'Give them different names.';
  elsif v_closed is not null then
    raise exception 'a hook has changed a table with deferrable constraints in the schema %', v_closed
      using hint = format('To run their triggers in the call: grant usage on schema %I to leasehold_owner.', v_closed);
  end if;
  return coalesce('set constraints ' || v_names || ' ' || p_mode, 'select');
end
$$;

-- The setting leasehold.hook_tokens holds the tokens of the leases whose hooks are running, so that a hook that changes its own
-- lease is noticed. Every session can set it, so it is signed, for this statement of this session alone.

-- What the signature is made with. Locks nothing.
create or replace function leasehold_internal.hook_salt() returns text
language sql stable
as $$
  select s.secret || '/' || pg_backend_pid() || '/' || (extract(epoch from statement_timestamp()) * 1000000)::bigint || '/'
    from leasehold.hook_secret s
$$;

-- The tokens, as ',1,,2,'; '' when there are none. Locks nothing.
create or replace function leasehold_internal.running_hooks() returns text
language plpgsql stable
as $$
declare
  v_value text := coalesce(current_setting('leasehold.hook_tokens', true), '');
begin
  if v_value <> '' and left(v_value, 32) = md5(leasehold_internal.hook_salt() || substr(v_value, 33)) then
    return substr(v_value, 33);
  end if;
  return '';
end
$$;
