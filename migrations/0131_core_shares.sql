-- core_rules() has another column now, core_granted() and core_released() another argument. Locks nothing that a client waits for.
drop function if exists leasehold_internal.core_rules(text);
drop function if exists leasehold_internal.core_granted(text[], text[]);
drop function if exists leasehold_internal.core_released(text[], text[]);
