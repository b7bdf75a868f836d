-- How the lease of this lease key ended: released, failed, expired, forced or max_hold. Returns null while it is held, and where the scope
-- does not remember it: of exclusive leases it remembers the last eight. A lease whose holder heard that it is lost has expired, before its reap too. Locks nothing.
create or replace function leasehold.end_reason(namespace text, key text, lease_key uuid) returns text
language plpgsql stable
security definer
as $$
declare
  v_denial text := leasehold_internal.denial('lease', end_reason.namespace);
  v_problem leasehold_internal.problem := leasehold_internal.holder_problem(end_reason.namespace, end_reason.key, end_reason.lease_key);
begin
  {{checked.text}}
  return coalesce(
    (select coalesce(leasehold_internal.end_reason(s, end_reason.lease_key), case when s.lapsed and s.lease_key = end_reason.lease_key then 'expired' end)
       from leasehold.scope s
      where s.namespace = end_reason.namespace and s.key = end_reason.key),
    (select case when h.state <> 'ended' then 'expired' when h.outcome = 'ok' then 'released' else h.outcome end
       from leasehold.share h
      where h.namespace = end_reason.namespace and h.key = end_reason.key and h.lease_key = end_reason.lease_key and (h.state = 'ended' or h.lapsed)));
end
$$;
comment on function leasehold.end_reason is
  'How the lease of a lease key ended, or null while it is held. Example:
  select leasehold.end_reason(''jobs'', ''nightly'', :''lease_key'')';

grant execute on function leasehold.end_reason to leasehold_client, leasehold_admin;
