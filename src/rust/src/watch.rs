//! What happens in a namespace.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::bounds::{check_key, check_namespace};
use crate::client::{Client, Core, RETRY_AFTER};
use crate::clock::now;
use crate::error::Error;
use crate::request::Ref;
use crate::rpc::{Rpc, SILENCE, duration_of, some_time};
use crate::v1::lease_event::Type;
use crate::v1::{EndReason, LeaseEvent, WatchLeasesRequest};

const MOST_UNREAD: usize = 100; // events; more are left to the stream

/// What [`Watch::next`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// When the watch begins, and again after each break.
    Held,
    /// That was all that is held. It has no lease.
    Synced,
    Acquired,
    Released,
    /// Released as failed.
    Failed,
    Expired,
    /// The policy of the namespace ended it.
    MaxHold,
    /// An administrator ended it.
    Forced,
    /// It is as it is now.
    Downgraded,
}

/// A grant or an end of a lease.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    pub kind: EventKind,
    pub namespace: String,
    pub key: String,
    pub holder: Holder,
    /// JSON, of what was released; may be empty.
    pub result: String,
    /// The error of what failed or expired, the administrator's words of what was forced.
    pub message: String,
}

/// Whose lease it is.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// In its own words.
    pub owner: String,
    /// As proved.
    pub principal: String,
    /// 0 where the caller may not see it.
    pub token: i64,
    /// 0: an exclusive lease.
    pub units: u32,
    pub duration: Duration,
    /// By the database's clock.
    pub acquired_at: Option<SystemTime>,
    /// The last renewal.
    pub heartbeat_at: Option<SystemTime>,
    pub labels: HashMap<String, String>,
}

/// What is held in a namespace, then each grant and end: [`Client::watch`] makes it.
#[derive(Debug)]
#[must_use = "a watch begins with next()"]
pub struct Watch {
    client: Client,
    request: WatchLeasesRequest,
    namespace: String,
    events: Option<mpsc::Receiver<Result<Event, Error>>>,
    ended: Error,
}

impl Client {
    /// Watches a namespace; an empty one stands for all.
    ///
    /// ```no_run
    /// # async fn work(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mut watch = client.watch("payments").children();
    /// loop {
    ///     let event = watch.next().await?;
    ///     println!("{:?} {}", event.kind, event.key);
    /// }
    /// # }
    /// ```
    pub fn watch(&self, namespace: &str) -> Watch {
        let request = WatchLeasesRequest { include_initial: true, alive: true, ..WatchLeasesRequest::default() };
        Watch { client: self.clone(), request, namespace: namespace.into(), events: None, ended: Error::Closed }
    }
}

impl Watch {
    /// This key of the namespace alone.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.request.key = key.into();
        self
    }

    /// The namespaces below it, too.
    pub fn children(mut self) -> Self {
        self.request.include_children = true;
        self
    }

    /// The next event. First comes what is held, then [`EventKind::Synced`], then each grant and end. A stream that breaks is begun again, with what
    /// is held then: what has happened meanwhile is to be seen in that. A future that is dropped loses no event.
    ///
    /// A watch ends with an error, which later calls repeat: [`Error::Closed`], [`Error::Unavailable`] when no server could be reached at the beginning,
    /// [`Error::Denied`], or [`Error::InvalidArgument`].
    pub async fn next(&mut self) -> Result<Event, Error> {
        if self.events.is_none() {
            self.begin()?;
        }
        let event = match self.events.as_mut().expect("it has begun").recv().await {
            Some(event) => event,
            None => Err(self.ended.clone()),
        };
        if let Err(error) = &event {
            self.ended = error.clone();
        }
        event
    }

    fn begin(&mut self) -> Result<(), Error> {
        if !self.namespace.is_empty() {
            check_namespace(&self.namespace)?;
            self.request.namespace = self.namespace.split('.').map(String::from).collect();
        }
        if !self.request.key.is_empty() {
            check_key(&self.request.key)?;
        }
        let (tell, events) = mpsc::channel(MOST_UNREAD);
        let (core, request) = (self.client.core().clone(), self.request.clone());
        self.client.core().spawn(async move {
            tokio::select! {
                error = core.watch(request, &tell) => drop(tell.send(Err(error)).await),
                () = tell.closed() => {}
                () = core.until_closing() => {}
            }
        })?;
        self.events = Some(events);
        Ok(())
    }
}

impl Core {
    /// Until it cannot go on.
    async fn watch(&self, request: WatchLeasesRequest, tell: &mpsc::Sender<Result<Event, Error>>) -> Error {
        let until = now() + self.settings.patience;
        let mut has_begun = false;
        loop {
            let error = self.transport.watch(request.clone(), tell, &mut has_begun).await;
            if !error.is_unavailable() || !has_begun && now() >= until {
                return error;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

impl Rpc {
    pub async fn watch(&self, request: WatchLeasesRequest, tell: &mpsc::Sender<Result<Event, Error>>, has_begun: &mut bool) -> Error {
        let (at, mut stub) = self.pick();
        let scope = Ref { namespace: request.namespace.join("."), key: request.key.clone(), lease_key: String::new() };
        let mut stream = match self.call(at, &scope, self.patience, stub.watch_leases(request)).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let mut limit = self.patience;
        loop {
            let event = match self.event(at, &scope, limit, &mut stream).await {
                Ok(event) => event,
                Err(error) => return error,
            };
            *has_begun = true;
            limit = 3 * SILENCE; // it says `alive` after 15 s
            if let Some(kind) = kind_of(&event) {
                let _ = tell.send(Ok(event_of(kind, event))).await; // its end ends this too
            }
        }
    }
}

/// `None`: there is nothing to tell.
fn kind_of(event: &LeaseEvent) -> Option<EventKind> {
    match (event.r#type(), event.end_reason()) {
        (Type::Initial, _) => Some(EventKind::Held),
        (Type::Synced, _) => Some(EventKind::Synced),
        (Type::Acquired, _) => Some(EventKind::Acquired),
        (Type::Released, EndReason::Failed) => Some(EventKind::Failed),
        (Type::Released, _) => Some(EventKind::Released),
        (Type::Expired, EndReason::MaxHold) => Some(EventKind::MaxHold),
        (Type::Expired, _) => Some(EventKind::Expired),
        (Type::Forced, _) => Some(EventKind::Forced),
        (Type::Downgraded, _) => Some(EventKind::Downgraded),
        (Type::Alive | Type::Unspecified, _) => None,
    }
}

fn event_of(kind: EventKind, event: LeaseEvent) -> Event {
    let lease = event.lease.unwrap_or_default();
    let scope = lease.scope.unwrap_or_default();
    let holder = Holder {
        owner: lease.owner,
        principal: lease.principal,
        token: lease.token,
        units: lease.units as u32,
        duration: duration_of(lease.duration),
        acquired_at: some_time(lease.acquired_at),
        heartbeat_at: some_time(lease.heartbeat_at),
        labels: lease.labels,
    };
    Event { kind, namespace: scope.namespace.join("."), key: scope.key, holder, result: event.result, message: event.reason + &event.error }
}
