-- Patterns among the rules, which each call of the SQL API looks through. Its lock holds up who changes rules, for a moment.
create index access_rule_pattern on leasehold.access_rule (namespace) where right(principal, 1) = '*';
drop function if exists leasehold_internal.is_session(text);
