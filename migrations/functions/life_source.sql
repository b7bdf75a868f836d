-- Which life of the database this is: the one file that reads it from the server. What tells lives apart is a number that grows with each failover
-- or restore (`timeline`), the system that the database belongs to, and when the server started. leasehold.life_source names where they come from:
--
--   wal     the control file, the WAL's timeline and the start of the server, which PostgreSQL keeps
--   epoch   a number that bump_epoch() raises, and the start of the server: for a service that hides the others
--   engine  a function of another engine: a bigint that grows with each life, or a text that differs between lives

-- What is wrong with a function as the source of the life: a bound, '' or null (there is none). Locks nothing.
create or replace function leasehold_internal.life_function_problem(p_function oid) returns text
language sql stable
as $$
  select case
           when p.prokind <> 'f' or p.proretset or p.pronargs <> 0 or p.prorettype not in ('bigint'::regtype, 'text'::regtype)
             then 'a function f() returns bigint or text'
           when not pg_has_role(p.proowner, 'leasehold_owner', 'member') then 'a function whose owner is a member of leasehold_owner'
           when not has_function_privilege(p.oid, 'execute') or not has_schema_privilege(p.pronamespace, 'usage')
             then format('a function that %I may execute', current_user)
           else ''
         end
    from pg_proc p
   where p.oid = p_function
$$;

-- What the engine's function answers. Locks what it locks.
create or replace function leasehold_internal.ask_engine(p_function_name text, out system_identifier bigint, out timeline bigint)
language plpgsql volatile
as $$
declare
  v_problem constant text := coalesce(leasehold_internal.life_function_problem(to_regprocedure(p_function_name)), 'a function that exists');
  v_answer text;
  v_type regtype;
begin
  if v_problem <> '' then
    raise exception 'the source of the life, %, must be %', p_function_name, v_problem using errcode = 'object_not_in_prerequisite_state';
  end if;
  execute format('select f.life::text, pg_typeof(f.life) from (select %s as life) f', p_function_name) into v_answer, v_type;
  if v_answer is null or v_type = 'bigint'::regtype and v_answer::bigint < 1 then
    raise exception 'the source of the life, %, must return a text or a bigint of at least 1, and returned %', p_function_name, coalesce(v_answer, 'null')
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  system_identifier := case v_type when 'bigint'::regtype then 0 else hashtextextended(v_answer, 0) end;
  timeline := case v_type when 'bigint'::regtype then v_answer::bigint else 0 end;
end
$$;

-- The facts that make up this life of this database, from the source that is set. Reads the control file; locks what an engine's function locks.
create or replace function leasehold_internal.incarnation_facts(
  out source text, out system_identifier bigint, out table_oid oid, out timeline bigint, out postmaster_start timestamptz)
language plpgsql volatile
as $$
declare
  v_set leasehold.life_source;
begin
  select s.* into v_set from leasehold.life_source s;
  source := v_set.source;
  table_oid := 'leasehold.incarnation'::regclass::oid;
  -- A function that is hidden fails the statement that names it, though no row calls it: so each source has its own.
  if source = 'wal' then
    select c.system_identifier into system_identifier from pg_control_system() c;
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
    postmaster_start := pg_postmaster_start_time();
  elsif source = 'epoch' then
    system_identifier := 0;
    timeline := v_set.epoch;
    postmaster_start := pg_postmaster_start_time();
  else
    select e.system_identifier, e.timeline into system_identifier, timeline from leasehold_internal.ask_engine(v_set.function_name) e;
  end if;
end
$$;

-- When this server was started. A function that is hidden fails the statement that names it, whichever branch is taken: whoever asks under a
-- condition asks here. Locks nothing.
create or replace function leasehold_internal.server_start() returns timestamptz
language plpgsql stable
as $$
begin
  return pg_postmaster_start_time();
end
$$;

-- Does an engine's function still answer what was written down? Locks what that function locks.
create or replace function leasehold_internal.is_life_of_engine(p_system_identifier bigint, p_timeline bigint) returns boolean
language plpgsql stable
as $$
begin
  return (select f.system_identifier = p_system_identifier and f.timeline = p_timeline
            from leasehold_internal.incarnation_facts() f);
