//! A lease that begins or ends in a transaction of the application's: its row commits with the application's, or neither does.
//!
//! This module begins the transaction and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until the
//! commit that releases it. When the connection breaks at COMMIT, a heartbeat tells whether the lease is held: the transaction has its row locked,
//! so no answer comes before the transaction's end.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

use crate::client::{Client, Core, new_uuid};
use crate::clock::now;
use crate::error::{Error, Lost, Reason};
use crate::lease::{Cell, Lease};
use crate::release::Outcome;
use crate::request::{LeaseBuilder, Ref, Request};
use crate::session::{from_sql, place, text};
use crate::sql::{InTheWay, Wanted, grant_of, held_of, reason_of};
use crate::statements::{ACQUIRE, CONTENTION, END_REASON, GUARD, RELEASE_FAIL, RELEASE_OK};
use crate::telemetry::Acquiring;
use crate::transport::Beat;

const LOOK: Duration = Duration::from_millis(50);

/// Declares the same for two kinds of connections, whose methods have the same names.
macro_rules! transactions {
    ($db:ty, $tx:ty, [$($acquiring:tt)*], [$($releasing:tt)*], [$($async:tt)*], [$($await:tt)*]) => {
        $($async)* fn begin<E: From<Error> + From<tokio_postgres::Error>>(db: &mut $db) -> Result<Transaction<'_>, E> {
            check_idle(&db.simple_query(IDLE)$($await)*?)?;
            Ok(db.transaction()$($await)*?)
        }

        pub(super) $($async)* fn acquire<E, F: $($acquiring)*>(wanted: LeaseBuilder, db: &mut $db, work: F) -> Result<Lease, E>
        where
            E: From<Error> + From<tokio_postgres::Error>,
        {
            let (client, mut request) = wanted.for_transaction()?;
            request.scope.lease_key = new_uuid();
            let mut tx = begin::<E>(db)$($await)*?;
            let mut story = Acquiring::begin(&client.core().instruments, &request);
            let lease = match open(&mut tx, &client, &request, &mut story, work)$($await)* {
                Ok(lease) => lease,
                Err(error) => {
                    story.failed();
                    let _ = tx.rollback()$($await)*;
                    return Err(error);
                }
            };
            let entering = Entering { lease: &lease, is_known: false };
            match tx.commit()$($await)* {
                Ok(()) => {}
                Err(error) if is_answered(&error) => {
                    entering.known();
                    story.failed();
                    return Err(error.into());
                }
                Err(error) => match settle(&lease)$($await)* {
                    Some((deadline, Beat::Renewed { is_final, .. })) => lease.cell.extend(deadline, is_final),
                    _ => {
                        story.failed();
                        return Err(unknown(&lease.cell.scope, &error).into());
                    }
                },
            }
            entering.known();
            lease.begin();
            story.granted(lease.token());
            lease.cell.begin_story(&story);
            Ok(lease)
        }

        $($async)* fn open<E, F: $($acquiring)*>(
            tx: &mut Transaction<'_>,
            client: &Client,
            request: &Request,
            story: &mut Acquiring,
            work: F,
        ) -> Result<Lease, E>
        where
            E: From<Error> + From<tokio_postgres::Error>,
        {
            let sent = now();
            let rows = tx.query_typed(ACQUIRE, &Wanted::new(request).values())$($await)*.map_err(|error| of::<E>(&request.scope, error))?;
            let Some(row) = rows.first() else {
                let row = tx.query_typed_one(CONTENTION, &InTheWay::new(request).values())$($await)*?;
                let held = Error::Held(Box::new(held_of(request, &row)));
                story.refused(&held);
                return Err(held.into());
            };
            let lease = Lease::opened(client, request, grant_of(row, sent));
            work(tx, &lease)$($await)*?;
            tx.batch_execute("select")$($await)*?; // COMMIT would hide that a statement has failed
            lease.cell.check_time()?;
            Ok(lease)
        }

        pub(super) $($async)* fn release<T, E, F: $($releasing)*>(lease: &Lease, db: &mut $db, outcome: Outcome, work: F) -> Result<T, E>
        where
            E: From<Error> + From<tokio_postgres::Error>,
        {
            lease.cell.check_change("released in a transaction")?;
            let mut tx = begin::<E>(db)$($await)*?;
            let (value, leaving) = match leave(&mut tx, lease, &outcome, work)$($await)* {
                Ok(released) => released,
                Err(error) => {
                    let _ = tx.rollback()$($await)*;
                    return Err(error);
                }
            };
            match tx.commit()$($await)* {
                Ok(()) => Ok(leaving.left(value)),
                Err(error) if is_answered(&error) => Err(error.into()),
                Err(error) => {
                    let found = settle(lease)$($await)*;
                    if leaving.has_left(&outcome, found, &error)? { Ok(leaving.left(value)) } else { Err(error.into()) }
                }
            }
        }

        $($async)* fn leave<'a, T, E, F: $($releasing)*>(
            tx: &mut Transaction<'_>,
            lease: &'a Lease,
            outcome: &Outcome,
            work: F,
        ) -> Result<(T, Leaving<'a>), E>
        where
            E: From<Error> + From<tokio_postgres::Error>,
        {
            let (cell, scope) = (&lease.cell, &lease.cell.scope);
            let value = work(tx)$($await)*?;
            let leaving = Leaving::new(lease)?;
            await_renewal(lease)$($await)*;
            let [namespace, key, lease_key] = place(scope);
            let values = [namespace, key, lease_key, text(&outcome.value)];
            let release = if outcome.is_failed { RELEASE_FAIL } else { RELEASE_OK };
            if tx.query_typed_one(release, &values)$($await)*.map_err(|error| of::<E>(scope, error))?.get(0) {
                return Ok((value, leaving));
            }
            let reason = reason_of(tx.query_typed_one(END_REASON, &values[..3])$($await)*?.get(0));
            cell.lose(reason, "");
            let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
            Err(Error::Lost(Lost { namespace, key, reason, message: String::new() }).into())
        }

        pub(super) $($async)* fn guard(lease: &Lease, tx: $tx) -> Result<(), Error> {
            let (scope, token) = (&lease.cell.scope, lease.token());
            let [namespace, key, _] = place(scope);
            let values = [namespace, key, (&token, Type::INT8)];
            tx.execute_typed(GUARD, &values)$($await)*.map(drop).map_err(|error| from_sql(scope, &error))
        }
    };
}

