//! The same client for programs without async. Not for use inside of an async runtime: there its calls panic.
//!
//! ```no_run
//! # fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::blocking::Client::new(leasehold::Client::connect("127.0.0.1:7420")?);
//! let lease = client.acquire(client.lease("payments", "inv-42"))?;
//! while lease.is_lost().is_none() {
//!     // a step of the work
//! #   break;
//! }
//! client.release(&lease, leasehold::Outcome::success())?;
//! client.close();
//! # Ok(())
//! # }
//! ```

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::slice::from_ref;

use crate::deadline::{bounded, within_now};
use crate::error::{Error, Reason};
use crate::explain::Explanation;
use crate::hand_over::HandOver;
use crate::lease::Lease;
use crate::release::Outcome;
use crate::request::LeaseBuilder;
use crate::ticks::{Tick, Ticks};
use crate::together::{Leases, LeasesBuilder, Scope, end};
use crate::watch::{Event, Watch};

#[cfg(feature = "postgres")]
pub use crate::reap::blocking::reap_stale;
#[cfg(feature = "postgres")]
pub use postgres;

/// A [`crate::Client`] whose calls block the thread.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
}

impl Client {
    /// Of a client that may be used without it too.
    pub fn new(client: crate::Client) -> Client {
        Client { client }
    }

    fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.client.core().handle.block_on(call)
    }

    /// In the work of a lease, such a call ends with that.
    fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.block_on(bounded(call))
    }

    /// [`crate::Client::lease`]
    pub fn lease(&self, namespace: &str, key: &str) -> LeaseBuilder {
        self.client.lease(namespace, key)
    }

    /// [`crate::Client::leases`]
    pub fn leases<S: Into<Scope>>(&self, scopes: impl IntoIterator<Item = S>) -> LeasesBuilder {
        self.client.leases(scopes)
    }

    /// [`LeaseBuilder::acquire`]
    pub fn acquire(&self, lease: LeaseBuilder) -> Result<Lease, Error> {
        self.call(lease.acquire())
    }

    /// [`Lease::release_with`]
    pub fn release(&self, lease: &Lease, outcome: Outcome) -> Result<(), Error> {
        self.block_on(lease.release_with(outcome))
    }

    /// [`LeasesBuilder::acquire`]
    pub fn acquire_all(&self, leases: LeasesBuilder) -> Result<Leases, Error> {
        self.call(leases.acquire())
    }

    /// [`Leases::release_with`]
    pub fn release_all(&self, leases: &Leases, outcome: Outcome) -> Result<(), Error> {
        self.block_on(leases.release_with(outcome))
    }

    /// [`Lease::downgrade`]
    pub fn downgrade(&self, lease: &Lease, units: u32) -> Result<(), Error> {
        self.call(lease.downgrade(units))
    }

    /// [`crate::Client::explain`]
    pub fn explain(&self, namespace: &str, key: &str) -> Result<Explanation, Error> {
        self.call(self.client.explain(namespace, key))
    }

    /// [`crate::Client::watch`]
    pub fn watch(&self, namespace: &str) -> Watch {
        self.client.watch(namespace)
    }

    /// The events of a watch, each [`Watch::next`]; the last is the error that ends it.
    pub fn events(&self, mut watch: Watch) -> impl Iterator<Item = Result<Event, Error>> + use<> {
        let client = self.clone();
        let mut is_over = false;
        std::iter::from_fn(move || {
            let event = (!is_over).then(|| client.call(watch.next()));
            is_over = !matches!(event, Some(Ok(_)));
            event
        })
    }

    /// [`crate::Client::ask_hand_over`]
    pub fn ask_hand_over(&self, namespace: &str, key: &str, reason: &str) -> Result<Vec<HandOver>, Error> {
        self.call(self.client.ask_hand_over(namespace, key, reason))
    }

    /// [`Lease::refuse_hand_over`]
    pub fn refuse_hand_over(&self, lease: &Lease, words: &str) -> Result<bool, Error> {
        self.call(lease.refuse_hand_over(words))
    }

    /// Acquires, runs the work, and releases with its outcome; a loss counts before what the work returned. The work looks at
    /// [`Lease::is_lost`] or [`Lease::remaining`] and stops by itself: a thread cannot be stopped from outside. Its calls of a client of this kind
    /// end with [`Error::Lost`] once the lease is lost.
    pub fn run<T, E>(&self, lease: LeaseBuilder, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + Display,
    {
        let lease = self.acquire(lease)?;
        self.run_under(from_ref(&lease), || work(&lease))?
    }

    /// [`Client::run`] under several leases; the work looks at [`Leases::is_lost`].
    pub fn run_all<T, E>(&self, leases: LeasesBuilder, work: impl FnOnce(&Leases) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + Display,
    {
        let leases = self.acquire_all(leases)?;
        self.run_under(&leases, || work(&leases))?
    }

    /// [`LeaseBuilder::lead`], with work as in [`Client::run`].
    pub fn lead<T, E>(&self, lease: LeaseBuilder, mut work: impl FnMut(&Lease) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + Display,
    {
        let candidate = lease.candidate();
        loop {
            let lease = self.acquire(candidate.clone())?;
            match self.run_under(from_ref(&lease), || work(&lease)) {
                Err(Error::Lost(lost)) if lost.reason != Reason::Closed => {}
                ended => return ended?,
            }
        }
    }

    /// [`crate::Client::ticks`]
    pub fn ticks(&self, schedule: &str) -> Ticks {
        self.client.ticks(schedule)
    }

    /// [`Ticks::run`], with work as in [`Client::run`]; [`Client::close`] ends it.
    pub fn run_ticks<E: Display>(&self, ticks: Ticks, mut work: impl FnMut(&Tick) -> Result<Outcome, E>) -> Result<Infallible, Error> {
        let request = ticks.lease.of_tick()?;
        loop {
            let tick = self.call(self.client.claim(&request))?;
            let result = within_now(from_ref(&*tick), || work(&tick));
            self.block_on(tick.end(result));
        }
    }

    fn run_under<T, E: Display>(&self, leases: &[Lease], work: impl FnOnce() -> Result<T, E>) -> Result<Result<T, E>, Error> {
        let result = within_now(leases, work);
        self.block_on(end(leases, Ok(result)))
    }

    /// [`crate::Client::close`]
    pub fn close(&self) {
        self.block_on(self.client.close());
    }
}