end
$$;

-- What a daemon compares servers by, and the same in words; both numbers are 0 on a standby, where no source is asked. Where it cannot be read: LH008, with
-- what helps. Locks what an engine's function locks.
create or replace function leasehold_internal.server_identity(
  out source text, out system_identifier bigint, out timeline bigint, out words text)
language plpgsql volatile
security definer
as $$
declare
  v_facts record;
  v_message text;
begin
  select s.source into source from leasehold.life_source s;
  system_identifier := 0;
  timeline := 0;
  if pg_is_in_recovery() then
    words := 'not asked on a standby';
    return;
  end if;
  select f.* into v_facts from leasehold_internal.incarnation_facts() f;
  system_identifier := v_facts.system_identifier;
  timeline := v_facts.timeline;
  words := case source when 'wal' then 'timeline ' || timeline
                       when 'epoch' then 'epoch ' || timeline
                       else (select s.function_name from leasehold.life_source s) || ' says ' || case timeline when 0 then 'a text' else timeline::text end end
           || case when source <> 'engine' then ', running since ' || date_trunc('second', leasehold_internal.server_start()) else '' end;
exception when others then
  -- A service hides a function, has none of that name, or does not answer it.
  get stacked diagnostics v_message = message_text;
  raise exception 'the server does not tell which life of the database this is (source %): %; %choose another source by leasehold.set_life_source()',
      source, v_message, case source when 'engine' then '' else 'grant leasehold_owner execute on that function, or ' end
    using errcode = 'LH008';
end
$$;
comment on function leasehold_internal.server_identity is 'What tells this life of the database from others, for daemons and check-database';

-- Choose where the schema reads which life of the database this is. Begins a new life, and lifts the tokens: what the former source missed is made up for.
-- Returns nothing. Locks the row of leasehold.life_source, for which who writes down a life waits; and what begin_life() does.
create or replace function leasehold.set_life_source(source text, function regprocedure default null) returns void
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_bound constant text := leasehold_internal.life_function_problem(set_life_source.function);
  v_problem leasehold_internal.problem;
begin
  v_problem := case
    when set_life_source.source is null or set_life_source.source not in ('wal', 'epoch', 'engine') then row('source', 'one of wal, epoch, engine')
    when set_life_source.source <> 'engine' and set_life_source.function is not null then row('function', 'null, for only engine has one')
    when set_life_source.source = 'engine' and (v_bound is null or v_bound <> '') then row('function', coalesce(v_bound, 'a function that exists')) end;
  {{refused.text}}
  update leasehold.life_source s
     set source = set_life_source.source,
         epoch = leasehold_internal.next_epoch(s.epoch),
         function_name = (select format('%I.%I()', p.pronamespace::regnamespace, p.proname) from pg_proc p where p.oid = set_life_source.function);
  -- Refuses a source that cannot be read.
  perform leasehold_internal.server_identity();
  perform leasehold_internal.begin_life('the source of the life was set to ' || set_life_source.source);
end
$$;
comment on function leasehold.set_life_source is
  'Choose where Leasehold reads which life of the database this is: wal, epoch, or a function of the engine. Example:
  select leasehold.set_life_source(''epoch'')';

-- Above all epochs before, also those that a failover has lost, as far as clocks agree. Locks nothing.
create or replace function leasehold_internal.next_epoch(p_epoch bigint) returns bigint
language sql volatile
as $$
  select greatest(p_epoch + 1, extract(epoch from clock_timestamp())::bigint)
$$;

-- A new life, by hand: whatever was lost or is old, its tokens are behind. Locks what jump_epoch() and write_life() do.
create or replace function leasehold_internal.begin_life(p_reason text) returns void
language plpgsql
as $$
begin
  perform leasehold_internal.jump_epoch(true);
  perform leasehold_internal.write_life(p_reason);
end
$$;

-- Members of leasehold_owner choose it: an engine's function runs as that role.
grant execute on function leasehold_internal.server_identity to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
grant select on leasehold.life_source to leasehold_admin;
