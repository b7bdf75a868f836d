//! One acquisition, and its options.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::bounds::{check_key, check_labels, check_namespace, check_owner, check_priority, check_units};
use crate::change::{Change, OnChange};
use crate::client::Client;
use crate::error::{Error, Reason};
use crate::hand_over::{HandOver, OnAsked};
use crate::lease::Lease;
use crate::retry::Strategy;
use crate::together::{Scope, run_and_release};

/// Waits until the lease is granted, or the future is dropped: `.wait(FOREVER)`.
pub const FOREVER: Duration = Duration::MAX;

const MOST_SCOPES: usize = 100;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Names a lease for its holder.
#[derive(Clone, Debug)]
pub(crate) struct Ref {
    pub namespace: String,
    pub key: String,
    pub lease_key: String,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub scope: Ref,
    /// Of AcquireAll, where `scope` is the first; else none.
    pub scopes: Vec<Scope>,
    pub owner: String,
    pub duration: Duration,
    pub wait: Duration,
    pub while_alive: bool,
    pub at_least: Option<Duration>,
    /// 0: exclusive
    pub units: u32,
    pub priority: u32,
    /// While it waits, each holder that it waits behind.
    pub ask_hand_over: bool,
    pub on_asked: Option<OnAsked>,
    pub on_change: Option<OnChange>,
    pub labels: BTreeMap<String, String>,
    pub strategy: Option<Strategy>,
    pub is_shared: bool,
    pub while_connected: bool,
    /// The namespace is a schedule, and no key is known yet.
    pub is_tick: bool,
}

/// A lease that is to be acquired: [`Client::lease`] makes it, `acquire` or `run` uses it.
#[derive(Clone)]
#[must_use = "a lease is acquired by acquire() or run()"]
pub struct LeaseBuilder {
    client: Client,
    request: Request,
}

pub(crate) fn default_owner() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    format!("{} pid {}", host.as_deref().map_or("localhost", str::trim), std::process::id())
}

impl LeaseBuilder {
    pub(crate) fn new(client: Client, namespace: &str, key: &str) -> LeaseBuilder {
        let scope = Ref { namespace: namespace.into(), key: key.into(), lease_key: String::new() };
        let request = Request {
            scope,
            scopes: vec![],
            owner: default_owner(),
            duration: Duration::from_secs(30),
            wait: Duration::ZERO,
            while_alive: false,
            at_least: None,
            units: 0,
            priority: 0,
            ask_hand_over: false,
            on_asked: None,
            on_change: None,
            labels: BTreeMap::new(),
            strategy: None,
            is_shared: false,
            while_connected: false,
            is_tick: false,
        };
        LeaseBuilder { client, request }
    }

    pub(crate) fn of_several(client: Client, scopes: Vec<Scope>) -> LeaseBuilder {
        let (namespace, key) = scopes.first().map_or(("", ""), |first| (&first.namespace, &first.key));
        let mut lease = LeaseBuilder::new(client, namespace, key);
        lease.request.scopes = scopes;
        lease
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.request.scope.key = key.into();
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.request.check()
    }

    #[cfg(feature = "sql")]
    pub(crate) fn for_transaction(self) -> Result<(Client, Request), Error> {
        self.check()?;
        if !self.request.wait.is_zero() || self.request.while_alive {
            return Err(Error::wrong("wait", "0 in a transaction, without wait_while_alive", self.request.wait));
        }
        if self.request.while_connected {
            return Err(Error::out_of_bounds("mode", "mode", "must be a lease without a stream: a transaction acquires none with one".into()));
        }
        if self.client.core().is_closing() {
            return Err(Error::Closed);
        }
        Ok((self.client, self.request))
    }

    /// The claim of a tick; the key comes with the answer.
    pub(crate) fn of_tick(mut self) -> Result<Request, Error> {
        self.check()?;
        self.request.scope.key.clear();
        self.request.is_tick = true;
        Ok(self.request)
    }

