//! What others hold.

use std::time::SystemTime;

use leasehold::{Error, Liveness, State};

use crate::case;
use crate::kit::*;

pub const CASES: &[crate::Case] = &[case!(explain_says_who_holds, "grpc", s => {
    let client = s.client();
    let explain = async || client.explain("cases", &s.key).await.expect("an answer");
    let free = explain().await;
    assert_eq!((free.state, free.liveness, free.holders, free.token, free.since), (State::Free, None, 0, 0, None));
    assert!(free.advice.starts_with("free: acquire it"), "{free:?}");
    let lease = s.lease(&client).owner("somebody").duration(5 * MINUTE).at_least(5 * MINUTE).acquire().await.expect("the lease");
    let waiter = s.queue(1, s.lease(&client).owner("another").wait(MINUTE)).await;
    let held = explain().await;
    assert_eq!((held.state, held.liveness, held.holder.as_str(), held.token), (State::Held, Some(Liveness::Alive), "somebody", lease.token()));
    assert_eq!((held.holders, held.waiters, held.first_waiter.as_str(), held.units), (1, 1, "another", 0));
    assert!(held.advice.starts_with("wait: somebody is alive") && held.policy.contains("\"hand_over_grace\""), "{held:?}");
    assert!(held.since <= held.last_heartbeat_at && held.last_heartbeat_at < held.expires_at && held.expires_at > Some(SystemTime::now()), "{held:?}");
    s.silence(280);
    assert_eq!(explain().await.liveness, Some(Liveness::SuspectedDead));
    waiter.abort();
    until("an empty queue", || s.waiters() == "0").await;
    lease.release().await.expect("the release");
    let resting = explain().await;
    assert_eq!((resting.state, resting.liveness), (State::Resting, None));
    assert!(resting.rests_until > Some(SystemTime::now()) && resting.since < resting.rests_until, "{resting:?}");
    let key = format!("{} shared", s.key);
    let mut shares = vec![];
    for _ in 0..2 {
        shares.push(client.lease("cases", &key).shared(3).acquire().await.expect("the lease"));
    }
    let shared = client.explain("cases", &key).await.expect("an answer");
    assert_eq!((shared.state, shared.liveness, shared.holders, shared.units), (State::Shared, Some(Liveness::Alive), 2, 6));
    match client.explain("cases", "").await {
        Err(Error::InvalidArgument(wrong)) => assert_eq!(wrong.message, "key must be 1 to 1024 bytes, has 0"),
        other => panic!("{other:?}"),
    }
    let (client, its, key) = (leasehold::blocking::Client::new(client.clone()), shared, key.clone());
    let again = tokio::task::block_in_place(|| std::thread::spawn(move || client.explain("cases", &key)).join()).expect("no panic").expect("an answer");
    assert_eq!((again.state, again.token), (its.state, its.token));
})];
