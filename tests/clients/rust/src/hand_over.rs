//! Requests to hand a lease over.

use std::time::Duration;

use leasehold::{Error, HandOver, Outcome};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::case;
use crate::kit::*;

/// Leases and waits that end by nothing but the case.
const LASTING: Duration = Duration::from_secs(300);

/// What a lease says that is asked, and what is heard of it.
fn ears() -> (impl Fn(HandOver) + Send + Sync + 'static, UnboundedReceiver<HandOver>) {
    let (tell, told) = unbounded_channel();
    (move |request| tell.send(request).expect("the case"), told)
}

async fn next(told: &mut UnboundedReceiver<HandOver>) -> HandOver {
    within_a_minute("a request", told.recv()).await.expect("a request")
}

fn is_named<T: std::fmt::Debug>(result: Result<T, Error>, field: &str, words: &str) {
    match result {
        Err(Error::InvalidArgument(wrong)) => assert_eq!((wrong.field.as_str(), wrong.message.as_str()), (field, words)),
        other => panic!("{other:?}"),
    }
}

pub const CASES: &[crate::Case] = &[
    case!(holder_is_asked, "grpc sql pooler", s => {
        let client = s.client();
        let (hear, mut told) = ears();
        let lease = s.lease(&client).duration(seconds(12)).owner("worker-1").on_asked(hear).acquire().await.expect("the lease");
        assert!(!lease.refuse_hand_over("too early").await.expect("an answer"));
        let (its, key, token) = (client.clone(), s.key.clone(), lease.token());
        let ask = |reason: &'static str, refusal: &'static str| {
            let (client, key) = (its.clone(), key.clone());
            async move {
                let found = client.ask_hand_over("cases", &key, reason).await.expect("an answer");
                let facts: Vec<_> = found.iter().map(|each| (each.owner.as_str(), each.token, each.refusal.as_str())).collect();
                assert_eq!(facts, [("worker-1", token, refusal)]);
                found[0].clone()
            }
        };
        let asked = ask("its host is drained", "").await;
        assert_eq!(asked.reason, "its host is drained");
        assert!(!asked.answer_in.is_zero() && asked.answer_in <= seconds(30), "{asked:?}");
        let heard = next(&mut told).await;
        assert_eq!((&heard.reason, &heard.asked_by, heard.asked_at), (&asked.reason, &asked.asked_by, asked.asked_at));
        let beats = s.beats();
        until("two renewals", || s.beats() >= beats + 2).await;
        assert!(told.is_empty());
        assert!(lease.refuse_hand_over("in a minute").await.expect("an answer"));
        assert!(lease.refuse_hand_over("and again").await.expect("an answer"));
        assert_eq!(ask("well?", "in a minute").await.asked_at, asked.asked_at);
        // The time to answer has passed: it may be asked again.
        s.psql(&format!("update leasehold.hand_over set answer_by = now() - interval '1 s' where namespace = 'cases' and key = '{}'", s.key));
        ask("and now?", "").await;
        assert_eq!(next(&mut told).await.reason, "and now?");
        assert!(lease.is_lost().is_none());
        lease.release().await.expect("the release");
        assert_eq!(client.ask_hand_over("cases", &s.key, "nobody").await.expect("an answer"), []);
    }),
    case!(waiter_asks_the_holder, "grpc sql pooler", s => {
        let (hear, mut told) = ears();
        let holder = s.lease(&s.client()).duration(seconds(12)).on_asked(hear).acquire().await.expect("the lease");
        let other = s.client();
        let waiter = s.queue(1, s.lease(&other).owner("worker-2").ask_hand_over().wait(LASTING)).await;
        let request = next(&mut told).await;
        assert!(request.asked_by == "worker-2" || s.on != "grpc" && request.asked_by.starts_with("postgres, pid "), "{request:?}"); // SQL knows the role
        assert_eq!(request.refusal, "");
        holder.release().await.expect("the release");
        granted(waiter).await.release().await.expect("the release");
    }),
    case!(leader_is_asked_on_its_stream, "grpc", s => {
        let (hear, mut told) = ears();
        let client = s.client();
        let leader = s.lease(&client).duration(LASTING).on_asked(hear).while_connected().acquire().await.expect("the lease");
        s.client().ask_hand_over("cases", &s.key, "a better one is there").await.expect("an answer");
        assert_eq!(next(&mut told).await.reason, "a better one is there"); // long before its next renewal
        assert!(leader.refuse_hand_over("not now").await.expect("an answer") && leader.is_lost().is_none());
    }),
    case!(refusal_of_an_ended_lease_is_false, "grpc sql pooler", s => {
        let client = s.client();
        let lease = s.lease(&client).duration(LASTING).acquire().await.expect("the lease"); // no renewal tells of the end
        assert_eq!(client.ask_hand_over("cases", &s.key, "").await.expect("an answer").len(), 1);
        s.force();
        assert!(!lease.refuse_hand_over("not now").await.expect("an answer"));
    }),
    case!(wrong_words_are_named, "grpc sql pooler", s => {
        let client = s.client();
        let long = "x".repeat(1025);
        is_named(client.ask_hand_over("cases", &s.key, &long).await, "reason", "reason must be at most 1024 bytes, has 1025");
        is_named(s.lease(&client).ask_hand_over().acquire().await, "ask_hand_over", "ask_hand_over must be absent without a wait");
        is_named(client.ask_hand_over("cases", "", "x").await, "key", "key must be 1 to 1024 bytes, has 0");
        let lease = s.acquire(&client).await;
        is_named(lease.refuse_hand_over("").await, "reason", "reason must be 1 to 1024 bytes, has 0");
        lease.release_with(Outcome::success()).await.expect("the release");
        assert!(matches!(lease.refuse_hand_over("too late").await, Err(Error::Released)));
    }),
];
