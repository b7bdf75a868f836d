//! Several leases in one step.

use std::future::Future;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::change::{Change, caught};
use crate::client::Client;
use crate::deadline::within;
use crate::error::{Error, Lost};
use crate::hand_over::HandOver;
use crate::lease::{Cell, Lease};
use crate::release::Outcome;
use crate::request::LeaseBuilder;
use crate::retry::Strategy;
use crate::telemetry;

/// One of those that [`Client::leases`] acquires; `(namespace, key)` is an exclusive one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub(crate) namespace: String,
    pub(crate) key: String,
    /// `None`: exclusive
    pub(crate) units: Option<u32>,
}

impl Scope {
    /// An exclusive one.
    pub fn new(namespace: impl Into<String>, key: impl Into<String>) -> Scope {
        Scope { namespace: namespace.into(), key: key.into(), units: None }
    }

    /// Takes so many units, as in [`LeaseBuilder::shared`].
    pub fn shared(mut self, units: u32) -> Scope {
        self.units = Some(units);
        self
    }
}

impl<N: Into<String>, K: Into<String>> From<(N, K)> for Scope {
    fn from((namespace, key): (N, K)) -> Scope {
        Scope::new(namespace, key)
    }
}

/// Leases that were acquired in one step, in the order of the request; a slice of them. They are held together: work under them ends when one is
/// lost, and they are released as one. Dropping it gives all back; as failed, where one was lost.
#[derive(Debug)]
#[must_use = "leases that are dropped are released"]
pub struct Leases(Vec<Lease>);

impl Deref for Leases {
    type Target = [Lease];

    fn deref(&self) -> &[Lease] {
        &self.0
    }
}

impl Leases {
    /// How long work under all of them may still take, if they are not renewed again: [`Lease::remaining`].
    pub fn remaining(&self) -> Duration {
        self.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// The first that was lost. `None` while all are held, and after they were released.
    pub fn is_lost(&self) -> Option<Lost> {
        self.iter().find_map(Lease::is_lost)
    }

    /// Ends when one of them is lost; never after they were released.
    pub async fn lost(&self) -> Lost {
        lost(&cells(self)).await
    }

    /// Runs work until it ends or one of the leases is lost: then the work's future is dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_under(self, work).await
    }

    /// [`Lease::release`] of all, in one request. Where one was lost it releases the others, and ends with [`Error::Lost`].
    pub async fn release(&self) -> Result<(), Error> {
        self.release_with(Outcome::success()).await
    }

    /// [`Leases::release`] with the outcome of the work, the same for each.
    pub async fn release_with(&self, outcome: Outcome) -> Result<(), Error> {
        release_all(self, outcome).await
    }

    /// [`Lease::try_release`] of all.
    pub fn try_release(&self, outcome: Outcome) -> Result<(), Error> {
        let results: Vec<_> = self.iter().map(|lease| lease.try_release(outcome.clone())).collect();
        results.into_iter().collect()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        if let Some(lost) = self.is_lost() {
            let _ = self.try_release(Outcome::failure(lost));
        }
    }
}

/// Leases that are to be acquired in one step: [`Client::leases`] makes it.
#[derive(Clone, Debug)]
#[must_use = "leases are acquired by acquire() or run()"]
pub struct LeasesBuilder {
    lease: LeaseBuilder,
}

impl Client {
    /// 1 to 100 leases that are to be acquired in one step: all of them, or none. While the request waits it holds none, and has a place in the queue of
    /// each: callers may name them in any order. [`Error::Held`] names the first scope that is in the way.
    ///
    /// ```no_run
    /// # async fn work(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// use leasehold::{Error, Leases, Scope};
    ///
    /// let both = client.leases([Scope::new("accounts", "7"), Scope::new("rates", "today").shared(1)]);
    /// both.run(async |leases: std::sync::Arc<Leases>| {
    ///     println!("tokens {} and {}", leases[0].token(), leases[1].token());
    ///     Ok::<_, Error>(())
    /// }).await
    /// # }
    /// ```
    pub fn leases<S: Into<Scope>>(&self, scopes: impl IntoIterator<Item = S>) -> LeasesBuilder {
        let scopes = scopes.into_iter().map(Into::into).collect();
        LeasesBuilder { lease: LeaseBuilder::of_several(self.clone(), scopes) }
    }
}

