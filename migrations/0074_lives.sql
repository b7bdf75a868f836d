-- A new life of the database is a new row. Whoever notices it adds one, whatever other sessions have open, and locks nothing that anybody waits for:
-- while one row was changed, a transaction that kept it locked kept the new life from being written. So old rows may stay for a while; the
-- largest number counts. Locks leasehold.incarnation and its marker, for a moment; nothing is rewritten.
alter table leasehold.incarnation
  drop constraint incarnation_pkey,
  drop constraint incarnation_only_row,
  drop column only_row,
  add constraint incarnation_pkey primary key (id);
comment on table leasehold.incarnation is
  'Lives of this database, of which the one with the largest id counts; when a new one begins, every lease gets one whole duration and grace to be renewed';
comment on column leasehold.incarnation.id is 'From leasehold.life_number';

create sequence leasehold.life_number as bigint minvalue 1 cache 1;
comment on sequence leasehold.life_number is 'Numbers of the database''s lives';
select setval('leasehold.life_number', (select max(i.id) + 1 from leasehold.incarnation i), false);

-- A sequence, for its value is seen by everybody at once, whatever the snapshot.
create sequence leasehold.life_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.life_mark is 'The transaction that wrote down the last life of the database (see check_life_mark)';

-- Without a key: an insert must not wait for another session's.
alter table leasehold.incarnation_marker
  drop constraint incarnation_marker_pkey,
  drop constraint incarnation_marker_only_row,
  drop column only_row,
  add column life bigint;
comment on table leasehold.incarnation_marker is 'Has rows while the database has not crashed since the last life was written down';
comment on column leasehold.incarnation_marker.life is 'The life in which the row was written';

-- Their answers are others now, or they are no more.
drop function if exists leasehold_internal.life_facts();
drop function if exists leasehold_internal.renew_incarnation(text);
drop function if exists leasehold_internal.life_of_holders();
drop function if exists leasehold_internal.pin_incarnation();
