//! Ends what has expired, with work of the application's in the transaction of each end.

use std::error::Error as StdError;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::bounds::check_namespace;
use crate::error::Error;
use crate::release::Outcome;
use crate::request::Ref;
use crate::session::{Value, from_sql, text};
use crate::status::words_of;
use crate::transaction::{IDLE, check_idle, is_answered};

const MOST: i32 = 1000; // in a list
const LIST: &str = "
    select is_stale, until_us, check_at_us, namespace, key, coalesce(owner, ''), token, acquired_at_us, deadline_at_us, limit_us
      from leasehold_internal.reap_stale_list($1::text[], $2::boolean, $3::integer, $4::bigint, $5::bigint, $6::text, $7::text, $8::bigint)";
const END: &str = "select kind from leasehold_internal.reap_hooked(null, null, $1::text, $2::text, $3::bigint)";
const AUDIT: &str = "select leasehold_internal.audit_reaped(array[$1::text])";
const FAILED: &str = "select from leasehold_internal.reap_failed(null, $1::text, $2::text, $3::bigint, $4::text)";

/// A lease that its holder left to expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleLease {
    /// Dotted: payments.invoices.
    pub namespace: String,
    /// The name inside of the namespace.
    pub key: String,
    /// What the holder said of itself.
    pub owner: String,
    /// Its fencing token.
    pub token: i64,
    /// By the database's clock.
    pub acquired_at: SystemTime,
    /// By the database's clock.
    pub deadline: SystemTime,
    /// The time for what is done at its end: `hook_timeout` of the policy; 0: none.
    pub limit: Duration,
}

/// How many leases a reap was about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// They are free.
    pub ended: u64,
    /// A hook, or what was to be done, failed: they stay expired, and are reaped later.
    pub failed: u64,
}

/// What [`reap_stale`] is called back with.
pub type Reaping<'a> = Pin<Box<dyn Future<Output = Result<(), Box<dyn StdError + Send + Sync>>> + Send + 'a>>;

struct Reaper {
    namespaces: Option<Vec<String>>,
    children: bool,
    /// A sweep by name passes over what has failed since the first began.
    until: Option<i64>,
    done: Reaped,
}

/// Of the list.
struct Found {
    is_stale: bool,
    check_at: Option<i64>,
    lease: StaleLease,
}

impl Reaper {
    fn new(namespaces: &[&str], children: bool) -> Result<Reaper, Error> {
        namespaces.iter().try_for_each(|each| check_namespace(each))?;
        let some = namespaces.iter().map(|each| each.to_string()).collect();
        let namespaces = if namespaces.is_empty() { None } else { Some(some) };
        Ok(Reaper { namespaces, children, until: None, done: Reaped::default() })
    }

    fn read(&mut self, row: &Row) -> Found {
        let micros = |at| Duration::from_micros(row.get::<_, Option<i64>>(at).unwrap_or_default().max(0) as u64);
        self.until = row.get(1);
        let lease = StaleLease {
            namespace: row.get(3),
            key: row.get(4),
            owner: row.get(5),
            token: row.get(6),
            acquired_at: UNIX_EPOCH + micros(7),
            deadline: UNIX_EPOCH + micros(8),
            limit: micros(9),
        };
        Found { is_stale: row.get(0), check_at: row.get(2), lease }
    }
}

impl StaleLease {
    fn values(&self) -> [Value<'_>; 3] {
        [text(&self.namespace), text(&self.key), (&self.token, Type::INT8)]
    }

    fn timeout(&self) -> String {
        format!("set local statement_timeout = {}", self.limit.as_millis())
    }

    fn over(&self) -> String {
        format!("it ran over its limit of {:?}", self.limit)
    }
}

fn of(error: tokio_postgres::Error) -> Error {
    from_sql(&Ref { namespace: String::new(), key: String::new(), lease_key: String::new() }, &error)
}

/// What a lease's own transaction failed with, or else what is wrong with all.
fn trouble(error: tokio_postgres::Error) -> Result<String, Error> {
    if is_answered(&error) { Ok(words_of(&error)) } else { Err(of(error)) }
}

