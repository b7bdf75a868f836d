//! What a person wants to know of a scope.

use std::time::SystemTime;

use crate::bounds::{check_key, check_namespace};
use crate::client::Client;
use crate::error::Error;
use crate::request::Ref;
use crate::rpc::{Rpc, scope_of, some_time};
use crate::v1::ExplainRequest;

/// What is to be said of a scope. Of several shared holders the oldest is told of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    pub state: State,
    /// What to do next, in words.
    pub advice: String,
    /// Of the holder; `None` where there is none.
    pub liveness: Option<Liveness>,
    /// The holder's own words.
    pub holder: String,
    /// What the holder has proved.
    pub principal: String,
    /// 0 where the caller may not see it.
    pub token: i64,
    /// Of all shared holders together; 0: an exclusive one.
    pub units: u32,
    pub holders: u32,
    pub waiters: u32,
    /// The owner of the first waiter.
    pub first_waiter: String,
    /// The grant; of a free scope, the end of the last lease.
    pub since: Option<SystemTime>,
    /// Renewals of the holder.
    pub heartbeats: u64,
    pub last_heartbeat_at: Option<SystemTime>,
    pub expires_at: Option<SystemTime>,
    /// Nobody else is granted it before then, for the sake of `at_least`.
    pub rests_until: Option<SystemTime>,
    /// In force: its settings by name, a JSON object.
    pub policy: String,
}

/// Of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    Free,
    /// Exclusively.
    Held,
    Shared,
    /// Free, and granted to nobody before [`Explanation::rests_until`].
    Resting,
    /// A word that this package does not know.
    Unknown,
}

/// Of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    Alive,
    /// It has not renewed for longer than the policy's `dead_after`.
    SuspectedDead,
    /// Alive, and it has held this for longer than the policy's `max_hold`.
    Overdue,
    /// It is to be ended.
    Expired,
}

impl State {
    pub(crate) fn of(word: &str) -> State {
        match word {
            "free" => State::Free,
            "held" => State::Held,
            "shared" => State::Shared,
            "resting" => State::Resting,
            _ => State::Unknown,
        }
    }
}

impl Liveness {
    pub(crate) fn of(word: &str) -> Option<Liveness> {
        match word {
            "alive" => Some(Liveness::Alive),
            "suspected_dead" => Some(Liveness::SuspectedDead),
            "overdue" => Some(Liveness::Overdue),
            "expired" => Some(Liveness::Expired),
            _ => None,
        }
    }
}

impl Client {
    /// Tells who holds namespace/key, whether it is alive, who waits, and what to do. It needs the right read.
    pub async fn explain(&self, namespace: &str, key: &str) -> Result<Explanation, Error> {
        check_namespace(namespace)?;
        check_key(key)?;
        let scope = Ref { namespace: namespace.into(), key: key.into(), lease_key: String::new() };
        let core = self.core().clone();
        self.run(async move { core.answer("Explain", &scope, &None, || core.transport.explain(&scope)).await }).await
    }
}

impl Rpc {
    pub async fn explain(&self, scope: &Ref) -> Result<Explanation, Error> {
        let at = self.pick().0;
        let mut stub = self.consoles[at].clone();
        let found = self.call(at, scope, self.patience, stub.explain(ExplainRequest { scope: Some(scope_of(scope)) })).await?;
        Ok(Explanation {
            state: State::of(&found.state),
            advice: found.advice,
            liveness: Liveness::of(&found.liveness),
            holder: found.holder,
            principal: found.principal,
            token: found.token,
            units: found.units as u32,
            holders: found.holders as u32,
            waiters: found.waiters as u32,
            first_waiter: found.first_waiter,
            since: some_time(found.since),
            heartbeats: found.heartbeats as u64,
            last_heartbeat_at: some_time(found.last_heartbeat_at),
            expires_at: some_time(found.expires_at),
            rests_until: some_time(found.rests_until),
            policy: found.policy,
        })
    }
}
