//! What is asked of the coordinator, and its answers.

use std::time::Duration;

use crate::error::Reason;
use crate::hand_over::HandOver;
use crate::release::Outcome;
use crate::request::Ref;

/// The answer to an acquire: `deadline` on the clock of this process.
pub(crate) struct Grant {
    pub token: i64,
    pub deadline: Duration,
    /// The policy ends it at the deadline.
    pub is_final: bool,
    /// 0: exclusive
    pub units: u32,
    pub slots: Vec<u32>,
    /// The stream that holds it.
    pub holding: Option<crate::hold::Holding>,
    /// Of a claim.
    pub claimed: Option<crate::ticks::Claimed>,
}

/// The answer to one renewal.
pub(crate) enum Beat {
    Renewed {
        remaining: Duration,
        is_final: bool,
        /// The holder is asked to hand over.
        asked: Option<HandOver>,
    },
    Lost {
        reason: Reason,
        message: String,
    },
    /// Not done, and nothing is known to be lost.
    Failed(String),
}

/// One release.
pub(crate) struct Ending {
    pub scope: Ref,
    pub outcome: Outcome,
}