mod awaiting {
    use tokio_postgres::Transaction;

    use super::*;

    transactions!(
        tokio_postgres::Client,
        &Transaction<'_>,
        [AsyncFnOnce(&Transaction<'_>, &Lease) -> Result<(), E>],
        [AsyncFnOnce(&Transaction<'_>) -> Result<T, E>],
        [async],
        [.await]
    );

    async fn settle(lease: &Lease) -> Option<(Duration, Beat)> {
        lease.client.settle(lease).await
    }

    async fn await_renewal(lease: &Lease) {
        lease.cell.await_renewal().await;
    }
}

#[cfg(feature = "postgres")]
mod blocking {
    use postgres::Transaction;

    use super::*;

    transactions!(
        postgres::Client,
        &mut Transaction<'_>,
        [FnOnce(&mut Transaction<'_>, &Lease) -> Result<(), E>],
        [FnOnce(&mut Transaction<'_>) -> Result<T, E>],
        [],
        []
    );

    fn settle(lease: &Lease) -> Option<(Duration, Beat)> {
        lease.client.core().handle.block_on(lease.client.settle(lease))
    }

    fn await_renewal(lease: &Lease) {
        lease.client.core().handle.block_on(lease.cell.await_renewal());
    }
}

impl LeaseBuilder {
    /// Acquires in a transaction that it begins, and commits when the work has returned: from then on the lease is held, and renewed. An error or a
    /// panic of the work rolls back, and nobody holds it. It does not wait. `db` is a connection to the database that the daemon coordinates in. When it
    /// breaks at COMMIT the outcome is looked up; [`Error::UnknownOutcome`] says that it could not be.
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn work(client: leasehold::Client, mut db: tokio_postgres::Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    /// let lease = client.lease("calls", "42").acquire_in(&mut db, async |tx, lease| {
    ///     tx.execute("update call set state = 'running', token = $1 where id = 42", &[&lease.token()]).await?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_in<E>(
        self,
        db: &mut tokio_postgres::Client,
        work: impl AsyncFnOnce(&tokio_postgres::Transaction<'_>, &Lease) -> Result<(), E>,
    ) -> Result<Lease, E>
    where
        E: From<Error> + From<tokio_postgres::Error>,
    {
        awaiting::acquire(self, db, work).await
    }
}

impl Lease {
    /// Releases the lease in a transaction that it begins, and commits when the work has returned; `db` is a connection to the database that the daemon
    /// coordinates in. An error or a panic of the work rolls back: then the lease goes on, and is renewed. When the connection breaks at COMMIT the
    /// outcome is looked up: `Ok` says that all of it is committed, [`Error::UnknownOutcome`] that nobody knows, and any other error that nothing is.
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn work(lease: leasehold::Lease, mut db: tokio_postgres::Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    /// lease.release_in(&mut db, leasehold::Outcome::success(), async |tx| {
    ///     tx.execute("update call set state = 'done' where id = 42", &[]).await?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_in<T, E>(
        &self,
        db: &mut tokio_postgres::Client,
        outcome: Outcome,
        work: impl AsyncFnOnce(&tokio_postgres::Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<Error> + From<tokio_postgres::Error>,
    {
        awaiting::release(self, db, outcome, work).await
    }

    /// Makes the transaction fail with [`Error::Lost`] unless the lease is held. If it passes, nobody else gets the lease before the transaction ends. The
    /// database is the one that the daemon coordinates in.
    pub async fn guard(&self, tx: &tokio_postgres::Transaction<'_>) -> Result<(), Error> {
        awaiting::guard(self, tx).await
    }
}

#[cfg(feature = "postgres")]
impl crate::blocking::Client {
    /// [`LeaseBuilder::acquire_in`]
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # fn work(client: leasehold::blocking::Client, mut db: postgres::Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    /// let lease = client.acquire_in(client.lease("calls", "42"), &mut db, |tx, lease| {
    ///     tx.execute("update call set state = 'running', token = $1 where id = 42", &[&lease.token()])?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_in<E>(
        &self,
        lease: LeaseBuilder,
        db: &mut postgres::Client,
        work: impl FnOnce(&mut postgres::Transaction<'_>, &Lease) -> Result<(), E>,
    ) -> Result<Lease, E>
    where
        E: From<Error> + From<postgres::Error>,
    {
        blocking::acquire(lease, db, work)
    }

    /// [`Lease::release_in`]
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # use leasehold::{Lease, Outcome, blocking::Client};
    /// # fn work(client: Client, lease: Lease, mut db: postgres::Client) -> Result<(), Box<dyn Error + Send + Sync>> {
    /// client.release_in(&lease, &mut db, Outcome::success(), |tx| {
    ///     tx.execute("update call set state = 'done' where id = 42", &[])?;
    ///     Ok::<_, Box<dyn Error + Send + Sync>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_in<T, E>(
        &self,
        lease: &Lease,
        db: &mut postgres::Client,
        outcome: Outcome,
        work: impl FnOnce(&mut postgres::Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<Error> + From<postgres::Error>,
    {
        blocking::release(lease, db, outcome, work)
    }

    /// [`Lease::guard`]
    pub fn guard(&self, lease: &Lease, tx: &mut postgres::Transaction<'_>) -> Result<(), Error> {
        blocking::guard(lease, tx)
    }
}

/// A lease that the next COMMIT acquires. It is given up unless the outcome is known: the caller may drop the future meanwhile.
struct Entering<'a> {
    lease: &'a Lease,
    is_known: bool,
}

impl Entering<'_> {
    fn known(mut self) {
        self.is_known = true;
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            let cell = &self.lease.cell;
            self.lease.client.core().abandon(vec![cell.scope.clone()], cell.duration);
        }
    }
}

/// A lease that the next statement releases: it is not renewed. Dropped, it stays.
struct Leaving<'a> {
    lease: &'a Lease,
    has_left: bool,
}

impl<'a> Leaving<'a> {
    fn new(lease: &'a Lease) -> Result<Self, Error> {
        lease.cell.leave()?;
        lease.cell.story.releasing();
        Ok(Leaving { lease, has_left: false })
    }

    /// What has become of it, after a COMMIT that was not answered.
    fn has_left(&self, outcome: &Outcome, found: Option<(Duration, Beat)>, error: &tokio_postgres::Error) -> Result<bool, Error> {
        let (cell, meant) = (&self.lease.cell, if outcome.is_failed { Reason::Failed } else { Reason::Released });
        match found {
            Some((_, Beat::Lost { reason, .. })) if reason == meant => return Ok(true),
            Some((deadline, Beat::Renewed { is_final, .. })) => cell.extend(deadline, is_final),
            Some((_, Beat::Lost { reason, message })) if reason != Reason::Unknown => cell.lose(reason, &message),
            _ => {
                cell.lose(Reason::Unreachable, "nobody answered the COMMIT of the transaction that released it");
                self.lease.client.core().abandon(vec![cell.scope.clone()], cell.duration);
                return Err(unknown(&cell.scope, error));
            }
        }
        Ok(false)
    }

    fn left<T>(mut self, value: T) -> T {
        self.has_left = true;
        self.lease.cell.set_released();
        self.lease.cell.story.ended(None);
        value
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.has_left {
            self.lease.cell.stay();
            self.lease.cell.story.stayed(None);
            self.lease.client.core().look();
        }
    }
}

impl Client {
    /// What has become of a lease, and its deadline; `None`: nobody knows.
    async fn settle(&self, lease: &Lease) -> Option<(Duration, Beat)> {
        let (core, cell) = (self.core().clone(), lease.cell.clone());
        self.run(async move { Ok(core.settle(&cell).await) }).await.ok().flatten()
    }
}

impl Core {
    async fn settle(&self, cell: &Cell) -> Option<(Duration, Beat)> {
        let until = now() + self.settings.patience;
        while now() < until && !self.is_closing() {
            let (sent, patience) = (now(), until.saturating_sub(now()).min(Duration::from_secs(1)));
            match self.transport.heartbeat(&[cell.renewal()], patience).await.map(|mut beats| beats.remove(0)) {
                Ok(Beat::Renewed { remaining, is_final, asked }) => {
                    return Some((sent + remaining, Beat::Renewed { remaining, is_final, asked }));
                }
                Ok(lost @ Beat::Lost { .. }) => return Some((sent, lost)),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
        None
    }
}

/// A connection that has a transaction open is refused: the COMMIT would be of what somebody else has begun. Outside of one a simple query is its own
/// transaction, which begins with it.
pub(crate) const IDLE: &str = "select now() = statement_timestamp()";

pub(crate) fn check_idle(said: &[SimpleQueryMessage]) -> Result<(), Error> {
    let is_idle = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t"));
    if said.iter().any(is_idle) {
        return Ok(());
    }
    Err(Error::out_of_bounds("db", "db", "must have no transaction open: this begins one, and commits it".into()))
}

/// An error of this crate for a condition of Leasehold's, else the driver's own.
fn of<E: From<Error> + From<tokio_postgres::Error>>(scope: &Ref, error: tokio_postgres::Error) -> E {
    match error.code() {
        Some(code) if code.code().starts_with("LH") => from_sql(scope, &error).into(),
        _ => error.into(),
    }
}

/// PostgreSQL says that the transaction was rolled back. A server that shuts down says nothing of it.
pub(crate) fn is_answered(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| !code.code().starts_with("08") && !code.code().starts_with("57P"))
}

fn unknown(scope: &Ref, error: &tokio_postgres::Error) -> Error {
    Error::UnknownOutcome { namespace: scope.namespace.clone(), key: scope.key.clone(), message: crate::status::words_of(error) }
}