/// Declares the same for two kinds of connections, whose methods have the same names.
macro_rules! reaping {
    ($db:ty, [$($bound:tt)*], [$($async:tt)*], [$($await:tt)*]) => {
        pub(super) $($async)* fn reap<F: $($bound)*>(db: &mut $db, namespaces: &[&str], children: bool, mut end: F) -> Result<Reaped, Error> {
            let mut reaper = Reaper::new(namespaces, children)?;
            check_idle(&db.simple_query(IDLE)$($await)*.map_err(of)?)?;
            loop {
                let before = reaper.done.ended;
                sweep(db, &mut reaper, &mut end)$($await)*?;
                if reaper.done.ended == before {
                    return Ok(reaper.done);
                }
            }
        }

        /// Looks at everything once.
        $($async)* fn sweep<F: $($bound)*>(db: &mut $db, reaper: &mut Reaper, end: &mut F) -> Result<(), Error> {
            let mut after = None;
            if reaper.namespaces.is_none() {
                reaper.until = None;
            }
            loop {
                let found = list(db, reaper, after)$($await)*?;
                let is_last = found.len() < MOST as usize;
                for each in found.iter().filter(|each| each.is_stale) {
                    visit(db, reaper, &each.lease, end)$($await)*?;
                }
                if is_last {
                    return Ok(());
                }
                after = found.into_iter().last();
            }
        }

        $($async)* fn list(db: &mut $db, reaper: &mut Reaper, after: Option<Found>) -> Result<Vec<Found>, Error> {
            let (check_at, from) = (after.as_ref().and_then(|found| found.check_at), after.map(|found| found.lease));
            let of_last = |part: fn(&StaleLease) -> &str| from.as_ref().map(part);
            let (namespace, key, token) = (of_last(|lease| &lease.namespace), of_last(|lease| &lease.key), from.as_ref().map(|lease| lease.token));
            let rows = {
                let values: [Value<'_>; 8] = [
                    (&reaper.namespaces, Type::TEXT_ARRAY),
                    (&reaper.children, Type::BOOL),
                    (&MOST, Type::INT4),
                    (&reaper.until, Type::INT8),
                    (&check_at, Type::INT8),
                    text(&namespace),
                    text(&key),
                    (&token, Type::INT8),
                ];
                db.query_typed(LIST, &values)$($await)*.map_err(of)?
            };
            Ok(rows.iter().map(|row| reaper.read(row)).collect())
        }

        /// One lease in one transaction; the error is of the whole.
        $($async)* fn visit<F: $($bound)*>(db: &mut $db, reaper: &mut Reaper, lease: &StaleLease, end: &mut F) -> Result<(), Error> {
            if let Some(words) = try_end(db, reaper, lease, end)$($await)*? {
                let failure = Outcome::failure(words).value;
                let [namespace, key, token] = lease.values();
                db.query_typed(FAILED, &[namespace, key, token, text(&failure)])$($await)*.map_err(of)?;
                reaper.done.failed += 1;
            }
            Ok(())
        }

        /// `Some`: what its transaction failed with.
        #[allow(unused_mut)]
        $($async)* fn try_end<F: $($bound)*>(db: &mut $db, reaper: &mut Reaper, lease: &StaleLease, end: &mut F) -> Result<Option<String>, Error> {
            let mut tx = db.transaction()$($await)*.map_err(of)?;
            tx.batch_execute(&lease.timeout())$($await)*.map_err(of)?;
            let rows = match tx.query_typed(END, &lease.values())$($await)* {
                Ok(rows) => rows,
                Err(error) => return trouble(error).map(Some),
            };
            // None: somebody else has ended it, or renewed it. Else a hook may have refused, and that is written down.
            let kind = rows.first().map_or("", |row| row.get(0));
            if kind == "reaped" {
                if let Err(error) = call(&mut tx, lease, end)$($await)* {
                    return Ok(Some(words_of(&*error)));
                }
                // COMMIT would hide that a statement has failed.
                let named = reaper.namespaces.is_some();
                let checked = if named { tx.query_typed(AUDIT, &lease.values()[..1])$($await)*.map(drop) } else { tx.batch_execute("select")$($await)* };
                if let Err(error) = checked {
                    return trouble(error).map(Some);
                }
            }
            if let Err(error) = tx.commit()$($await)* {
                return trouble(error).map(Some);
            }
            reaper.done.ended += u64::from(kind == "reaped");
            reaper.done.failed += u64::from(!["", "reaped"].contains(&kind));
            Ok(None)
        }
    };
}

