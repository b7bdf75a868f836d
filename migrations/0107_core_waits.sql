-- core_rules() has another column now. Locks nothing that a client waits for.
drop function if exists leasehold_internal.core_rules(text);
