//! What may have been granted to callers who have given up.
//!
//! A release is repeated until the server has answered it. A lease that the server does not know may still be granted, because its request may arrive
//! after its release: that is released again after 1, 2, 4 ... s, until the lease would have ended by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::client::{Core, RETRY_AFTER};
use crate::clock::now;
use crate::error::{Error, Reason};
use crate::release::Outcome;
use crate::request::Ref;
use crate::transport::Ending;

/// Leases that the server does not know. What is given up above this is released once.
pub(crate) const MOST_DOUBTED: usize = 100_000;
const DOUBT_FIRST: Duration = Duration::from_secs(1);

impl Ending {
    /// Of those that were granted unheard.
    pub fn unheard(refs: &[Ref]) -> Vec<Ending> {
        let outcome = Outcome::failure("the caller gave up before it heard of the grant");
        refs.iter().map(|scope| Ending { scope: scope.clone(), outcome: outcome.clone() }).collect()
    }
}

impl Core {
    /// Gives up later.
    pub fn abandon(self: &Arc<Self>, refs: Vec<Ref>, duration: Duration) -> JoinHandle<()> {
        let core = self.clone();
        self.handle.spawn(async move { core.give_up(refs, duration).await })
    }

    /// Sees to it that what was granted unheard is released, and leaves the queue. It ends when each has been answered; doubts go on.
    pub async fn give_up(self: &Arc<Self>, mut refs: Vec<Ref>, duration: Duration) {
        // It was never sent; or nobody knows which tick was claimed: that is left to expire.
        refs.retain(|scope| !scope.lease_key.is_empty() && !scope.key.is_empty());
        let until = now() + duration;
        let unknown = self.release_unheard(refs, until).await;
        if unknown.is_empty() {
            return;
        }
        if let Ok(permit) = self.doubts.clone().try_acquire_many_owned(unknown.len() as u32) {
            let core = self.clone();
            self.handle.spawn(async move {
                core.doubt(unknown, until).await;
                drop(permit);
            });
        }
    }

    /// Until each has been answered. Gives those that the server does not know.
    async fn release_unheard(&self, mut refs: Vec<Ref>, until: Duration) -> Vec<Ref> {
        let mut unknown = vec![];
        while !refs.is_empty() && now() < until && !self.is_closing() {
            let answers = self.transport.give_up(&refs, self.settings.patience).await;
            let mut unanswered = vec![];
            for (scope, answer) in refs.into_iter().zip(answers) {
                match answer {
                    Err(error) if error.is_unavailable() => unanswered.push(scope),
                    Err(Error::Lost(lost)) if lost.reason == Reason::Unknown => unknown.push(scope),
                    _ => {} // released, or over; or refused, which keeps no other
                }
            }
            refs = unanswered;
            if !refs.is_empty() {
                tokio::time::sleep(2 * RETRY_AFTER).await;
            }
        }
        unknown
    }

    async fn doubt(&self, mut unknown: Vec<Ref>, until: Duration) {
        let mut pause = DOUBT_FIRST;
        while !unknown.is_empty() && now() + pause < until {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.until_closing() => return,
            }
            pause *= 2;
            unknown = self.release_unheard(unknown, until).await;
        }
    }
}
