//! A lease that begins or ends in a transaction of the application's: its row commits with the application's, or neither does.
//!
//! This module begins the transaction and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until the
//! commit that releases it. When the connection breaks at COMMIT, a heartbeat tells whether the lease is held: the transaction has its row locked,
//! so no answer comes before the transaction's end.

use std::time::Duration;

use tokio_postgres::{SimpleQueryMessage, Transaction};

use crate::client::{Client, Core, new_uuid};
use crate::clock::now;
use crate::error::{Error, Lost, Reason};
use crate::lease::{Cell, Lease};
use crate::release::Outcome;
use crate::request::{LeaseBuilder, Ref};
use crate::session::{from_sql, place, text};
use crate::sql::{Wanted, grant_of, held_of, reason_of};
use crate::statements::{ACQUIRE, END_REASON, GUARD, HELD, RELEASE_FAIL, RELEASE_OK};
use crate::telemetry::Acquiring;
use crate::transport::Beat;

const LOOK: Duration = Duration::from_millis(50);

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
        work: impl AsyncFnOnce(&Transaction<'_>, &Lease) -> Result<(), E>,
    ) -> Result<Lease, E>
    where
        E: From<Error> + From<tokio_postgres::Error>,
    {
        let (client, mut request) = self.for_transaction()?;
        request.scope.lease_key = new_uuid();
        let tx = begin::<E>(db).await?;
        let mut story = Acquiring::begin(&client.core().instruments, &request);
        let acquired = async {
            let sent = now();
            let rows = tx.query_typed(ACQUIRE, &Wanted::new(&request).values()).await.map_err(|error| of::<E>(&request.scope, error))?;
            let Some(row) = rows.first() else {
                let row = tx.query_typed_one(HELD, &place(&request.scope)[..2]).await?;
                let held = Error::Held(Box::new(held_of(&request, &request.scope, &row)));
                story.refused(&held);
                return Err(held.into());
            };
            let lease = Lease::opened(&client, &request, grant_of(row, sent));
            work(&tx, &lease).await?;
            tx.batch_execute("select").await?; // COMMIT would hide that a statement has failed
            lease.cell.check_time()?;
            Ok(lease)
        };
        let lease = match acquired.await {
            Ok(lease) => lease,
            Err(error) => {
                story.failed();
                let _ = tx.rollback().await;
                return Err(error);
            }
        };
        match tx.commit().await {
            Err(error) if is_answered(&error) => {
                story.failed();
                return Err(error.into());
            }
            Err(error) => match client.settle(&lease).await? {
                Some((deadline, Beat::Renewed { is_final, .. })) => lease.cell.extend(deadline, is_final),
                _ => {
                    story.failed();
                    client.core().abandon(request.refs(), request.duration);
                    return Err(unknown(&lease.cell.scope, &error).into());
                }
            },
            Ok(()) => {}
        }
        lease.begin()?;
        story.granted(lease.token());
        lease.cell.begin_story(&story);
        Ok(lease)
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
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<Error> + From<tokio_postgres::Error>,
    {
        self.cell.check_change("released in a transaction")?;
        let (cell, scope) = (&self.cell, &self.cell.scope);
        let tx = begin::<E>(db).await?;
        let released = async {
            let value = work(&tx).await?;
            let leaving = Leaving::new(self)?;
            cell.await_renewal().await;
            let [namespace, key, lease_key] = place(scope);
            let values = [namespace, key, lease_key, text(&outcome.value)];
            let release = if outcome.is_failed { RELEASE_FAIL } else { RELEASE_OK };
            if tx.query_typed_one(release, &values).await.map_err(|error| of::<E>(scope, error))?.get(0) {
                return Ok((value, leaving));
            }
            let reason = reason_of(tx.query_typed_one(END_REASON, &values[..3]).await?.get(0));
            cell.lose(reason, "");
            let (namespace, key) = (scope.namespace.clone(), scope.key.clone());
            Err(Error::Lost(Lost { namespace, key, reason, message: String::new() }).into())
        };
        let (value, leaving) = match released.await {
            Ok(released) => released,
            Err(error) => {
                let _ = tx.rollback().await;
                return Err(error);
            }
        };
        let error = match tx.commit().await {
            Ok(()) => return Ok(leaving.left(value)),
            Err(error) => error,
        };
        if is_answered(&error) {
            return Err(error.into());
        }
        let meant = if outcome.is_failed { Reason::Failed } else { Reason::Released };
        match self.client.settle(self).await? {
            Some((_, Beat::Lost { reason, .. })) if reason == meant => return Ok(leaving.left(value)),
            Some((deadline, Beat::Renewed { is_final, .. })) => cell.extend(deadline, is_final),
            Some((_, Beat::Lost { reason, message })) if reason != Reason::Unknown => cell.lose(reason, &message),
            _ => {
                cell.lose(Reason::Unreachable, "nobody answered the COMMIT of the transaction that released it");
                self.client.core().abandon(vec![scope.clone()], cell.duration);
                return Err(unknown(scope, &error).into());
            }
        }
        Err(error.into())
    }

    /// Makes the transaction fail with [`Error::Lost`] unless the lease is held. If it passes, nobody else gets the lease before the transaction ends. The
    /// database is the one that the daemon coordinates in.
    pub async fn guard(&self, tx: &Transaction<'_>) -> Result<(), Error> {
        let (scope, token) = (&self.cell.scope, self.token());
        let [namespace, key, _] = place(scope);
        let values = [namespace, key, (&token, tokio_postgres::types::Type::INT8)];
        tx.execute_typed(GUARD, &values).await.map(drop).map_err(|error| from_sql(scope, &error))
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
    async fn settle(&self, lease: &Lease) -> Result<Option<(Duration, Beat)>, Error> {
        let (core, cell) = (self.core().clone(), lease.cell.clone());
        self.run(async move { Ok(core.settle(&cell).await) }).await
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

async fn begin<E: From<Error> + From<tokio_postgres::Error>>(db: &mut tokio_postgres::Client) -> Result<Transaction<'_>, E> {
    check_idle(&db.simple_query(IDLE).await?)?;
    Ok(db.transaction().await?)
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
