//! Answers that cannot be true.

use std::time::Duration;

use leasehold::{Client, Error, best_effort, fail_fast};
use serde_json::{Value, json};

use crate::case;
use crate::kit::*;

const AGES: i64 = 9_000_000_000; // seconds

fn other() -> Value {
    json!({"lease_key": "6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10"})
}

fn is_unavailable<T: std::fmt::Debug>(ended: Result<T, Error>) {
    assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
}

pub const CASES: &[crate::Case] = &[
    case!(answers_for_other_leases_are_refused, "grpc", s => {
        let liar = Liar::new();
        let client = s.made(Client::builder().strategy(fail_fast()), &liar.target);
        let leased = client.lease("cases", "lost").duration(seconds(3)).acquire().await.expect("the lease");
        let streaming = client.lease("cases", "streaming").duration(seconds(3)).while_connected().acquire().await.expect("the lease");
        let kept = client.lease("cases", "kept").duration(5 * MINUTE).acquire().await.expect("the lease");
        liar.lie(other());
        is_unavailable(kept.downgrade(1).await);
        is_unavailable(kept.release().await);
        lost(&leased).await;
        lost(&streaming).await;
    }),
    case!(doubtful_grants_are_given_back, "grpc", s => {
        let liar = Liar::new();
        let client = s.made(Client::builder().strategy(fail_fast()), &liar.target);
        for lies in [other(), json!({"status": "UNAVAILABLE"}), json!({"is_garbage": true}), json!({"leases": 1})] {
            liar.lie(lies.clone());
            is_unavailable(client.leases([("cases", "a"), ("cases", "b")]).acquire().await);
            until("the release of both", || liar.is_given_back()).await;
            if lies.get("leases").is_none() {
                is_unavailable(s.lease(&client).acquire().await);
                until("the release", || liar.is_given_back()).await;
            }
        }
        liar.lie(json!({"status": "UNAVAILABLE"}));
        let count = || liar.state()["asked"].as_array().expect("lease keys").len();
        let (before, waiting) = (count(), tokio::spawn(s.lease(&client).retries(best_effort()).wait(MINUTE).acquire()));
        until("an answer", || count() > before + 1).await;
        liar.lie(json!({"status": "PERMISSION_DENIED"}));
        let denied = waiting.await.expect("no panic");
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
        until("the release of what was denied", || liar.is_given_back()).await;
    }),
    case!(times_are_believed_as_far_as_they_can_be_true, "grpc", s => {
        let (liar, duration) = (Liar::new(), seconds(3));
        let client = s.made(Client::builder(), &liar.target);
        let renewals = || liar.state()["renewals"].as_u64();
        let forever = json!({"waited": i64::MAX, "remaining": i64::MAX});
        for (lies, streams) in [(json!({"waited": AGES}), false), (json!({"remaining": AGES}), false), (forever.clone(), false), (forever, true)] {
            liar.lie(lies);
            let lease = s.lease(&client).duration(duration);
            let lease = if streams { lease.while_connected() } else { lease }.acquire().await.expect("the lease");
            let is_true = || assert!(!lease.remaining().is_zero() && lease.remaining() <= duration, "{:?} {:?}", lease.is_lost(), lease.remaining());
            is_true();
            let before = renewals();
            until("two renewals", || renewals() >= before.map(|count| count + 2)).await;
            is_true();
            if !streams {
                lease.downgrade(1).await.expect("the downgrade");
                is_true();
            }
            lease.release().await.expect("the release");
        }
        liar.lie(json!({"waited": -AGES, "remaining": -AGES}));
        assert_eq!(s.lease(&client).acquire().await.expect("the lease").remaining(), Duration::ZERO);
    }),
];
