-- What rows of leases may be is checked by the tests (tests/lib/row_checks.sql), not by each statement of users: PostgreSQL read and planned the text
-- of the CHECKs anew for every statement that changed a row, which was a tenth of the CPU of an acquire and its release. People cannot write these
-- tables, and the functions write nothing else. ACCESS EXCLUSIVE locks for a moment.
alter table leasehold.scope drop constraint scope_state, drop constraint scope_outcome, drop constraint scope_held_has_key;
alter table leasehold.share drop constraint share_state, drop constraint share_outcome, drop constraint share_ended_is_whole, drop constraint share_units;
alter table leasehold.event drop constraint event_type, drop constraint event_end_reason, drop constraint event_is_whole;
alter table leasehold.history drop constraint history_outcome, drop constraint history_forced_by;
