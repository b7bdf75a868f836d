-- The cases of tests/lib/bounds.json, which tests/unit/test_base_bounds.c has too: what a client refuses, SQL refuses, and nothing else.
select no_plan();
\set cases `cat "$LEASEHOLD_BOUNDS"`
create temporary table given as
  select c.kind, repeat(c.value, c.times) as value, c.words, format('%s %s, %s times', c.kind, to_jsonb(c.value), c.times) as name
    from jsonb_to_recordset(:'cases') as c (kind text, value text, times int, words text);

create function pg_temp.problem(p_kind text, p_value text) returns text language plpgsql as $$
declare
  v_field text;
begin
  return case p_kind
    when 'namespace' then leasehold_internal.namespace_problem(p_value)
    when 'key' then leasehold_internal.key_problem(p_value)
    when 'label_name' then leasehold_internal.labels_problem(jsonb_build_object(p_value, ''))
    when 'label_value' then leasehold_internal.labels_problem(jsonb_build_object('n', p_value))
  end;
end $$;

-- By the function of the API that takes it: what DETAIL names and the end of the words, which tells the value; '' where the call went through.
create function pg_temp.refused(p_kind text, p_value text) returns text language plpgsql as $$
declare
  v_field text;
  v_words text;
begin
  case p_kind
    when 'duration' then perform leasehold.acquire('bounds.short', 'k', p_value::bigint * interval '1 us');
    when 'at_least' then perform leasehold.acquire('bounds', 'k', '30 s', at_least => p_value::bigint * interval '1 us');
    when 'units' then perform leasehold.acquire('bounds', 'k', '30 s', mode => 'shared', units => p_value::int);
    when 'reason' then perform leasehold.force_release('bounds', 'free', p_value);
    else
      perform leasehold.acquire(case p_kind when 'namespace' then p_value else 'bounds' end, case p_kind when 'key' then p_value else 'k' end, '30 s',
        owner => case p_kind when 'owner' then p_value end,
        labels => case p_kind when 'label_name' then jsonb_build_object(p_value, '') when 'label_value' then jsonb_build_object('n', p_value) else '{}' end);
  end case;
  return '';
exception when sqlstate 'LH002' then
  get stacked diagnostics v_field = pg_exception_detail, v_words = message_text;
  return v_field || coalesce(substring(v_words from ', (?:has|is) [^,]*$'), '');
end $$;

select leasehold.set_policy('bounds.short', min_duration => '100 ms', max_duration => '1000 years');

select cmp_ok(count(*), '>', 40::bigint, 'there are cases') from given;
select is(pg_temp.problem(kind, value) is null, words is null, name || coalesce(': ' || words, ' is within its bounds'))
  from given where kind in ('namespace', 'key', 'label_name', 'label_value');
select is(pg_temp.refused(kind, value), case when words is null then '' when kind like 'label%' then 'labels' else kind end || coalesce(substring(words from ', (?:has|is) [^,]*$'), ''), name)
  from given where value <> '3153600001000000'; -- SQL takes durations of up to 1000 years
select * from finish();
