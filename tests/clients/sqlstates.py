"""For the case sqlstates_are_told_alike: a database in which an acquire of the key `sqlstate 53100` gets that SQLSTATE."""
RAISE = """
create function public.raise_sqlstate() returns trigger language plpgsql as $$
begin
  raise exception 'condition: of a test' using errcode = right(new.key, 5), detail = 'key', hint = 'any other';
end $$;
create trigger raise_sqlstate before insert on leasehold.scope
  for each row when (new.key ~ '^sqlstate .{5}$') execute function public.raise_sqlstate()"""