mod awaiting {
    use tokio_postgres::{Client, Transaction};

    use super::*;

    reaping!(Client, [for<'a> FnMut(&'a Transaction<'a>, &'a StaleLease) -> Reaping<'a>], [async], [.await]);

    async fn call<F>(tx: &mut Transaction<'_>, lease: &StaleLease, end: &mut F) -> Result<(), Box<dyn StdError + Send + Sync>>
    where
        F: for<'a> FnMut(&'a Transaction<'a>, &'a StaleLease) -> Reaping<'a>,
    {
        let limit = if lease.limit.is_zero() { Duration::MAX } else { lease.limit };
        tokio::time::timeout(limit, end(tx, lease)).await.unwrap_or_else(|_| Err(lease.over().into()))
    }
}

/// Ends what has expired in these namespaces (none: in all but those with `reaper = external`), and with `children` also below them, each lease in a
/// transaction of its own, after the hooks in SQL. `end` is called in it: what it does through the transaction commits with the end of the lease. An
/// error rolls both back, is written down in leasehold.reap_failure, and delays no other lease; it is tried again with backoff. What was not
/// committed may be called again. What the work captures it owns. The role is a member of leasehold_admin or leasehold_coordinator. Any number of reapers and
/// daemons may run at once. It returns when no lease is due.
///
/// ```no_run
/// # async fn work(mut db: tokio_postgres::Client) -> Result<(), leasehold::Error> {
/// leasehold::reap_stale(&mut db, &["calls"], true, |tx, lease| Box::pin(async move {
///     tx.execute("update call set state = 'queued' where id::text = $1", &[&lease.key]).await?;
///     Ok(())
/// })).await?;
/// # Ok(())
/// # }
/// ```
pub async fn reap_stale<F>(db: &mut tokio_postgres::Client, namespaces: &[&str], children: bool, end: F) -> Result<Reaped, Error>
where
    F: for<'a> FnMut(&'a tokio_postgres::Transaction<'a>, &'a StaleLease) -> Reaping<'a>,
{
    awaiting::reap(db, namespaces, children, end).await
}

#[cfg(feature = "postgres")]
pub(crate) mod blocking {
    use postgres::{Client, Transaction};

    use super::*;
    use crate::clock::now;

    reaping!(Client, [FnMut(&mut Transaction<'_>, &StaleLease) -> Result<(), Box<dyn StdError + Send + Sync>>], [], []);

    fn call<F>(tx: &mut Transaction<'_>, lease: &StaleLease, end: &mut F) -> Result<(), Box<dyn StdError + Send + Sync>>
    where
        F: FnMut(&mut Transaction<'_>, &StaleLease) -> Result<(), Box<dyn StdError + Send + Sync>>,
    {
        let begun = now();
        end(tx, lease)?;
        if lease.limit.is_zero() || now() - begun <= lease.limit { Ok(()) } else { Err(lease.over().into()) }
    }

    /// [`crate::reap_stale`]
    ///
    /// ```no_run
    /// # fn work(mut db: postgres::Client) -> Result<(), leasehold::Error> {
    /// leasehold::blocking::reap_stale(&mut db, &["calls"], true, |tx, lease| {
    ///     tx.execute("update call set state = 'queued' where id::text = $1", &[&lease.key])?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reap_stale<F>(db: &mut Client, namespaces: &[&str], children: bool, end: F) -> Result<Reaped, Error>
    where
        F: FnMut(&mut Transaction<'_>, &StaleLease) -> Result<(), Box<dyn StdError + Send + Sync>>,
    {
        reap(db, namespaces, children, end)
    }
}
