//! What others hold.

use std::time::SystemTime;

use leasehold::{Error, Event, EventKind, Lease, Liveness, Outcome, State, Watch};
use serde_json::json;

use crate::case;
use crate::kit::*;

/// The next event is this one.
async fn told(watch: &mut Watch, kind: EventKind, lease: &Lease) -> Event {
    let event = within_a_minute("an event", watch.next()).await.expect("an event");
    assert_eq!((event.kind, event.key.as_str(), event.holder.token), (kind, lease.key(), lease.token()), "{event:?}");
    event
}

async fn synced(watch: &mut Watch) {
    assert_eq!(within_a_minute("an event", watch.next()).await.expect("an event").kind, EventKind::Synced);
}

pub const CASES: &[crate::Case] = &[
    case!(explain_says_who_holds, "grpc sql pooler", s => {
        let client = s.client();
        let explain = async || client.explain("cases", &s.key).await.expect("an answer");
        let free = explain().await;
        assert_eq!((free.state, free.liveness, free.holders, free.token, free.since), (State::Free, None, 0, 0, None));
        assert!(free.advice.starts_with("free: acquire it"), "{free:?}");
        let lease = s.lease(&client).owner("somebody").duration(5 * MINUTE).at_least(60 * MINUTE).acquire().await.expect("the lease");
        let waiter = s.queue(1, s.lease(&client).owner("another").wait(MINUTE)).await;
        let held = explain().await;
        assert_eq!((held.state, held.liveness, held.holder.as_str(), held.token), (State::Held, Some(Liveness::Alive), "somebody", lease.token()));
        assert_eq!((held.holders, held.waiters, held.units), (1, 1, 0));
        assert!(held.first_waiter == "another" || s.on != "grpc" && held.first_waiter.starts_with("postgres, pid "), "{held:?}"); // SQL knows the role
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
    }),
    case!(watch_begins_with_what_is_held, "grpc", s => {
        let (client, namespace) = (s.client(), "rust-watched.begin");
        let lease = |key: &str| client.lease(namespace, key).owner("somebody").label("for", "a test");
        let first = lease("first").acquire().await.expect("the lease");
        let mut watch = client.watch("rust-watched").children();
        let event = told(&mut watch, EventKind::Held, &first).await;
        assert_eq!((event.namespace.as_str(), event.holder.owner.as_str(), event.holder.labels["for"].as_str()), (namespace, "somebody", "a test"));
        synced(&mut watch).await;
        // Of events that nobody waits for, and of waits that are given up, none is lost.
        assert!(tokio::time::timeout(std::time::Duration::from_millis(50), watch.next()).await.is_err());
        let second = lease("second").shared(2).acquire().await.expect("the lease");
        first.release_with(Outcome::result(&json!(3)).expect("JSON")).await.expect("the release");
        let third = lease("third").acquire().await.expect("the lease");
        assert_eq!(told(&mut watch, EventKind::Acquired, &second).await.holder.units, 2);
        assert_eq!(told(&mut watch, EventKind::Released, &first).await.result, "3");
        told(&mut watch, EventKind::Acquired, &third).await;
        second.downgrade(1).await.expect("the downgrade");
        assert_eq!(told(&mut watch, EventKind::Downgraded, &second).await.holder.units, 1);
        second.release_with(Outcome::failure("it is broken")).await.expect("the release");
        assert_eq!(told(&mut watch, EventKind::Failed, &second).await.message, "it is broken");
        s.psql(&format!("select from leasehold.force_release('{namespace}', 'third', 'a test')"));
        assert_eq!(told(&mut watch, EventKind::Forced, &third).await.message, "a test");
        synced(&mut client.watch(namespace).key("none")).await;
        let mut wrong = client.watch("rust-watched").key("one").children();
        assert!(matches!(wrong.next().await, Err(Error::InvalidArgument(_))));
        assert!(matches!(wrong.next().await, Err(Error::InvalidArgument(_))));
        assert!(matches!(client.watch("a..b").next().await, Err(Error::InvalidArgument(_))));
        // The end of its client; that of nobody who can be reached.
        let other = s.client();
        let mut ended = other.watch(namespace);
        synced(&mut ended).await;
        other.close().await;
        assert_eq!(within_a_minute("the end", ended.next()).await, Err(Error::Closed));
        let nobody = s.made(leasehold::Client::builder().patience(seconds(1)), &s.nowhere());
        assert!(matches!(within_a_minute("the end", nobody.watch(namespace).next()).await, Err(Error::Unavailable(_))));
        let (its, key) = (leasehold::blocking::Client::new(s.client()), first.key().to_string());
        let thread = std::thread::spawn(move || {
            let _first = its.acquire(its.lease(namespace, &key)).expect("the lease");
            let events = its.events(its.watch(namespace).key(&key)).take(2).map(|event| event.expect("an event").kind);
            events.collect::<Vec<_>>()
        });
        assert_eq!(tokio::task::block_in_place(|| thread.join()).expect("no panic"), [EventKind::Held, EventKind::Synced]);
    }),
    case!(watch_goes_on_after_a_restart, "grpc", s => {
        let (daemon, namespace) = (Daemon::new(), "rust-watched-restart");
        let client = s.client_at(&daemon.target);
        let lease = client.lease(namespace, "first").duration(5 * MINUTE).acquire().await.expect("the lease");
        let mut watch = client.watch(namespace);
        for is_again in [false, true] {
            told(&mut watch, EventKind::Held, &lease).await;
            synced(&mut watch).await;
            if !is_again {
                ask("daemon/kill", json!({"id": daemon.id}));
                ask("daemon/start", json!({"id": daemon.id}));
            }
        }
        lease.release().await.expect("the release");
        told(&mut watch, EventKind::Released, &lease).await;
    }),
];
