//! What the holder is told when the lease ends otherwise.

use std::sync::Arc;
use std::task::Poll;

use leasehold::{Client, Error, FOREVER, Outcome, Reason};
use serde_json::json;

use crate::case;
use crate::kit::*;

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("its threads").flatten();
    tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("closed-one"))).count()
}

pub const CASES: &[crate::Case] = &[
    case!(forced_end_is_told, "grpc sql pooler", s => {
        let client = s.client();
        let lease = s.lease(&client).duration(seconds(9)).acquire().await.expect("the lease");
        s.force();
        assert_eq!(lost(&lease).await.reason, Reason::Forced);
        assert!(matches!(lease.release().await, Err(Error::Lost(_))));
    }),
    case!(hold_that_the_policy_ends_is_told, "grpc sql pooler", s => {
        s.psql("select leasehold.set_policy('rust-ending', max_hold => '8 s', end_at_max_hold => true)");
        let client = s.client();
        let mut leases = vec![];
        for duration in [6, 30] {
            let lease = client.lease("rust-ending", &duration.to_string()).duration(seconds(duration));
            leases.push(lease.acquire().await.expect("the lease"));
        }
        for lease in &leases {
            let lost = lost(lease).await;
            assert_eq!((lost.reason, lost.message.as_str()), (Reason::MaxHold, "the policy of rust-ending ends a lease after max_hold"));
        }
    }),
    case!(unheard_loss_is_told_at_the_end, "grpc sql pooler", s => {
        let client = s.client();
        for words in ["", "the disk is full"] {
            let site = s.clone();
            let result = s.lease(&client).duration(5 * MINUTE).run(|_| async move {
                site.force();
                if words.is_empty() { Ok(()) } else { Err(Error::Denied { reason: "IO".into(), message: words.into() }) }
            }).await;
            match result {
                Err(Error::Lost(lost)) => assert!(lost.reason == Reason::Forced && lost.message.contains(words), "{lost:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(s.row("last_outcome"), "forced");
    }),
    case!(released_lease_is_not_held, "grpc sql pooler", s => {
        let client = s.client();
        s.lease(&client).run(|lease| async move {
            let outcome = Outcome::result(&json!({"rows": 3})).expect("JSON");
            // By several at once, and by one who gives up before the answer.
            let _ = tokio::time::timeout(std::time::Duration::from_micros(1), lease.release_with(outcome.clone())).await;
            let all: Vec<_> = (0..3).map(|_| {
                let (lease, outcome) = (lease.clone(), outcome.clone());
                tokio::spawn(async move { lease.release_with(outcome).await })
            }).collect();
            for each in all {
                each.await.expect("no panic").expect("the release");
            }
            assert!(lease.remaining().is_zero() && lease.is_lost().is_none());
            Ok::<_, Error>(())
        }).await.expect("no loss");
        assert_eq!(s.row("state, last_outcome, last_result ->> 'rows'"), "free|ok|3");
    }),
    case!(silence_is_told_before_the_deadline, "grpc sql", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.lease(&client).duration(seconds(40)).acquire().await.expect("the lease"); // a fifth is left to look
        proxy.freeze(true);
        let lost = lost(&lease).await;
        assert_eq!(s.row("state, deadline > clock_timestamp()"), "held|t");
        assert_eq!(lost.reason, Reason::Unreachable);
        proxy.freeze(false);
    }),
    case!(stopped_process_wakes_up_without_the_lease, "grpc sql", s => {
        let program = s.program("work", seconds(3));
        program.line("working").await;
        program.signal("STOP");
        let (client, _reaper) = (s.client(), s.reap());
        let other = s.lease(&client).wait(MINUTE).acquire().await.expect("the lease");
        let before = program.count("working");
        program.signal("CONT");
        program.line("lost").await;
        assert!(program.count("working") <= before + 1, "it went on with its work"); // a step that had begun
        assert_eq!(s.row("state, token"), format!("held|{}", other.token()));
    }),
    case!(lost_release_is_repeated, "grpc", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.acquire(&client).await;
        proxy.decide(json!(["cut", "pass"]));
        lease.release().await.expect("the release");
        assert_eq!(s.row("state, last_outcome"), "free|ok");
    }),
    case!(no_renewal_after_release, "grpc sql", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.lease(&client).duration(seconds(12)).acquire().await.expect("the lease");
        until("a renewal", || s.beats() >= 1).await;
        proxy.decide(json!([["delay", 0.5], "pass"]));
        let before = s.beats();
        until("a renewal in flight", || s.beats() > before).await;
        lease.release().await.expect("the release");
        let sent = proxy.state()["messages_sent"].clone();
        // Meanwhile another client's lease is renewed twice.
        let other = s.client();
        let clock = other.lease("cases", "rust clock").duration(seconds(9)).acquire().await.expect("the lease");
        until("renewals of another lease", || s.beats_of(&clock) >= 2).await;
        assert_eq!(proxy.state()["messages_sent"], sent, "it was renewed after its release");
        assert!(lease.is_lost().is_none());
    }),
    case!(close_leaves_nothing, "grpc sql pooler", s => {
        let client = std::thread::Builder::new().spawn({
            let target = if s.on == "grpc" { s.target.clone() } else { format!("{} application_name=rust-{}-closed", s.target, s.on) };
            move || connect(Client::builder().thread_name("closed-one"), &target).expect("a client")
        }).expect("a thread").join().expect("no panic");
        let lease = s.lease(&client).duration(seconds(9)).acquire().await.expect("the lease");
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
        until("a renewal", || s.beats() >= 1).await;
        assert_eq!(threads(), 1);
        client.close().await;
        assert!(matches!(waiter.await.expect("no panic"), Err(Error::Closed)));
        assert_eq!(lost(&lease).await.reason, Reason::Closed);
        until("the end of its thread", || threads() == 0).await;
        if s.on == "sql" {
            until("the end of its sessions", || s.psql("select count(*) from pg_stat_activity where application_name = 'rust-sql-closed'") == "0").await;
        }
        until("an empty queue", || s.waiters() == "0").await;
        let before = s.beats();
        until("the deadline", || s.row("state = 'free' or deadline < clock_timestamp()") == "t").await;
        assert_eq!(s.beats(), before, "a closed client renewed");
        assert!(matches!(s.lease(&client).acquire().await, Err(Error::Closed)));
    }),
    case!(exit_leaves_nothing, "grpc sql", s => {
        let mut program = s.program("exit", seconds(2));
        let status = tokio::task::block_in_place(|| program.child.wait()).expect("its end");
        assert_eq!(status.code(), Some(7));
        until("the deadline", || s.row("state = 'free' or deadline < clock_timestamp()") == "t").await;
    }),
    case!(lost_lease_ends_nested_calls, "grpc sql", s => {
        let client = s.client();
        let key = format!("{} other", s.key);
        let _other = client.lease("cases", &key).acquire().await.expect("the lease");
        let waiters = |s: &Site, key: &str| s.psql(&format!("select count(*) from leasehold.queue where key = '{key}'"));
        let (site, its, inner) = (s.clone(), key.clone(), client.clone());
        let forcing = tokio::spawn(async move {
            until("a waiter", || waiters(&site, &its) == "1").await;
            site.force();
        });
        let nested = key.clone();
        let result = s.lease(&client).duration(seconds(9)).run(|_| async move { inner.lease("cases", &nested).wait(FOREVER).acquire().await }).await;
        assert!(matches!(result, Err(Error::Lost(_))), "{result:?}");
        forcing.await.expect("no panic");
        until("an empty queue", || waiters(&s, &key) == "0").await;
    }),
    case!(dropped_lease_is_released, "", s => {
        let client = s.client();
        drop(s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease"));
        until("the release", || s.row("state, last_outcome") == "free|ok").await;
        let lease = Arc::new(s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease"));
        let its = lease.clone();
        drop(lease);
        let work = tokio::spawn(async move {
            let _its = its;
            panic!("as it should");
        });
        assert!(work.await.is_err());
        until("the release", || s.row("state, last_outcome, last_error") == "free|failed|the work panicked").await;
    }),
    case!(interrupted_caller_holds_nothing, "grpc sql", s => {
        let client = s.client();
        let lease = || s.lease(&client).duration(5 * MINUTE).wait(MINUTE);
        let mut polls = 0;
        loop {
            // A lease that arrives meanwhile is in the way of the next.
            let mut work = Box::pin(lease().run(|_| async {
                tokio::task::yield_now().await;
                Ok::<_, Error>(())
            }));
            let mut left = polls;
            let ended = std::future::poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                work.as_mut().poll(context).map(Some)
            });
            if let Some(ended) = within_a_minute("a poll", ended).await {
                break ended.expect("the lease");
            }
            polls += 1;
        }
        assert!(polls >= 4, "{polls}");
        until("the release", || s.row("state, last_outcome") == "free|ok" && s.waiters() == "0").await;
        lease().acquire().await.expect("the lease").release().await.expect("the release");
    }),
];
