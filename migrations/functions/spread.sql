-- A spread namespace has its keys in several databases. A key has a slot; this database grants keys of the slots that leasehold.spread gives it, and
-- no other. Who holds a lease of another slot renews and releases it as ever. The formulas are those of src/service/places/spread.h.

-- Which of the 4,096 slots a key has. Locks nothing.
create or replace function leasehold_internal.slot_of(p_key text) returns integer
language sql stable strict parallel safe
as $$
  select ('x' || substr(encode(sha256(convert_to(p_key, 'UTF8')), 'hex'), 1, 3))::bit(12)::integer
$$;

-- Does this database have this key? `p_slots` are those of its namespace's rules; null: it has all. To be used in a query, where it becomes a part of
-- it. Locks nothing.
create or replace function leasehold_internal.has_key(p_slots bytea, p_key text) returns boolean
language sql stable parallel safe
as $$
  select p_slots is null or get_bit(p_slots, leasehold_internal.slot_of(p_key)) = 1
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

-- Make this database one of those that have a namespace, by a daemon: the section `p_section` of these. Where it is one already, nothing changes. Returns
-- its row. Locks what spread_changed() does where there is none yet.
create or replace function leasehold_internal.spread_claim(p_namespace text, p_section text, p_sections text[])
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
  if not exists (select from leasehold.spread s where s.namespace = p_namespace) then
    insert into leasehold.spread (namespace, section, sections, slots, changed_at)
    values (p_namespace, p_section, v_sections, leasehold_internal.section_slots(p_section, v_sections), clock_timestamp())
        on conflict (namespace) do nothing;
  end if;
  return query select s.section, s.sections, s.slots from leasehold.spread s where s.namespace = p_namespace;
end
$$;
comment on function leasehold_internal.spread_claim is 'Make this database one of those that have a spread namespace, by a daemon';

-- What this database has, for daemons. Locks nothing.
create or replace function leasehold_internal.spread_get() returns table (namespace text, section text, sections text[], slots bytea)
language sql stable security definer
as $$
  select s.namespace, s.section, s.sections, s.slots from leasehold.spread s order by s.namespace
$$;
comment on function leasehold_internal.spread_get is 'The spread namespaces of this database, and which of their keys it has';

-- Before a row of leasehold.spread is changed, whoever does it: daemons read the rows again, as they do access rules; waiters ask again, and lose their
-- places where the key is elsewhere now; leasehold_core and older snapshots meet it as they do a hook. One change after the other. Locks what
-- mark_hooks() does and the row of leasehold.access_state, until the end of the transaction.
create or replace function leasehold_internal.spread_changed() returns trigger
language plpgsql
as $$
begin
  perform leasehold_internal.mark_hooks();
  update leasehold.access_state a set version = a.version + 1;
  perform leasehold_internal.let_ask_again(coalesce(new.namespace, old.namespace));
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
