"""What the databases of the cases have beside the schema, from the start: who creates or drops a trigger of leasehold.scope waits for each open
transaction that has locked a row, and all cases wait behind it.

An acquire of the key `sqlstate 53100` gets that SQLSTATE (sqlstates_are_told_alike). public.written tells in which transaction a lease of
a namespace that begins with `written.` was renewed or ended (one_request_renews_all, try_releases_go_together).
"""
TRIGGERS = """
create function public.raise_sqlstate() returns trigger language plpgsql as $$
begin
  raise exception 'condition: of a test' using errcode = right(new.key, 5), detail = 'key', hint = 'any other';
end $$;
create trigger raise_sqlstate before insert on leasehold.scope
  for each row when (new.key ~ '^sqlstate .{5}$') execute function public.raise_sqlstate();

create table public.written (xid xid8 default pg_current_xact_id(), namespace text, key text, what text);
create function public.write_down() returns trigger language plpgsql security definer as $$
begin
  insert into public.written (namespace, key, what) values (new.namespace, new.key, tg_argv[0]);
  return null;
end $$;
create trigger write_renewal after update on leasehold.scope
  for each row when (new.namespace like 'written.%' and new.heartbeats > old.heartbeats) execute function public.write_down('renewed');
create trigger write_end after update on leasehold.scope
  for each row when (new.namespace like 'written.%' and old.state = 'held' and new.state <> 'held') execute function public.write_down('ended')"""
