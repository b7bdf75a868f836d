//! Retries.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, Retry, RetryReason, RetryStep, Strategy, best_effort, controlled_backoff, fail_fast};
use serde_json::json;
use tokio::task::JoinError;

use crate::case;
use crate::kit::*;

/// A strategy that does this when it was asked so many times, and repeats.
fn patient(at: usize, then: impl FnMut() + Send + 'static) -> (Strategy, Arc<Mutex<Vec<Retry>>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let (its, then) = (asked.clone(), Mutex::new(then));
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

/// A strategy that repeats after a millisecond, and why it was asked.
fn soon() -> (Strategy, Arc<Mutex<Vec<RetryReason>>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let its = asked.clone();
    let strategy: Strategy = Arc::new(move |retry| {
        its.lock().expect("reasons").push(retry.reason);
        Some(Duration::from_millis(1))
    });
    (strategy, asked)
}

/// A proxy that resets whoever connects does so before or after hyper has written the request.
fn is_connection(reason: RetryReason) -> bool {
    matches!(reason, RetryReason::SocketNotAvailable | RetryReason::SocketClosedWhileInFlight)
}

/// A request whose strategy panics ends with that, and is given up.
async fn panics(s: &Site) {
    let (broken, proxy): (Strategy, _) = (Arc::new(|_| resume_unwind(Box::new("the strategy is broken"))), s.proxy());
    let client = s.made(Client::builder().patience(seconds(1)).retry_log(|_| resume_unwind(Box::new("so is the log"))), &proxy.target);
    let is_broken = |ended: Result<Result<(), Error>, JoinError>| {
        let panic = ended.expect_err("a panic").into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"the strategy is broken"));
    };
    let lease = || s.lease(&client).duration(5 * MINUTE).wait(MINUTE);
    let kept = client.lease("cases", &format!("{} kept", s.key)).duration(5 * MINUTE).acquire().await.expect("the lease");
    proxy.decide(json!(["drop"]));
    let asking = tokio::spawn(lease().retries(broken.clone()).acquire());
    until("the grant", || s.row("state") == "held").await;
    is_broken(asking.await.map(|asked| asked.map(drop)));
    proxy.decide(json!(["pass"]));
    until("the release of what was granted unheard", || s.row("state") == "free").await;
    let lease = lease().retries(broken.clone()).acquire().await.expect("the lease");
    let (blocking, key) = (leasehold::blocking::Client::new(client), s.key.clone());
    let of_a_thread = move || blocking.acquire(blocking.lease("cases", &key).retries(broken)).map(drop);
    is_broken(tokio::task::spawn_blocking(of_a_thread).await); // that it is held
    proxy.refuse(true);
    is_broken(tokio::spawn(async move { lease.release().await }).await);
    proxy.refuse(false);
    until("the release", || s.row("state, last_outcome") == "free|ok").await;
    assert!(kept.is_lost().is_none());
    kept.release().await.expect("the release");
}

/// A strategy repeats an acquire that does not wait.
async fn may_wait_for_a_holder(s: &Site) {
    let client = s.made(Client::builder().strategy(fail_fast()), &s.target);
    let mut held = Some(s.acquire(&client).await);
    let (strategy, asked) = patient(2, move || drop(held.take()));
    drop(s.lease(&client).retries(strategy).acquire().await.expect("the lease"));
    assert!(asked.lock().expect("retries").len() >= 2);
    assert_eq!(asked.lock().expect("retries")[0].reason, RetryReason::LeaseHeld);
    panics(s).await;
    let _held = s.acquire(&client).await;
    let long: Strategy = Arc::new(|_| Some(Duration::from_secs(3600))); // longer than the request's time
    for strategy in [best_effort(), long] {
        let refused = s.lease(&client).retries(strategy).acquire().await;
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    }
}

