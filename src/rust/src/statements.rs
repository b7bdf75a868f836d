//! What is said to PostgreSQL.

/// What is read of a lease.
macro_rules! granting {
    ($($rest:literal)*) => {
        concat!("select g.token, g.left_s, g.units, g.slots, g.is_final " $(, $rest)*)
    };
}

pub const ACQUIRE: &str = granting!(
    "from leasehold.acquire_one($1::text, $2::text, $3::float8, $4::text, $5::text::uuid, $6::text::jsonb, $7::float8, $8::text, $9::integer, $10::integer) g"
);
pub const ACQUIRE_ALL: &str = granting!(
    "from leasehold.acquire_all($1::text[], $2::text[], make_interval(secs => $3::float8), $4::text, $5::text::uuid, $6::text::jsonb,
                                $7::text[], $8::integer[]) l, leasehold.granted(l) g"
);
pub const CLAIM: &str = granting!(
    ", (c.lease).key, c.at, c.attempt
      from leasehold.claim_tick($1::text, $2::text, make_interval(secs => $3::float8), $4::text::uuid, $5::text::jsonb) c, leasehold.granted(c.lease) g"
);
pub const DOWNGRADE: &str = granting!("from leasehold.downgrade_soon($1::text, $2::text, $3::text::uuid, $4::integer) l, leasehold.granted(l) g");
pub const JOIN_QUEUE: &str = "
    select channel
      from leasehold.join_queue($1::text, $2::text, $3::text::uuid, make_interval(secs => $4::float8), $5::text, $6::integer, priority => $7::integer)";
pub const LEAVE_QUEUE: &str = "select leasehold.leave_each($1::text[], $2::text[], $3::text[]::uuid[])";
/// Of the first that is in the way.
pub const CONTENTION: &str = "
    select state, coalesce(holder, ''), waiters, advice, holders, units_free, coalesce(is_alive, false), coalesce(silent_s, 0), coalesce(held_s, 0), n,
           holders_now
      from leasehold.contention($1::text[], $2::text[], $3::text[])";
pub const HEARTBEAT: &str = "
    select coalesce(left_s, 0), coalesce(given_s, 0), reason from leasehold.heartbeat_each($1::text[], $2::text[], $3::text[]::uuid[])";
pub const END_REASON: &str = "select coalesce(leasehold.end_reason($1::text, $2::text, $3::text::uuid), '')";
pub const RELEASE: &str = "
    select reason
      from leasehold.release_each($1::text[], $2::text[], $3::text[]::uuid[], $4::boolean[], $5::text[], $6::text::interval) reason";
pub const ASK: &str = "select * from leasehold.ask_each($1::text, $2::text, nullif($3::text, '')::uuid, $4::text)";
pub const ASKED: &str = "select * from leasehold.asked_each($1::text[], $2::text[], $3::text[]::uuid[])";
pub const EXPLAIN: &str = "
    select state, advice, coalesce(liveness, ''), coalesce(holder, ''), coalesce(principal, ''), coalesce(token, 0), coalesce(units, 0), holders,
           waiters, coalesce(first_waiter, ''), since, coalesce(heartbeats, 0), last_heartbeat_at, expires_at, rests_until, policy::text
      from leasehold.explain($1::text, $2::text)";
pub const REFUSE: &str = "select leasehold.refuse_hand_over($1::text, $2::text, $3::text::uuid, $4::text)";
pub const TICK_CHANNEL: &str = "select leasehold.tick_channel($1::text)";
pub const UNTIL_TICK: &str = "select extract(epoch from leasehold.until_tick($1::text))::float8";
pub const RELEASE_OK: &str = "select leasehold.release_ok($1::text, $2::text, $3::text::uuid, nullif($4::text, '')::jsonb)";
pub const RELEASE_FAIL: &str = "select leasehold.release_fail($1::text, $2::text, $3::text::uuid, $4::text)";
pub const GUARD: &str = "select leasehold.guard($1::text, $2::text, $3::bigint)";
