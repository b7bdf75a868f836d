//! Retries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, Retry, RetryReason, RetryStep, Strategy, best_effort, controlled_backoff, fail_fast};
use serde_json::json;

use crate::case;
use crate::kit::*;

/// A strategy that does this when it was asked so many times, and repeats.
fn patient(at: usize, mut then: impl FnMut() + Send + 'static) -> (Strategy, Arc<Mutex<Vec<Retry>>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let (its, then) = (asked.clone(), Mutex::new(move || then()));
    let strategy: Strategy = Arc::new(move |retry| {
        let mut asked = its.lock().expect("retries");
        asked.push(retry.clone());
        if asked.len() == at {
            (then.lock().expect("what follows"))();
        }
        Some(Duration::from_millis(20))
    });
    (strategy, asked)
}

/// A proxy that resets whoever connects does so before or after hyper has written the request.
fn is_connection(reason: RetryReason) -> bool {
    matches!(reason, RetryReason::SocketNotAvailable | RetryReason::SocketClosedWhileInFlight)
}

pub const CASES: &[crate::Case] = &[
    case!(strategy_decides_about_retries, "grpc", s => {
        let proxy = Arc::new(s.proxy());
        let client = s.made(Client::builder().strategy(fail_fast()), &proxy.target);
        match s.lease(&s.made(Client::builder().strategy(fail_fast()), &s.nowhere())).wait(MINUTE).acquire().await {
            Err(Error::Unavailable(trouble)) => assert_eq!(trouble.reason, RetryReason::SocketNotAvailable, "{trouble:?}"),
            other => panic!("{other:?}"),
        }
        proxy.refuse(true);
        let its = proxy.clone();
        let (strategy, asked) = patient(3, move || its.refuse(false));
        let lease = s.lease(&client).retries(strategy).acquire().await.expect("the lease"); // counts before the client's
        for (i, retry) in asked.lock().expect("retries").iter().enumerate() {
            let n = i as u32 + 1;
            assert_eq!((retry.verb, retry.key.as_str(), retry.failures, retry.attempts), ("Acquire", s.key.as_str(), n, n), "{retry:?}");
            assert!(is_connection(retry.reason) && retry.reasons.contains(&retry.reason) && !retry.remaining.is_zero(), "{retry:?}");
        }
        assert!(asked.lock().expect("retries").len() >= 3);
        proxy.decide(json!(["cut", "pass"])); // the answer
        asked.lock().expect("retries").clear();
        lease.release().await.expect("the release"); // by the strategy of its acquire
        {
            let asked = asked.lock().expect("retries");
            assert_eq!((asked.len(), asked[0].verb, asked[0].reason), (1, "Release", RetryReason::SocketClosedWhileInFlight), "{asked:?}");
        }
        let mut held = Some(s.acquire(&client).await);
        let (strategy, asked) = patient(2, move || drop(held.take()));
        drop(s.lease(&client).retries(strategy).acquire().await.expect("the lease"));
        assert_eq!(asked.lock().expect("retries")[0].reason, RetryReason::LeaseHeld);
        let _held = s.acquire(&client).await;
        let long: Strategy = Arc::new(|_| Some(Duration::from_secs(3600)));
        for strategy in [best_effort(), long] {
            let refused = s.lease(&client).retries(strategy).acquire().await;
            assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
        }
    }),
    case!(retries_are_logged, "grpc", s => {
        let steps = Arc::new(Mutex::new(Vec::<RetryStep>::new()));
        let its = steps.clone();
        let proxy = s.proxy();
        let log = move |step: &RetryStep| its.lock().expect("steps").push(step.clone());
        let client = s.made(Client::builder().retry_log(log).patience(seconds(1)), &proxy.target);
        proxy.refuse(true);
        let waiter = tokio::spawn(s.lease(&client).wait(MINUTE).acquire());
        until("two retries", || steps.lock().expect("steps").len() >= 2).await;
        proxy.refuse(false);
        let _lease = granted(waiter).await;
        for step in steps.lock().expect("steps").drain(..) {
            assert!(step.retry.verb == "Acquire" && is_connection(step.retry.reason), "{step:?}");
            assert_eq!(step.delay, Some(Duration::from_millis(100)));
        }
        assert!(matches!(s.lease(&client).acquire().await, Err(Error::Held(_))));
        {
            let steps = steps.lock().expect("steps");
            assert_eq!((steps.len(), steps[0].delay, steps[0].retry.reason), (1, None, RetryReason::LeaseHeld), "{steps:?}");
        }
        let mut retry = steps.lock().expect("steps")[0].retry.clone();
        retry.reason = RetryReason::Unknown;
        let delays: Vec<_> = [1, 6, 11].into_iter().map(|failures| {
            retry.failures = failures;
            (best_effort()(&retry).expect("a delay").as_millis(), controlled_backoff(failures).as_millis())
        }).collect();
        assert_eq!(delays, [(1, 1), (32, 1000), (500, 1000)]);
    }),
];