/// Keeps the row of the scope locked until it is dropped.
async fn lock(s: &Site) -> leasehold::tokio_postgres::Client {
    let (session, connection) = leasehold::tokio_postgres::connect(&s.database, leasehold::tokio_postgres::NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    let row = format!("select from leasehold.scope where namespace = 'cases' and key = '{}' for update", s.key);
    session.batch_execute(&format!("begin; {row}")).await.expect("the lock");
    session
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
        may_wait_for_a_holder(&s).await;
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
        for (n, step) in steps.lock().expect("steps").drain(..).enumerate() {
            let is_open = step.retry.reason == RetryReason::CircuitBreakerOpen;
            assert!(step.retry.verb == "Acquire" && (is_connection(step.retry.reason) || is_open), "{step:?}");
            assert_eq!(step.delay, Some(Duration::from_millis((1 << n.min(9)).min(500))));
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
    case!(dead_address_is_spared, "grpc", s => {
        let proxy = s.proxy();
        proxy.refuse(true);
        let (strategy, asked) = soon();
        let waiter = tokio::spawn(s.lease(&s.client_at(&proxy.target)).retries(strategy).wait(2 * MINUTE).acquire());
        until("three hundred retries", || asked.lock().expect("reasons").len() >= 300).await;
        assert!(proxy.state()["accepted"].as_u64() < Some(100), "{}", proxy.state());
        proxy.refuse(false);
        granted(waiter).await.release().await.expect("the release");
    }),
    case!(circuit_opens_and_is_probed, "grpc", s => {
        let proxy = s.proxy();
        proxy.refuse(true);
        let (strategy, asked) = soon();
        let waiter = tokio::spawn(s.lease(&s.client_at(&proxy.target)).retries(strategy).wait(MINUTE).acquire());
        until("an open circuit", || asked.lock().expect("reasons").contains(&RetryReason::CircuitBreakerOpen)).await;
        {
            let asked = asked.lock().expect("reasons");
            assert!(asked[..5].iter().all(|&reason| is_connection(reason)) && asked[5] == RetryReason::CircuitBreakerOpen, "{asked:?}");
        }
        let tries = || asked.lock().expect("reasons").iter().filter(|&&reason| is_connection(reason)).count();
        until("two that try it", || tries() >= 7).await;
        proxy.refuse(false);
        let lease = granted(waiter).await;
        asked.lock().expect("reasons").clear();
        proxy.refuse(true);
        let released = tokio::spawn(async move { lease.release().await });
        until("a failure", || !asked.lock().expect("reasons").is_empty()).await;
        proxy.refuse(false);
        released.await.expect("no panic").expect("the release");
        assert!(is_connection(asked.lock().expect("reasons")[0])); // an answer had closed it
    }),
    case!(retry_reasons_are_those_of_c, "grpc", s => {
        let header = include_str!("../../../../src/leasehold_retry.h");
        let names = header.lines().filter_map(|line| line.strip_prefix("    LH_RETRY_")?.strip_suffix(','));
        assert!(names.eq(RetryReason::ALL.iter().map(RetryReason::to_string)), "{:?}", RetryReason::ALL);
        let mut table = std::collections::HashMap::new();
        for row in header.lines().filter(|line| line.ends_with("the same") || line.ends_with("the next")) {
            let columns: Vec<_> = row.trim_start_matches(" *").split("  ").map(str::trim).filter(|each| !each.is_empty()).collect();
            if let [names, unsent @ ("yes" | "no"), always, place] = columns[..] {
                table.extend(names.split(", ").map(|name| (name.to_string(), (unsent == "yes", always == "yes", place == "the next"))));
            }
        }
        assert_eq!(table.len(), RetryReason::ALL.len(), "{table:?}");
        for reason in RetryReason::ALL {
            assert_eq!(table.get(&reason.to_string()), Some(&(reason.is_unsent(), reason.is_always(), reason.is_next())), "{reason}");
        }
        assert_eq!(s.on, "grpc");
    }),
    case!(busy_scope_is_unavailable, "grpc sql pooler", s => {
        let asked = Arc::new(Mutex::new(vec![]));
        let its = asked.clone();
        let refusing: Strategy = Arc::new(move |retry| {
            its.lock().expect("reasons").push(retry.reason);
            None
        });
        let proxies = (s.on == "grpc").then(|| [s.proxy(), s.proxy()]);
        let target = proxies.as_ref().map_or(s.target.clone(), |[first, next]| format!("{},{}", first.target, next.target));
        let client = s.made(Client::builder().strategy(refusing).patience(MINUTE), &target);
        let is_busy = |end: Result<(), Error>| match end {
            Err(Error::Unavailable(trouble)) => assert_eq!(trouble.reason, RetryReason::ScopeBusy),
            other => panic!("{other:?}"),
        };
        let lease = s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease");
        let lock = lock(&s).await;
        is_busy(lease.downgrade(1).await);
        assert_eq!(*asked.lock().expect("reasons"), [RetryReason::ScopeBusy]);
        if let Some([_, next]) = &proxies { // in SQL an acquire never waits for the row
            is_busy(s.lease(&client).acquire().await.map(drop));
            assert_eq!(next.state()["requests"], 0);
        }
        drop(lock);
        lease.release().await.expect("the release");
    }),
    case!(strategy_decides_in_sql, "sql", s => {
        let proxy = Arc::new(s.proxy());
        let client = s.made(Client::builder().strategy(fail_fast()), &proxy.target);
        proxy.refuse(true);
        match s.lease(&client).wait(MINUTE).acquire().await {
            Err(Error::Unavailable(trouble)) => assert!(is_connection(trouble.reason), "{trouble:?}"),
            other => panic!("{other:?}"),
        }
        let end = Arc::new(Mutex::new(None));
        let (its, back) = (proxy.clone(), end.clone());
        let (strategy, asked) = patient(3, move || {
            its.refuse(false);
            drop(back.lock().expect("a lock").take());
        });
        let told = || asked.lock().expect("retries").drain(..).map(|each| (each.verb, is_connection(each.reason))).collect::<Vec<_>>();
        let lease = s.lease(&client).retries(strategy).acquire().await.expect("the lease"); // counts before the client's
        assert_eq!(told(), [("Acquire", true); 3]);
        *end.lock().expect("a lock") = Some(lock(&s).await);
        lease.downgrade(1).await.expect("the downgrade");
        assert_eq!(told()[..3], [("Downgrade", false); 3]);
        proxy.refuse(true);
        lease.release().await.expect("the release");
        assert_eq!(told(), [("Release", true); 3]);
        assert_eq!(s.row("state, last_outcome"), "free|ok");
    }),
    case!(strategy_may_wait_for_a_holder, "sql", s => {
        may_wait_for_a_holder(&s).await;
    }),
    case!(retries_are_logged_in_sql, "sql", s => {
        let steps = Arc::new(Mutex::new(Vec::<RetryStep>::new()));
        let (its, proxy) = (steps.clone(), s.proxy());
        let client = s.made(Client::builder().retry_log(move |step: &RetryStep| its.lock().expect("steps").push(step.clone())), &proxy.target);
        proxy.refuse(true);
        let waiter = tokio::spawn(s.lease(&client).wait(MINUTE).acquire());
        until("two retries", || steps.lock().expect("steps").len() >= 2).await;
        proxy.refuse(false);
        let _lease = granted(waiter).await;
        for (n, step) in steps.lock().expect("steps").drain(..).enumerate() {
            assert!(step.retry.verb == "Acquire" && is_connection(step.retry.reason), "{step:?}");
            assert_eq!(step.delay, Some(Duration::from_millis((1 << n.min(9)).min(500))));
        }
        assert!(matches!(s.lease(&client).acquire().await, Err(Error::Held(_))));
        let steps = steps.lock().expect("steps");
        assert_eq!((steps.len(), steps[0].delay, steps[0].retry.reason), (1, None, RetryReason::LeaseHeld), "{steps:?}");
    }),
];
