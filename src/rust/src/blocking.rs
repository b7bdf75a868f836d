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

use std::future::Future;

use crate::error::Error;
use crate::explain::Explanation;
use crate::hand_over::HandOver;
use crate::lease::Lease;
use crate::release::Outcome;
use crate::request::LeaseBuilder;
use crate::together::{Leases, LeasesBuilder, Scope};
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
        self.block_on(lease.acquire())
    }

    /// [`Lease::release_with`]
    pub fn release(&self, lease: &Lease, outcome: Outcome) -> Result<(), Error> {
        self.block_on(lease.release_with(outcome))
    }

    /// [`LeasesBuilder::acquire`]
    pub fn acquire_all(&self, leases: LeasesBuilder) -> Result<Leases, Error> {
        self.block_on(leases.acquire())
    }

    /// [`Leases::release_with`]
    pub fn release_all(&self, leases: &Leases, outcome: Outcome) -> Result<(), Error> {
        self.block_on(leases.release_with(outcome))
    }

    /// [`Lease::downgrade`]
    pub fn downgrade(&self, lease: &Lease, units: u32) -> Result<(), Error> {
        self.block_on(lease.downgrade(units))
    }

    /// [`crate::Client::explain`]
    pub fn explain(&self, namespace: &str, key: &str) -> Result<Explanation, Error> {
        self.block_on(self.client.explain(namespace, key))
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
            let event = (!is_over).then(|| client.block_on(watch.next()));
            is_over = !matches!(event, Some(Ok(_)));
            event
        })
    }

    /// [`crate::Client::ask_hand_over`]
    pub fn ask_hand_over(&self, namespace: &str, key: &str, reason: &str) -> Result<Vec<HandOver>, Error> {
        self.block_on(self.client.ask_hand_over(namespace, key, reason))
    }

    /// [`Lease::refuse_hand_over`]
    pub fn refuse_hand_over(&self, lease: &Lease, words: &str) -> Result<bool, Error> {
        self.block_on(lease.refuse_hand_over(words))
    }

    /// Acquires, runs the work, and releases with its outcome; a loss counts before what the work returned. The work looks at
    /// [`Lease::is_lost`] or [`Lease::remaining`] and stops by itself: a thread cannot be stopped from outside.
    pub fn run<T, E>(&self, lease: LeaseBuilder, work: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + std::fmt::Display,
    {
        self.block_on(lease.run(|lease| async move { work(&lease) }))
    }

    /// [`Client::run`] under several leases; the work looks at [`Leases::is_lost`].
    pub fn run_all<T, E>(&self, leases: LeasesBuilder, work: impl FnOnce(&Leases) -> Result<T, E>) -> Result<T, E>
    where
        E: From<Error> + std::fmt::Display,
    {
        self.block_on(leases.run(|leases| async move { work(&leases) }))
    }

    /// [`crate::Client::close`]
    pub fn close(&self) {
        self.block_on(self.client.close());
    }
}
