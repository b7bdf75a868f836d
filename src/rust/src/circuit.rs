//! A circuit breaker for each address, with libleasehold's numbers: after five failures in a row no call passes for a second, and then one a
//! second until one is answered. tonic itself connects anew for each call.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::error::{Error, RetryReason};

const MOST_FAILURES: u32 = 5; // in a row
const OPEN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Circuit(Mutex<State>);

#[derive(Default)]
struct State {
    /// In a row. Calls that were under way together and fail together count as one.
    failures: u32,
    failed_at: Duration,
    probe_at: Duration,
    /// Of the last failure.
    words: String,
}

impl Circuit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics under this lock")
    }

    /// Lets a call pass, or says why it does not.
    pub fn admit(&self, now: Duration) -> Result<(), Error> {
        let mut state = self.state();
        if state.failures < MOST_FAILURES {
            return Ok(());
        }
        if now < state.probe_at {
            let trouble = format!("{} failures in a row: {}", state.failures, state.words);
            return Err(Error::unavailable(RetryReason::CircuitBreakerOpen, trouble));
        }
        state.probe_at = now + OPEN;
        Ok(())
    }

    /// The server has answered, also with an error.
    pub fn close(&self) {
        self.state().failures = 0;
    }

    /// A call that began at `sent` found no connection, or no answer on it.
    pub fn fail(&self, sent: Duration, now: Duration, words: String) {
        let mut state = self.state();
        if sent >= state.failed_at {
            *state = State { failures: state.failures + 1, failed_at: now, probe_at: now + OPEN, words };
        }
    }
}
