//! Requests to hand a lease over: a holder is asked to give its lease back, and does, or refuses, or does not answer. Nothing ends the lease for it.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bounds::{check_key, check_namespace, check_reason};
use crate::client::{Client, Core};
use crate::clock::now;
use crate::error::Error;
use crate::lease::{Cell, Lease};
use crate::request::{Ref, default_owner};
use crate::retry::{Retrying, Strategy};

/// A request to a holder. It ends with the holder's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOver {
    pub asked_at: SystemTime,
    /// The asker, in its own words.
    pub asked_by: String,
    /// The asker, as proved.
    pub principal: String,
    /// In the asker's words, at most 1024 bytes.
    pub reason: String,
    /// As the policy says, 30 s after `asked_at` by default.
    pub answer_by: SystemTime,
    /// What was left when the server answered; zero: the holder has not answered in time.
    pub answer_in: Duration,
    /// The holder's words; empty: it has not refused.
    pub refusal: String,
    /// Of the lease, as [`Client::ask_hand_over`] tells; so is the token, 0 where the caller may not see it.
    pub owner: String,
    pub token: i64,
}

/// Is told of requests.
pub(crate) type OnAsked = Arc<dyn Fn(HandOver) + Send + Sync>;

impl Client {
    /// Asks the holders of namespace/key to hand over, and says why, in at most 1024 bytes. A request for each holder, with the words of one that has
    /// refused, which is asked anew once its time to answer has passed; none where nobody holds it. It needs the right admin.
    pub async fn ask_hand_over(&self, namespace: &str, key: &str, reason: &str) -> Result<Vec<HandOver>, Error> {
        check_namespace(namespace)?;
        check_key(key)?;
        check_reason(reason, 0)?;
        let scope = Ref { namespace: namespace.into(), key: key.into(), lease_key: String::new() };
        let (core, reason, owner) = (self.core().clone(), reason.to_string(), default_owner());
        self.run(async move {
            let ask = || core.transport.ask_hand_over(&scope, &reason, &owner);
            core.answer("AskHandOver", &scope, &None, ask).await
        })
        .await
    }
}

impl Lease {
    /// Answers a request to hand the lease over, of which [`crate::LeaseBuilder::on_asked`] tells, in 1 to 1024 bytes that the asker reads. `Ok(false)`:
    /// nobody has asked, or the lease has ended. What was refused stays so: the words of a second call count for nothing.
    pub async fn refuse_hand_over(&self, words: &str) -> Result<bool, Error> {
        check_reason(words, 1)?;
        self.cell.check_held()?;
        let (core, cell, words) = (self.client.core().clone(), self.cell.clone(), words.to_string());
        self.client
            .run(async move {
                let refuse = || core.transport.refuse_hand_over(&cell.scope, &words);
                core.answer("RefuseHandOver", &cell.scope, &cell.strategy, refuse).await
            })
            .await
    }
}

impl Core {
    /// Tells the holder of each request once, though renewals and a stream have it again and again.
    pub fn tell_asked(&self, cell: &Cell, request: HandOver) {
        if let Some(tell) = cell.on_asked.clone().filter(|_| cell.is_new(&request)) {
            self.teller.later(move || tell(request));
        }
    }

    /// Repeats what may be repeated until it is answered, for as long as the client's patience lasts.
    pub async fn answer<T, F: Future<Output = Result<T, Error>>>(
        &self,
        verb: &'static str,
        scope: &Ref,
        strategy: &Option<Strategy>,
        attempt: impl Fn() -> F,
    ) -> Result<T, Error> {
        let until = now() + self.settings.patience;
        let mut retrying = Retrying::new(self, verb, scope, strategy);
        loop {
            let error = match attempt().await {
                Err(error) if error.is_unavailable() => error,
                answer => return answer,
            };
            let left = until.saturating_sub(now());
            if left.is_zero() || !retrying.again(&error, left).await {
                return Err(error);
            }
        }
    }
}
