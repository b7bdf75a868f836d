-- Ended lease keys are remembered newest first, and how they ended only where it is not ok: so a release's WAL record is shorter. Rows that are there
-- stay as they are. Locks nothing that anybody waits for.
comment on column leasehold.scope.ended_keys is 'The last 8 to 16 lease keys that ended, newest first; those under subscripts from 1 may be newest last';
comment on column leasehold.scope.ended_outcomes is
  'How they ended, by their subscripts: failed, expired, forced, max_hold; ok, or nothing there, for ok';
