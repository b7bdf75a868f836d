-- Bearer tokens: lht_, 43 characters of base64url that stand for 256 random bits, and 6 of checksum: how the base64url of the SHA-256 of
-- those 47 characters begins. The table has the SHA-256 of all 53.

-- Base64 for URLs, without padding. Locks nothing.
create or replace function leasehold_internal.base64url(p_bytes bytea) returns text
language sql immutable parallel safe
as $$
  select translate(encode(p_bytes, 'base64'), E'+/=\n', '-_')
$$;

-- A new token. Each UUID has 122 random bits from the operating system, so that three have more than the hash can hold. Locks nothing.
create or replace function leasehold_internal.new_token() returns text
language plpgsql volatile
as $$
declare
  v_token constant text := 'lht_' || leasehold_internal.base64url(
    sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
begin
  return v_token || left(leasehold_internal.base64url(sha256(convert_to(v_token, 'UTF8'))), 6);
end
$$;

-- What is wrong with a new token's name or age; null when nothing is. A name never looks like an ID, as make_token() makes them: to revoke
-- one must not revoke the other. Locks nothing.
create or replace function leasehold_internal.token_problem(p_name text, p_expires interval) returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
begin
  return case
    when p_name is null or p_name !~ '^[a-z0-9._-]{1,63}$' then
      row('name', '1 to 63 of a-z, 0-9, ''.'', ''_'' and ''-''')::leasehold_internal.problem
    when p_name ~ '^[0-9a-f]{8}$' then
      row('name', 'other than 8 of 0-9 and a-f, which is what IDs of tokens are')::leasehold_internal.problem
    when p_expires <= interval '0' or p_expires > interval '1000 years' then
      row('expires', 'more than 0, at most 1000 years' || leasehold_internal.is_words(p_expires))::leasehold_internal.problem
  end;
end
$$;

-- Make a token. Returns it: it is shown this once. Locks what access_changed() does.
create or replace function leasehold_internal.make_token(
  p_by text, p_peer text, p_name text, p_expires interval, out id text, out token text, out created_at timestamptz, out expires_at timestamptz)
language plpgsql
as $$
begin
  token := leasehold_internal.new_token();
  created_at := clock_timestamp();
  expires_at := created_at + p_expires;
  loop
    id := left(replace(gen_random_uuid()::text, '-', ''), 8);
    insert into leasehold.access_token (id, name, hash, created_at, created_by, expires_at)
    values (make_token.id, p_name, sha256(convert_to(make_token.token, 'UTF8')), make_token.created_at,
            leasehold_internal.principal_of_call(p_by), make_token.expires_at)
        on conflict on constraint access_token_pkey do nothing;
    exit when found;
  end loop;
  perform leasehold_internal.access_changed();
  perform leasehold_internal.audit_add(p_by, p_peer, 'token_create', '', null, null,
                                       format('%s (%s)%s', p_name, id, coalesce(', expires in ' || p_expires, '')));
end
$$;

-- Revoke one token by its ID, or all of a name. Returns how many there were. Locks their rows and what access_changed() does.
create or replace function leasehold_internal.drop_tokens(p_by text, p_peer text, p_name_or_id text) returns bigint
language plpgsql
as $$
declare
  v_ids text[];
begin
  with gone as (
    delete from leasehold.access_token t where t.name = p_name_or_id or t.id = p_name_or_id returning t.name, t.id)
  select array_agg(format('%s (%s)', g.name, g.id) order by g.name, g.id) into v_ids from gone g;
  if v_ids is null then
    return 0;
  end if;
  perform leasehold_internal.access_changed();
  perform leasehold_internal.audit_add(p_by, p_peer, 'token_revoke', '', null, null, left(array_to_string(v_ids, ', '), 8192), 'done',
                                       cardinality(v_ids));
  return cardinality(v_ids);
end
$$;

-- Make a token for the principal token:NAME. Returns it once, with its ID and when it expires (null: never). Locks what make_token() does.
create or replace function leasehold.token_create(name text, expires interval default null)
returns table (token text, id text, expires_at timestamptz)
language plpgsql
security definer
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.token_problem(name, expires);
begin
  {{refused.text}}
  return query select m.token, m.id, m.expires_at from leasehold_internal.make_token(null, null, name, expires) m;
end
$$;
comment on function leasehold.token_create is
  'Make a bearer token of the principal token:NAME: shown this once, with its ID and when it expires. Example:
  select * from leasehold.token_create(''ci'', expires => ''90 days'')';

-- Revoke one token by its ID, or all of a name. Returns how many there were. Daemons obey within a second. Locks what drop_tokens() does.
create or replace function leasehold.token_revoke(name_or_id text) returns bigint
language plpgsql
security definer
as $$
begin
  if name_or_id is null then
    raise exception 'invalid_argument: name_or_id must be a name or an ID'
      using errcode = 'LH002', detail = 'name_or_id', hint = 'a name or an ID';
  end if;
  return leasehold_internal.drop_tokens(null, null, name_or_id);
end
$$;
comment on function leasehold.token_revoke is
  'Revoke the token with this ID, or all tokens of this name: how many. Example:
  select leasehold.token_revoke(''ci'')';

-- Both for a daemon: `p_by` and `p_peer` are its caller's principal and address. They wait for no longer than a second.
create or replace function leasehold_internal.token_create_by(p_by text, p_peer text, p_name text, p_expires interval)
returns table (id text, name text, token text, created_at timestamptz, expires_at timestamptz)
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.token_problem(p_name, p_expires));
  return query select m.id, p_name, m.token, m.created_at, m.expires_at from leasehold_internal.make_token(p_by, p_peer, p_name, p_expires) m;
end
$$;
comment on function leasehold_internal.token_create_by is 'Make a bearer token, by a coordinator';

create or replace function leasehold_internal.token_revoke_by(p_by text, p_peer text, p_name_or_id text) returns bigint
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  return leasehold_internal.drop_tokens(p_by, p_peer, p_name_or_id);
end
$$;
comment on function leasehold_internal.token_revoke_by is 'Revoke a bearer token, by a coordinator';

-- Those that are valid now, for a daemon. Locks nothing.
create or replace function leasehold_internal.access_tokens() returns table (id text, name text, hash bytea, expires_at timestamptz)
language sql volatile
security definer
as $$
  select t.id, t.name, t.hash, t.expires_at
    from leasehold.access_token t
   where t.expires_at is null or t.expires_at > clock_timestamp()
   order by t.id
$$;
comment on function leasehold_internal.access_tokens is 'The bearer tokens that are valid, as a coordinator reads them';

-- Daemons have seen these tokens. Writes at most once a minute for each. Locks their rows, skipping what others have.
create or replace function leasehold_internal.token_used(p_ids text[]) returns void
language sql volatile
security definer
as $$
  update leasehold.access_token t
     set last_used_at = clock_timestamp()
    from (select x.id
            from leasehold.access_token x
           where x.id = any (p_ids)
             and (x.last_used_at is null or x.last_used_at not between clock_timestamp() - interval '1 min' and clock_timestamp())
             for no key update skip locked) u
   where t.id = u.id
$$;
comment on function leasehold_internal.token_used is 'When bearer tokens were used last, by a coordinator';

grant execute on function leasehold.token_create, leasehold.token_revoke to leasehold_admin;
grant execute on function leasehold_internal.token_create_by, leasehold_internal.token_revoke_by, leasehold_internal.access_tokens,
  leasehold_internal.token_used to leasehold_coordinator;
