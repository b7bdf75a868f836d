//! What callbacks tell.

use std::sync::{Arc, Mutex};

use leasehold::{Change, ChangeKind, Client, Error, Outcome, Reason};
use serde_json::json;

use crate::case;
use crate::kit::*;

/// What was told, in words.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn hear(&self) -> impl Fn(Change) + Send + Sync + 'static {
        let its = self.clone();
        move |change| {
            let what = match change.kind {
                ChangeKind::Granted => "granted".into(),
                ChangeKind::Renewed => "renewed".into(),
                ChangeKind::Released => "released".into(),
                ChangeKind::Lost(lost) => lost.reason.to_string(),
                other => format!("{other:?}"),
            };
            its.0.lock().expect("words").push(format!("{what} {}", change.token));
            if what == "renewed" || what == "closed" {
                std::panic::resume_unwind(Box::new("a callback that panics hurts nobody")); // without a message
            }
        }
    }

    fn count(&self, what: &str) -> usize {
        self.0.lock().expect("words").iter().filter(|each| each.starts_with(what)).count()
    }

    /// All, with one for several renewals in a row.
    fn all(&self) -> Vec<String> {
        let mut all = self.0.lock().expect("words").clone();
        all.dedup();
        all
    }
}

pub const CASES: &[crate::Case] = &[
    case!(callbacks_tell_of_a_lease, "grpc sql pooler", s => {
        let (client, told) = (s.client(), Told::default());
        let lease = || s.lease(&client).duration(seconds(9)).on_change(told.hear());
        let first = lease().acquire().await.expect("the lease");
        assert!(matches!(lease().acquire().await, Err(Error::Held(_)))); // of which nothing is told
        until("two renewals", || told.count("renewed") >= 2).await;
        first.release().await.expect("the release");
        until("the release", || told.count("released") == 1).await;
        first.release().await.expect("the release");
        let second = lease().acquire().await.expect("the lease");
        until("a renewal", || told.count(&format!("renewed {}", second.token())) >= 1).await;
        s.force();
        assert_eq!(lost(&second).await.reason, Reason::Forced);
        drop(second.release().await);
        let token = second.token();
        drop(second);
        let mut expected: Vec<_> = ["granted", "renewed", "released"].iter().map(|what| format!("{what} {}", first.token())).collect();
        expected.extend(["granted", "renewed", "forced"].iter().map(|what| format!("{what} {token}")));
        until("the loss", || told.count("forced") == 1).await;
        assert_eq!(told.all(), expected);
    }),
    case!(listener_that_throws_costs_nothing, "grpc sql", s => {
        fn broken() {
            std::panic::resume_unwind(Box::new("the listener is broken")); // without a message
        }
        let client = s.made(Client::builder().log(|_| broken()).retry_log(|_| broken()), &s.target);
        let lease = |key: &str, duration| client.lease("cases", key).duration(duration).on_change(|_| broken()).on_asked(|_| broken());
        let kept = lease(&format!("{} kept", s.key), seconds(6)).acquire().await.expect("the lease");
        let ended = lease(&s.key, 5 * MINUTE).acquire().await.expect("the lease");
        assert!(matches!(lease(&s.key, MINUTE).acquire().await, Err(Error::Held(_)))); // of which the log of retries is told
        client.ask_hand_over("cases", kept.key(), "").await.expect("an answer");
        s.force();
        ended.try_release(Outcome::success()).expect("nobody has heard of the end"); // of which the log is told
        drop(lease(&s.key, 5 * MINUTE).wait(MINUTE).acquire().await.expect("the lease"));
        until("the release", || s.row("state, last_outcome") == "free|ok").await;
        let beats = s.beats_of(&kept);
        until("two renewals", || s.beats_of(&kept) >= beats + 2).await;
        kept.release().await.expect("the release");
        within_a_minute("the end", client.close()).await;
    }),
    case!(nothing_is_told_after_the_release, "grpc sql", s => {
        let (told, proxy, asker) = (Told::default(), s.proxy(), s.client());
        let (client, asked) = (s.client_at(&proxy.target), told.clone());
        let on_asked = move |_| asked.0.lock().expect("words").push("asked".into());
        let lease = s.lease(&client).duration(seconds(12)).on_change(told.hear()).on_asked(on_asked).acquire().await.expect("the lease");
        until("a renewal", || told.count("renewed") == 1).await;
        if s.on == "grpc" { proxy.decide(json!([["delay", 1], "pass"])) } else { proxy.freeze(true) }
        asker.ask_hand_over("cases", &s.key, "").await.expect("an answer");
        until("a renewal in flight", || s.beats() >= 2).await;
        lease.try_release(Outcome::success()).expect("it is held");
        proxy.freeze(false);
        until("the release", || s.row("state") == "free").await;
        client.close().await;
        assert_eq!(told.all(), ["granted", "renewed", "released"].map(|what| format!("{what} {}", lease.token())));
    }),
    case!(callbacks_have_told_all_when_the_client_is_closed, "", s => {
        for i in 0..100 {
            let (client, told) = (s.client(), Told::default());
            let lease = client.lease("cases", &format!("{} {i}", s.key)).on_change(told.hear()).acquire().await.expect("the lease");
            within_a_minute("the end", client.close()).await;
            assert_eq!(told.all(), ["granted", "closed"].map(|what| format!("{what} {}", lease.token())));
        }
    }),
    case!(callbacks_tell_of_leaders_and_of_several, "", s => {
        let (client, told) = (s.client(), Told::default());
        let leader = s.lease(&client).duration(seconds(9)).on_change(told.hear()).while_connected().acquire().await.expect("the lease");
        until("two renewals", || told.count("renewed") >= 2).await;
        let token = leader.token();
        drop(leader);
        until("the release", || told.count("released") == 1).await;
        assert_eq!(told.all(), ["granted", "renewed", "released"].map(|what| format!("{what} {token}")));
        let told = Told::default();
        let all = client.leases([("cases", "one"), ("cases", "two")].map(|(at, key)| (at, format!("{} {key}", s.key)))).on_change(told.hear());
        all.acquire().await.expect("the leases").release().await.expect("the release");
        until("the releases", || told.count("released") == 2).await;
        assert_eq!((told.count("granted"), told.all().len()), (2, 4));
    }),
];
