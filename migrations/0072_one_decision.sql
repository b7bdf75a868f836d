-- One function decides about every batch now: decide(). What decided about shared leases goes. Locks these functions only.
drop function if exists leasehold_internal.decide_shared(leasehold.acquire_work[], leasehold.life_now, uuid[], timestamptz);
drop function if exists leasehold_internal.own_lease(
  leasehold.scope, leasehold.scope, uuid, text, integer, leasehold.rules, leasehold.life_now, timestamptz);
drop function if exists leasehold_internal.late_bound(text, integer, leasehold.rules, leasehold.scope);
drop aggregate if exists leasehold_internal.units_after_all(integer, integer, integer);
drop function if exists leasehold_internal.units_after(integer, integer, integer, integer);
