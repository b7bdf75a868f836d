//! What a lease's holder is told by callbacks.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tokio::runtime::Handle;

use crate::error::Lost;

/// What [`crate::LeaseBuilder::on_change`] is told.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    pub namespace: String,
    pub key: String,
    pub token: i64,
    pub kind: ChangeKind,
}

/// What has happened to a lease.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChangeKind {
    Granted,
    Renewed,
    /// By its holder.
    Released,
    Lost(Lost),
}

/// Is told of changes.
pub(crate) type OnChange = Arc<dyn Fn(Change) + Send + Sync>;

type Call = Box<dyn FnOnce() + Send>;

/// Calls the callbacks of a client in its thread, in the order in which they came. That thread renews, too: no more of them come than it can call.
pub(crate) struct Teller {
    handle: Handle,
    calls: Mutex<VecDeque<Call>>,
}

impl Teller {
    pub fn new(handle: Handle) -> Arc<Teller> {
        Arc::new(Teller { handle, calls: Mutex::default() })
    }

    pub fn later(self: &Arc<Self>, call: impl FnOnce() + Send + 'static) {
        self.calls.lock().expect("no code panics under this lock").push_back(Box::new(call));
        let its = self.clone();
        self.handle.spawn(async move { its.call_all() });
    }

    pub fn call_all(&self) {
        while let Some(call) = self.next() {
            tell(call);
        }
    }

    fn next(&self) -> Option<Call> {
        self.calls.lock().expect("no code panics under this lock").pop_front()
    }
}

/// Calls what the caller is told with. A panic of it costs nothing, and the panic hook has told of it.
pub(crate) fn tell(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Runs work that calls what the caller decides with; a panic of that is the caller's.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(state) => state.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