    /// How long the lease lives without a renewal; 30 s by default. It is renewed at a third of it.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.request.duration = duration;
        self
    }

    /// How long to queue for a lease that is held; 0, the default, does not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = wait;
        self
    }

    /// Waits as long as the holder is alive; then the time of `wait` begins to count.
    pub fn wait_while_alive(mut self) -> Self {
        self.request.while_alive = true;
        self
    }

    /// Who holds the lease, for people; host and pid by default. At most 255 bytes.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.request.owner = owner.into();
        self
    }

    /// A label is shown with the lease; at most 16.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.labels.insert(name.into(), value.into());
        self
    }

    /// Nobody else gets the lease until this long after its grant, even if it is released or lost sooner, so that hosts whose clocks differ do
    /// not all run the same job. At most a day; without it the policy of the namespace counts.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.request.at_least = Some(time);
        self
    }

    /// Leaves room for other shared leases: this one takes so many units, 1 to 1,000,000, of the capacity that the policy of the namespace
    /// sets. Without a capacity any number of them hold the scope together.
    pub fn shared(mut self, units: u32) -> Self {
        self.request.units = units;
        self.request.is_shared = true;
        self
    }

    /// While it waits, overtakes each waiter of a lower priority that came less than the policy's `ageing` before it, 10 s by default, for each step
    /// between them. 0, the default, to 1000; one above the policy's `max_priority` is refused with ACCESS_DENIED.
    pub fn priority(mut self, priority: u32) -> Self {
        self.request.priority = priority;
        self
    }

    /// While it waits, asks each holder that it waits behind to hand over, once.
    pub fn ask_hand_over(mut self) -> Self {
        self.request.ask_hand_over = true;
        self
    }

    /// Is told once of each request to hand the lease over. It runs in the client's thread and must not block: it passes the request on to whoever
    /// releases the lease, or calls [`Lease::refuse_hand_over`]; or it does nothing.
    pub fn on_asked(mut self, tell: impl Fn(HandOver) + Send + Sync + 'static) -> Self {
        self.request.on_asked = Some(Arc::new(tell));
        self
    }

    /// Is told of the lease's grant, of each renewal, and of its release or loss, each once and in this order. It runs in the client's thread and must
    /// not block; what it says may be late, so work is stopped by [`Lease::run`] or [`Lease::lost`].
    pub fn on_change(mut self, tell: impl Fn(Change) + Send + Sync + 'static) -> Self {
        self.request.on_change = Some(Arc::new(tell));
        self
    }

    /// Decides about the retries of this acquisition, and of what is done with its lease, in place of the client's strategy.
    pub fn retries(mut self, strategy: Strategy) -> Self {
        self.request.strategy = Some(strategy);
        self
    }

    /// Acquires the lease. A future that is dropped leaves nothing behind: neither a place in the queue nor a lease.
    pub async fn acquire(self) -> Result<Lease, Error> {
        self.request.check()?;
        Ok(self.client.acquire(self.request).await?.remove(0))
    }

    /// Of several.
    pub(crate) async fn acquire_all(self) -> Result<Vec<Lease>, Error> {
        let n = self.request.scopes.len();
        if !(1..=MOST_SCOPES).contains(&n) {
            return Err(Error::wrong("scopes", "1 to 100", n));
        }
        for each in &self.request.scopes {
            let mut one = self.clone().with_key(&each.key);
            one.request.scope.namespace.clone_from(&each.namespace);
            one.request.is_shared = each.units.is_some();
            one.request.units = each.units.unwrap_or_default();
            one.check()?;
        }
        self.client.acquire(self.request).await
    }

    /// Has the daemon release the lease, as failed, as soon as the connection breaks: when this process dies, the next holder does not wait for
    /// the deadline. [`LeaseBuilder::lead`] does this by itself. In SQL nothing does it: the next follows after the duration.
    pub fn while_connected(mut self) -> Self {
        self.request.while_connected = true;
        self
    }

    /// Runs work under the lease: acquires it, and releases it with the work's outcome. When the lease is lost, the work's future is dropped at
    /// its next await, and the error is [`Error::Lost`]; a loss that only the release finds is told too.
    pub async fn run<T, E, F, W>(self, work: W) -> Result<T, E>
    where
        W: FnOnce(Arc<Lease>) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<Error> + std::fmt::Display,
    {
        self.run_once(work).await?
    }

    /// Leader election: stands until it is elected, runs the work, and stands again when leadership was lost meanwhile. It returns what the work
    /// returned when that gave leadership up. A leader that dies is followed at once, one that is stopped or cut off after its `duration`.
    pub async fn lead<T, E, F, W>(self, mut work: W) -> Result<T, E>
    where
        W: FnMut(Arc<Lease>) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<Error> + std::fmt::Display,
    {
        let candidate = self.candidate();
        loop {
            match candidate.clone().run_once(&mut work).await {
                Err(Error::Lost(lost)) if lost.reason != Reason::Closed => continue,
                ended => return ended?,
            }
        }
    }

    /// To lead.
    pub(crate) fn candidate(self) -> LeaseBuilder {
        let mut candidate = self.while_connected().wait(FOREVER);
        candidate.request.while_alive = false;
        candidate
    }

    /// The outer error is of the lease.
    async fn run_once<T, E, F, W>(self, work: W) -> Result<Result<T, E>, Error>
    where
        W: FnOnce(Arc<Lease>) -> F,
        F: Future<Output = Result<T, E>>,
        E: std::fmt::Display,
    {
        run_and_release(self.acquire().await?, std::slice::from_ref, work).await
    }
}

impl std::fmt::Debug for LeaseBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LeaseBuilder").field(&self.request.scope).finish()
    }
}

impl Request {
    /// What it is for.
    pub fn refs(&self) -> Vec<Ref> {
        let lease_key = &self.scope.lease_key;
        let of = |each: &Scope| Ref { namespace: each.namespace.clone(), key: each.key.clone(), lease_key: lease_key.clone() };
        if self.scopes.is_empty() { vec![self.scope.clone()] } else { self.scopes.iter().map(of).collect() }
    }

    /// Looks at what can be seen here. The rest is for the server.
    pub fn check(&self) -> Result<(), Error> {
        check_namespace(&self.scope.namespace)?;
        check_key(&self.scope.key)?;
        check_owner(&self.owner)?;
        check_labels(self.labels.iter())?;
        if self.duration.is_zero() || self.duration > 365 * DAY {
            return Err(Error::wrong("duration", "more than 0, at most 365 days", self.duration));
        }
        if self.wait > 100 * 365 * DAY && self.wait != FOREVER {
            return Err(Error::wrong("wait", "0 to 100 years, or FOREVER", self.wait));
        }
        if self.while_alive && self.wait == FOREVER {
            return Err(Error::wrong("wait", "less than FOREVER with wait_while_alive", self.wait));
        }
        if let Some(time) = self.at_least.filter(|&time| time > DAY) {
            return Err(Error::wrong("at_least", "0 to a day", time));
        }
        check_priority(self.priority)?;
        if self.ask_hand_over && self.wait.is_zero() && !self.while_alive {
            return Err(Error::out_of_bounds("ask_hand_over", "ask_hand_over", "must be absent without a wait".into()));
        }
        if self.is_shared { check_units(self.units) } else { Ok(()) }
    }
}
