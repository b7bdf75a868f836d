//! What a lease's holder is told by callbacks.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

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
            let _ = catch_unwind(AssertUnwindSafe(call)); // the panic's message has been printed
        }
    }

    fn next(&self) -> Option<Call> {
        self.calls.lock().expect("no code panics under this lock").pop_front()
    }
}
