//! Whether and when a request is repeated: leasehold_retry.h has the table.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Core;
use crate::clock::now;
use crate::error::{Error, RetryReason};
use crate::request::Ref;

/// A request whose attempt has failed. All requests are idempotent by their lease keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retry {
    /// Acquire, AcquireAll, ClaimTick, Downgrade, Release, Explain, AskHandOver or RefuseHandOver
    pub verb: &'static str,
    pub namespace: String,
    /// Of AcquireAll the first.
    pub key: String,
    pub reason: RetryReason,
    pub error: Error,
    /// So far.
    pub attempts: u32,
    /// That the backoff counts, from 1 on: a wait that the server cut begins anew.
    pub failures: u32,
    /// So far, each once.
    pub reasons: Vec<RetryReason>,
    /// Of the request's time; `FOREVER`: no limit.
    pub remaining: Duration,
    /// The server's RetryInfo.
    pub retry_after: Option<Duration>,
}

/// Decides whether and when an attempt follows; `None`: the request fails with the error. A delay that is longer than what is left of the
/// request's time refuses it. Renewals go on whatever it says. A panic of it ends the request, which leaves nothing, and goes to the caller.
pub type Strategy = Arc<dyn Fn(&Retry) -> Option<Duration> + Send + Sync>;

/// What a strategy has decided.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryStep {
    pub retry: Retry,
    /// Before the next attempt; `None`: there is none.
    pub delay: Option<Duration>,
}

/// libleasehold's default: it repeats all but LEASE_HELD, after 1, 2, 4 ... 256, 500 ms.
pub fn best_effort() -> Strategy {
    Arc::new(|retry| {
        let delay = Duration::from_millis(1 << (retry.failures.max(1) - 1).min(9)).min(Duration::from_millis(500));
        (retry.reason != RetryReason::LeaseHeld).then_some(delay)
    })
}

/// Repeats nothing.
pub fn fail_fast() -> Strategy {
    Arc::new(|_| None)
}

/// 1, 10, 50, 100, 500, then 1000 ms.
pub fn controlled_backoff(failures: u32) -> Duration {
    const STEPS: [u64; 6] = [1, 10, 50, 100, 500, 1000];
    Duration::from_millis(STEPS[(failures.max(1) as usize).min(STEPS.len()) - 1])
}

/// A request that may be repeated.
pub(crate) struct Retrying<'a> {
    core: &'a Core,
    strategy: Strategy,
    verb: &'static str,
    scope: Ref,
    begun: Duration,
    attempts: u32,
    failures: u32,
    reasons: Vec<RetryReason>,
}

impl<'a> Retrying<'a> {
    pub fn new(core: &'a Core, verb: &'static str, scope: &Ref, strategy: &Option<Strategy>) -> Self {
        let strategy = strategy.clone().or_else(|| core.settings.strategy.clone()).unwrap_or_else(best_effort);
        Retrying { core, strategy, verb, scope: scope.clone(), begun: now(), attempts: 0, failures: 0, reasons: vec![] }
    }

    /// Tells whether another attempt follows, and waits for it.
    pub async fn again(&mut self, error: &Error, remaining: Duration) -> bool {
        let Some(reason) = error.retry_reason() else { return false };
        self.attempts += 1;
        self.failures += 1;
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
        let retry_after = if let Error::Unavailable(trouble) = error { trouble.retry_after } else { None };
        let retry = Retry {
            verb: self.verb,
            namespace: self.scope.namespace.clone(),
            key: self.scope.key.clone(),
            reason,
            error: error.clone(),
            attempts: self.attempts,
            failures: self.failures,
            reasons: self.reasons.clone(),
            remaining,
            retry_after,
        };
        let delay = self.decide(&retry);
        if let Some(log) = &self.core.settings.retry_log {
            log(&RetryStep { retry, delay });
        }
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        self.begun = now();
        delay.is_some()
    }

    fn decide(&mut self, retry: &Retry) -> Option<Duration> {
        match retry.reason {
            RetryReason::BlockingTimeout if now() - self.begun >= Duration::from_secs(1) => {
                self.failures = 0;
                Some(Duration::ZERO)
            }
            reason if reason.is_always() => Some(controlled_backoff(retry.failures)),
            _ => (self.strategy)(retry).filter(|&delay| delay <= retry.remaining),
        }
    }
}
