//! Releases for which nobody waits. One task for each client sends them, one request at a time; it runs while there are any.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::watch;

use crate::client::{Core, RETRY_AFTER};
use crate::clock::now;
use crate::error::{Error, Reason, scope_name};
use crate::lease::Cell;
use crate::request::Ref;
use crate::transport::Ending;

const MOST_IN_REQUEST: usize = 1000;
const MOST_WORDS: usize = 8192; // bytes

/// What a lease is released with.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub(crate) is_failed: bool,
    pub(crate) value: String,
}

impl Outcome {
    /// The work succeeded.
    pub fn success() -> Outcome {
        Outcome { is_failed: false, value: String::new() }
    }

    /// The work succeeded with a result, which is kept with the scope as JSON; at most 8 KiB.
    pub fn result(value: &impl serde::Serialize) -> Result<Outcome, Error> {
        let json = serde_json::to_string(value).map_err(|error| Error::wrong("result", "serializable as JSON", error.to_string()))?;
        Ok(Outcome { is_failed: false, value: json })
    }

    /// The work failed, with these words; what is beyond 8 KiB is cut off.
    pub fn failure(words: impl Display) -> Outcome {
        let mut value = words.to_string().replace('\0', " ");
        let mut end = value.len().min(MOST_WORDS);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        Outcome { is_failed: true, value }
    }
}

#[derive(Default)]
pub(crate) struct Releases {
    waiting: Vec<Parting>,
    /// The last of each scope; ends when it was answered, or left to expire.
    last: HashMap<(String, String), watch::Receiver<()>>,
    /// Ends with the task; `None`: it does not run.
    pub done: Option<watch::Receiver<()>>,
}

/// A lease that is given back. Its holder has been told.
struct Parting {
    cell: Arc<Cell>,
    outcome: Outcome,
    /// Ends with this.
    _over: watch::Sender<()>,
}

impl Core {
    /// Gives back what is renewed no more. Its holder is told.
    pub fn part(self: &Arc<Self>, cell: &Arc<Cell>, outcome: Outcome) {
        cell.set_released();
        let (over, is_over) = watch::channel(());
        let mut state = self.state();
        let releases = &mut state.releases;
        releases.last.insert((cell.scope.namespace.clone(), cell.scope.key.clone()), is_over);
        releases.waiting.push(Parting { cell: cell.clone(), outcome, _over: over });
        if releases.done.is_none() {
            let (done, is_done) = watch::channel(());
            releases.done = Some(is_done);
            let core = self.clone();
            drop(state);
            // When the thread has ended, the task is dropped unrun, and the lease ends by its deadline.
            self.handle.spawn(async move {
                core.send_releases().await;
                drop(done);
            });
        }
    }

    async fn send_releases(&self) {
        loop {
            let some: Vec<Parting> = {
                let mut state = self.state();
                let n = state.releases.waiting.len().min(MOST_IN_REQUEST);
                if n == 0 {
                    state.releases.done = None;
                    state.releases.last.retain(|_, last| last.has_changed().is_ok());
                    return;
                }
                state.releases.waiting.drain(..n).collect()
            };
            let again = self.send_some(some).await;
            if !again.is_empty() {
                self.state().releases.waiting.extend(again);
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Gives what is to be repeated.
    async fn send_some(&self, some: Vec<Parting>) -> Vec<Parting> {
        let mut items = vec![];
        let mut repeated = vec![];
        for it in &some {
            it.cell.await_renewal().await;
            items.push(Ending { scope: it.cell.scope.clone(), outcome: it.outcome.clone() });
            repeated.push(it.cell.sends());
        }
        let answers = self.transport.release(&items, self.settings.patience).await;
        let mut again = vec![];
        for ((it, answer), is_repeated) in some.into_iter().zip(answers).zip(repeated) {
            match answer {
                Ok(()) => it.cell.story.ended(None),
                Err(error) if error.is_unavailable() && now() < it.cell.deadline() => again.push(it),
                Err(Error::Lost(lost)) if is_repeated && matches!(lost.reason, Reason::Released | Reason::Failed) => it.cell.story.ended(None),
                Err(error) => {
                    it.cell.story.ended(Some(&error));
                    match error {
                        Error::Lost(lost) => (self.settings.log)(&format!("{lost}: it was to be released")),
                        error => self.log_undelivered(&scope_name(&it.cell.scope.namespace, &it.cell.scope.key), &error.to_string()),
                    }
                }
            }
        }
        again
    }

    fn log_undelivered(&self, scope: &str, why: &str) {
        (self.settings.log)(&format!("the release of {scope} was not delivered, and the lease is left to expire: {why}"));
    }

    /// The client ends: what was not answered by now is left to expire.
    pub fn abandon_releases(&self) {
        let left = std::mem::take(&mut self.state().releases);
        for ((namespace, key), last) in left.last {
            if last.has_changed().is_ok() {
                self.log_undelivered(&scope_name(&namespace, &key), "the client was closed");
            }
        }
        left.waiting.iter().for_each(|it| it.cell.story.ended(Some(&Error::Closed)));
    }

    /// Lets an acquire follow the client's own release of the same scope.
    pub async fn await_release(&self, scope: &Ref) {
        let last = self.state().releases.last.get(&(scope.namespace.clone(), scope.key.clone())).cloned();
        if let Some(mut last) = last {
            let _ = tokio::time::timeout(self.settings.patience, last.changed()).await;
        }
    }
}
