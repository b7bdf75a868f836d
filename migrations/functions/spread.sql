-- A spread namespace has its keys in several databases. A key has a slot; this database grants keys of the slots that leasehold.spread gives it, and
-- no other. Who holds a lease of another slot renews and releases it as ever. The formulas are those of src/service/places/spread.h.

-- Which of the 4,096 slots a key has. Locks nothing.
create or replace function leasehold_internal.slot_of(p_key text) returns integer
language sql stable strict parallel safe
as $$
  select ('x' || substr(encode(sha256(convert_to(p_key, 'UTF8')), 'hex'), 1, 3))::bit(12)::integer
$$;

-- Is the key's slot one of these? A function of its own, so that a query in which nothing has slots does not set up all that it calls. Locks nothing.
create or replace function leasehold_internal.has_slot(p_slots bytea, p_key text) returns boolean
language plpgsql stable strict parallel safe
as $$
begin
  return get_bit(p_slots, leasehold_internal.slot_of(p_key)) = 1;
end
$$;

-- Does this database have this key? `p_slots` are those of its namespace's rules; null: it has all. To be used in a query, where it becomes a part of
-- it. Locks nothing.
create or replace function leasehold_internal.has_key(p_slots bytea, p_key text) returns boolean
language sql stable parallel safe
as $$
  select p_slots is null or leasehold_internal.has_slot(p_slots, p_key)
$$;

-- The row that counts for a namespace: that of its longest prefix. Locks nothing.
create or replace function leasehold_internal.spread_of(p_namespace text) returns leasehold.spread
language plpgsql stable
as $$
begin
  return (select s
            from leasehold.spread s
           where s.namespace = any (leasehold_internal.prefixes(p_namespace))
           order by length(s.namespace) desc
           limit 1);
end
$$;

-- Where a key is that this database does not have, in words. Locks nothing.
create or replace function leasehold_internal.elsewhere_words(p_namespace text, p_key text) returns text
language sql stable
as $$
  select format('%s of %s is in another database; this one has the keys of section %s', p_key, p_namespace,
                (leasehold_internal.spread_of(p_namespace)).section)
$$;

-- The slots that one section gets of these: each goes to the section whose name gives the largest hash with it. Locks nothing.
create or replace function leasehold_internal.section_slots(p_section text, p_sections text[]) returns bytea
language sql stable
as $$
  select decode(string_agg(lpad(to_hex(b.byte), 2, '0'), '' order by b.number), 'hex')
    from (select w.slot / 8 as number, sum(case when w.section = p_section then 1 << w.slot % 8 else 0 end) as byte
            from (select distinct on (n.slot) n.slot, s.section
                    from generate_series(0, 4095) n (slot), unnest(p_sections) s (section)
                   order by n.slot, sha256(convert_to(s.section || ' ' || n.slot, 'UTF8')) desc) w
           group by 1) b
$$;

-- Make this database one of those that have a namespace, by a daemon: the section `p_section` of these. Not p_settle: it is a claim that has no slots yet,
-- and gets them by another call with p_settle. Where it is one already, or of other sections, nothing changes. Returns its row. Locks what
-- spread_changed() does where it changes something.
create or replace function leasehold_internal.spread_claim(p_namespace text, p_section text, p_sections text[], p_settle boolean default true)
returns table (section text, sections text[], slots bytea)
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_sections constant text[] := array(select distinct s collate "C" from unnest(p_sections) s order by 1);
begin
  perform leasehold_internal.refuse(row('namespace', leasehold_internal.namespace_problem(p_namespace))::leasehold_internal.problem)
    where leasehold_internal.namespace_problem(p_namespace) is not null;
  if cardinality(v_sections) not between 1 and 255 or array_position(v_sections, null) is not null then
    perform leasehold_internal.refuse(row('sections', '1 to 255 names, has ' || cardinality(v_sections))::leasehold_internal.problem);
  elsif p_section is null or p_section <> all (v_sections) then
    perform leasehold_internal.refuse(row('section', 'one of ' || array_to_string(v_sections, ', ')
                                                     || ', is ' || coalesce(left(p_section, 64), 'null'))::leasehold_internal.problem);
  end if;
  if not exists (select from leasehold.spread s where s.namespace = p_namespace and (s.settled or not p_settle)) then
    insert into leasehold.spread as s (namespace, section, sections, slots, settled, changed_at)
    values (p_namespace, p_section, v_sections,
            case when p_settle then leasehold_internal.section_slots(p_section, v_sections) else decode(repeat('00', 512), 'hex') end, p_settle,
            clock_timestamp())
        on conflict (namespace) do update set slots = excluded.slots, settled = true
     where not s.settled and excluded.settled and s.section = p_section and s.sections = v_sections;
  end if;
  return query select s.section, s.sections, s.slots from leasehold.spread s where s.namespace = p_namespace;
end
$$;
comment on function leasehold_internal.spread_claim is 'Make this database one of those that have a spread namespace, by a daemon';

-- What this database has, for daemons: each reads it once a second. Notes of a daemon that it acts on the rows of until p_read. Locks its row in
-- leasehold.coordinator when that is new.
create or replace function leasehold_internal.spread_get(p_coordinator uuid default null, p_read timestamptz default null)
returns table (namespace text, section text, sections text[], slots bytea, settled boolean, changed_at timestamptz)
language plpgsql
security definer
as $$
#variable_conflict use_column
begin
  update leasehold.coordinator c set spread_read_at = p_read where c.id = p_coordinator and c.spread_read_at is distinct from p_read;
  return query
    select s.namespace, s.section, s.sections, s.slots, s.settled, s.changed_at from leasehold.spread s order by s.namespace;
end
$$;
comment on function leasehold_internal.spread_get is 'The spread namespaces of this database, and which of their keys it has';

-- Before a row of leasehold.spread is changed, whoever does it: daemons read the rows again; waiters ask again, and lose their
-- places where the key is elsewhere now; leasehold_core and older snapshots meet it as they do a hook. One change after the other: changed_at grows, whatever
-- the clock says. Locks what mark_hooks() does, until the end of the transaction.
create or replace function leasehold_internal.spread_changed() returns trigger
language plpgsql
as $$
begin
  perform leasehold_internal.mark_hooks();
  perform pg_notify(leasehold_internal.channel_of(c, null), 'spread')
     from unnest(leasehold_internal.live_coordinators(clock_timestamp())) c;
  perform leasehold_internal.let_ask_again(coalesce(new.namespace, old.namespace));
  if tg_op <> 'DELETE' then
    new.changed_at := greatest(clock_timestamp(), (select max(s.changed_at) + interval '1 us' from leasehold.spread s));
  end if;
  return coalesce(new, old);
end
$$;

do $$
begin
  if not exists (select from pg_catalog.pg_trigger t where t.tgrelid = 'leasehold.spread'::regclass and t.tgname = 'spread_changed') then
    create trigger spread_changed before insert or update or delete on leasehold.spread
      for each row execute function leasehold_internal.spread_changed();
  end if;
end
$$;

grant execute on function leasehold_internal.spread_claim, leasehold_internal.spread_get to leasehold_coordinator, leasehold_admin;
grant select on leasehold.spread to leasehold_reader, leasehold_coordinator, leasehold_admin;
