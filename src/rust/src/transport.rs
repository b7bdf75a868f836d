//! What is asked of the coordinator, and its answers.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::error::{Error, Reason};
use crate::explain::Explanation;
use crate::hand_over::HandOver;
use crate::release::Outcome;
use crate::request::{Ref, Request};
use crate::rpc::Rpc;
use crate::watch::Event;

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

/// One renewal. A daemon knows what else there is.
#[cfg_attr(not(feature = "sql"), allow(dead_code))]
pub(crate) struct Renewal {
    pub scope: Ref,
    pub duration: Duration,
    /// Its holder is to hear of requests to hand over.
    pub listens: bool,
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

/// Each call is one try; an error that is `Unavailable` says that another may succeed.
pub(crate) enum Transport {
    Rpc(Rpc),
    #[cfg(feature = "sql")]
    Sql(std::sync::Arc<crate::sql::Sql>),
}

/// Declares what both can do, with the same names.
macro_rules! verbs {
    ($($verb:ident($($name:ident: $of:ty),*) -> $answer:ty;)*) => {
        impl Transport {
            $(pub async fn $verb(&self, $($name: $of),*) -> $answer {
                match self {
                    Transport::Rpc(rpc) => rpc.$verb($($name),*).await,
                    #[cfg(feature = "sql")]
                    Transport::Sql(sql) => sql.$verb($($name),*).await,
                }
            })*
        }
    };
}

verbs! {
    acquire(request: &Request, wait: Duration) -> Result<Grant, Error>;
    acquire_all(request: &Request, wait: Duration) -> Result<Vec<Grant>, Error>;
    heartbeat(items: &[Renewal], patience: Duration) -> Result<Vec<Beat>, Error>;
    downgrade(item: &Renewal, units: u32, patience: Duration) -> Result<Grant, Error>;
    ask_hand_over(scope: &Ref, reason: &str, owner: &str) -> Result<Vec<HandOver>, Error>;
    refuse_hand_over(scope: &Ref, words: &str) -> Result<bool, Error>;
    release(items: &[Ending], patience: Duration) -> Vec<Result<(), Error>>;
    give_up(refs: &[Ref], patience: Duration) -> Vec<Result<(), Error>>;
    explain(scope: &Ref) -> Result<Explanation, Error>;
}

impl Transport {
    /// One stream, until it breaks.
    pub async fn watch(&self, request: crate::v1::WatchLeasesRequest, tell: &mpsc::Sender<Result<Event, Error>>, has_begun: &mut bool) -> Error {
        match self {
            Transport::Rpc(rpc) => rpc.watch(request, tell, has_begun).await,
            #[cfg(feature = "sql")]
            Transport::Sql(_) => Error::out_of_bounds("client", "client", "must be one of a daemon: SQL has no watch".into()),
        }
    }

    /// Leaves a daemon whose stream has broken.
    pub fn leave(&self, at: usize) {
        match self {
            Transport::Rpc(rpc) => rpc.leave(at),
            #[cfg(feature = "sql")]
            Transport::Sql(_) => {}
        }
    }

    /// Ends connections to PostgreSQL. Those to daemons end with the thread.
    pub async fn close(&self) {
        match self {
            Transport::Rpc(_) => {}
            #[cfg(feature = "sql")]
            Transport::Sql(sql) => sql.close().await,
        }
    }
}