impl LeasesBuilder {
    /// [`LeaseBuilder::duration`], of each.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.lease = self.lease.duration(duration);
        self
    }

    /// [`LeaseBuilder::wait`]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lease = self.lease.wait(wait);
        self
    }

    /// [`LeaseBuilder::owner`]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.lease = self.lease.owner(owner);
        self
    }

    /// [`LeaseBuilder::label`], of each.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.lease = self.lease.label(name, value);
        self
    }

    /// [`LeaseBuilder::on_asked`], of each.
    pub fn on_asked(mut self, tell: impl Fn(HandOver) + Send + Sync + 'static) -> Self {
        self.lease = self.lease.on_asked(tell);
        self
    }

    /// [`LeaseBuilder::on_change`], of each.
    pub fn on_change(mut self, tell: impl Fn(Change) + Send + Sync + 'static) -> Self {
        self.lease = self.lease.on_change(tell);
        self
    }

    /// [`LeaseBuilder::retries`]
    pub fn retries(mut self, strategy: Strategy) -> Self {
        self.lease = self.lease.retries(strategy);
        self
    }

    /// [`LeaseBuilder::acquire`]
    pub async fn acquire(self) -> Result<Leases, Error> {
        self.lease.acquire_all().await.map(Leases)
    }

    /// [`LeaseBuilder::run`]. When one lease is lost, the others are released as failed.
    pub async fn run<T, E, F, W>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(Arc<Leases>) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<Error> + std::fmt::Display,
    {
        run_and_release(self.acquire().await?, Deref::deref, work).await?
    }
}

fn cells(leases: &[Lease]) -> Vec<Arc<Cell>> {
    leases.iter().map(|lease| lease.cell.clone()).collect()
}

/// Ends when one of them is lost.
pub(crate) async fn lost(cells: &[Arc<Cell>]) -> Lost {
    let mut ends: Vec<_> = cells.iter().map(|cell| Box::pin(cell.until_over())).collect();
    std::future::poll_fn(|context| {
        ends.retain_mut(|end| end.as_mut().poll(context).is_pending());
        cells.iter().find_map(|cell| cell.lost()).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Runs work until it ends or one of the leases is lost.
pub(crate) async fn run_under<F: Future>(leases: &[Lease], work: F) -> Result<F::Output, Lost> {
    let cells = cells(leases);
    let (mut work, mut lost) = (pin!(within(leases, work)), pin!(lost(&cells)));
    std::future::poll_fn(|context| match lost.as_mut().poll(context) {
        Poll::Ready(lost) => Poll::Ready(Err(lost)),
        Poll::Pending => work.as_mut().poll(context).map(Ok),
    })
    .await
}

/// Releases those that are held, in one request, and ends with the first error.
pub(crate) async fn release_all(leases: &[Lease], outcome: Outcome) -> Result<(), Error> {
    let mut result = Ok(());
    let mut cells = vec![];
    for lease in leases {
        match lease.cell.begin_release() {
            Err(lost) => result = result.and(Err(lost)),
            Ok(_) if lease.cell.is_over() => {}
            Ok(_) => cells.push(lease.cell.clone()),
        }
    }
    if cells.is_empty() {
        return result;
    }
    let client = &leases[0].client;
    let (core, around) = (client.core().clone(), cells[0].story.around());
    let release = async move {
        match caught(core.release(&cells, outcome.clone())).await {
            Ok(released) => released,
            Err(panic) => {
                cells.iter().filter(|cell| !cell.is_over()).for_each(|cell| core.part(cell, outcome.clone()));
                resume_unwind(panic)
            }
        }
    };
    result.and(client.run(telemetry::within(around, release)).await)
}

/// Runs work under what is held, and releases it with the outcome. The outer error is of the leases.
pub(crate) async fn run_and_release<H, T, E, F, W>(held: H, leases: fn(&H) -> &[Lease], work: W) -> Result<Result<T, E>, Error>
where
    W: FnOnce(Arc<H>) -> F,
    F: Future<Output = Result<T, E>>,
    E: std::fmt::Display,
{
    let held = Arc::new(held);
    let result = run_under(leases(&held), work(held.clone())).await;
    end(leases(&held), result).await
}

/// The end of work.
pub(crate) async fn end<T, E: std::fmt::Display>(leases: &[Lease], result: Result<Result<T, E>, Lost>) -> Result<Result<T, E>, Error> {
    let outcome = match &result {
        Ok(Ok(_)) => Outcome::success(),
        Ok(Err(error)) => Outcome::failure(error),
        Err(lost) => Outcome::failure(lost), // of the others
    };
    match (release_all(leases, outcome).await, result) {
        (_, Err(lost)) => Err(lost.into()),
        (Err(Error::Lost(mut lost)), Ok(Err(error))) => {
            lost.message = format!("{}{}the work ended with: {error}", lost.message, if lost.message.is_empty() { "" } else { "; " });
            Err(Error::Lost(lost))
        }
        (Err(error), Ok(Ok(_))) => Err(error),
        (_, Ok(result)) => Ok(result),
    }
}
