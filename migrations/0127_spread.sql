-- Which keys of a spread namespace this database has: it grants no other. The table is new and empty.
create table leasehold.spread (
  namespace  text collate "C" not null,
  section    text not null,
  sections   text[] not null,
  slots      bytea not null,
  changed_at timestamptz not null,
  constraint spread_pkey primary key (namespace),
  constraint spread_section check (section = any (sections)),
  -- A bit for each slot: fewer would have keys that belong to nobody.
  constraint spread_slots check (octet_length(slots) = 512)
);
comment on table leasehold.spread is 'Namespaces that several databases share, with all below them: which keys this database has';
comment on column leasehold.spread.namespace is 'Dotted: payments.invoices';
comment on column leasehold.spread.section is 'The name by which daemons know this database';
comment on column leasehold.spread.sections is 'The names of all databases from which the slots were made, by their bytes';
comment on column leasehold.spread.slots is 'get_bit(slots, n): does this database have the keys of slot n (leasehold_internal.slot_of)?';
comment on column leasehold.spread.changed_at is 'When it was claimed or its slots were changed';

alter type leasehold.rules add attribute slots bytea;

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
       and p.proname = any (array['is_plain', 'plain_wait', 'plain_hand_over', 'core_rules'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
