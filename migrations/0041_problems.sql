-- What is wrong with a call is a value, which the called function of the API raises itself: an error has no CONTEXT of internal
-- functions. Those that raised it go; change_policy() and
-- release_one() return it now. Locks nothing.
create type leasehold_internal.problem as (field text, bound text);
comment on type leasehold_internal.problem is 'A field of a call that is refused, and what it must be; null: nothing is';

drop function if exists
  leasehold_internal.refuse(text, text),
  leasehold_internal.refuse_acquire(text, text, text, text, text, text),
  leasehold_internal.check_scope(text, text),
  leasehold_internal.check_holder(text, text, uuid),
  leasehold_internal.check_acquire(text, text, interval, text, uuid, jsonb),
  leasehold_internal.check_hook_event(text, text),
  leasehold_internal.check_policy_namespace(text),
  leasehold_internal.is_hopeless(text, text, uuid),
  leasehold_internal.release_one(text, text, uuid, boolean, text),
  leasehold_internal.change_policy(text, text[], text[]),
  -- acquire_general() now.
  leasehold_internal.acquire_carefully(uuid, timestamptz, text[], text[], uuid[], text[], text[], bigint[], boolean[], bigint[], bigint[]);
