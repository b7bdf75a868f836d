//! Acquiring, waiting, renewing.

use std::time::Instant;

use leasehold::{Client, Error, Outcome};
use serde_json::json;

use crate::case;
use crate::kit::*;

pub const CASES: &[crate::Case] = &[
    case!(acquire_and_release, "grpc sql pooler", s => {
        let client = s.client();
        let lease = s.lease(&client).owner("somebody").acquire().await.expect("the lease");
        assert_eq!(s.row("state, owner, token"), format!("held|somebody|{}", lease.token()));
        assert!(lease.deadline() > Instant::now() + lease.remaining());
        lease.release_with(Outcome::result(&json!({"rows": 3})).expect("JSON")).await.expect("the release");
        assert_eq!(s.row("state, last_outcome, last_result ->> 'rows'"), "free|ok|3");
        assert!(lease.remaining().is_zero() && lease.is_lost().is_none());
    }),
    case!(failed_work_is_released_as_failed, "grpc sql pooler", s => {
        let client = s.client();
        let result = s.lease(&client).run(|_| async { Err::<(), Box<dyn std::error::Error + Send + Sync>>("the work is broken".into()) }).await;
        assert_eq!(result.expect_err("an error").to_string(), "the work is broken");
        assert_eq!(s.row("state, last_outcome, last_error"), "free|failed|the work is broken");
    }),
    case!(token_grows, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        first.release().await.expect("the release");
        assert!(s.acquire(&client).await.token() > first.token());
    }),
    case!(held_names_the_holder, "grpc sql pooler", s => {
        let client = s.client();
        let _first = s.lease(&client).owner("the first").acquire().await.expect("the lease");
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
        match s.lease(&client).acquire().await {
            Err(Error::Held(held)) => assert_eq!((held.holder.as_str(), held.ahead, held.key), ("the first", 1, s.key)),
            other => panic!("{other:?}"),
        }
        waiter.abort();
    }),
    case!(held_tells_of_the_holder, "grpc sql pooler", s => {
        let client = s.client();
        let _lease = s.lease(&client).duration(5 * MINUTE).acquire().await.expect("the lease");
        match s.lease(&client).acquire().await {
            Err(Error::Held(held)) => assert!(held.alive && held.silent < seconds(100) && held.held_for < seconds(100), "{held:?}"),
            other => panic!("{other:?}"),
        }
        s.silence(280);
        match s.lease(&client).acquire().await {
            Err(Error::Held(held)) => assert!(!held.alive && held.silent >= seconds(280) && held.held_for >= seconds(280), "{held:?}"),
            other => panic!("{other:?}"),
        }
    }),
    case!(wait_lasts_while_the_holder_is_alive, "grpc sql pooler", s => {
        let client = s.client();
        let long = || s.lease(&client).duration(5 * MINUTE);
        let first = long().acquire().await.expect("the lease");
        let waiter = s.queue(1, long().wait_while_alive()).await;
        first.release().await.expect("the release");
        let second = granted(waiter).await;
        s.silence(280);
        let refused = within_a_minute("the refusal", long().wait_while_alive().acquire()).await;
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
        assert_eq!(s.row("token"), second.token().to_string());
    }),
    case!(wait_is_granted, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
        first.release().await.expect("the release");
        let second = granted(waiter).await;
        assert_eq!(s.row("token"), second.token().to_string());
    }),
    case!(wait_passes, "grpc sql pooler", s => {
        let client = s.client();
        let _first = s.acquire(&client).await;
        let refused = s.lease(&client).wait(std::time::Duration::from_millis(300)).acquire().await;
        assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
        until("an empty queue", || s.waiters() == "0").await;
    }),
    case!(waiters_are_served_in_order, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        let mut waiters = vec![];
        for i in 1..=3 {
            waiters.push(s.queue(i, s.lease(&client).wait(MINUTE).owner(format!("waiter {i}"))).await);
        }
        first.release().await.expect("the release");
        for (i, waiter) in waiters.into_iter().enumerate() {
            let lease = granted(waiter).await;
            assert_eq!(s.row("owner"), format!("waiter {}", i + 1));
            lease.release().await.expect("the release");
        }
    }),
    case!(cancelled_wait_leaves_the_queue, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
        waiter.abort(); // drops the future
        until("an empty queue", || s.waiters() == "0").await;
        first.release().await.expect("the release");
        assert_eq!(s.row("state, token"), format!("free|{}", first.token()));
    }),
    case!(grant_after_giving_up_is_released, "grpc sql", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        s.acquire(&client).await.release().await.expect("the release"); // connects
        proxy.decide(json!(["drop"]));
        let waiter = tokio::spawn(s.lease(&client).duration(5 * MINUTE).acquire());
        until("the grant", || s.row("state") == "held").await;
        waiter.abort();
        proxy.decide(json!(["pass"]));
        until("the release", || s.row("state") == "free").await;
        assert_ne!(s.row("last_outcome"), "expired");
    }),
    case!(late_request_is_given_back, "grpc", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        s.acquire(&client).await.release().await.expect("the release"); // connects
        let (before, replies) = (s.row("token"), proxy.state()["replies"].clone());
        proxy.hold_up(true);
        let waiter = tokio::spawn(s.lease(&client).duration(5 * MINUTE).acquire());
        until("a request that is held up", || proxy.state()["held"] != 0).await;
        waiter.abort();
        until("the answer to the release of what is not granted yet", || proxy.state()["replies"] != replies).await;
        proxy.hold_up(false);
        until("the late grant", || s.row("token") != before).await;
        until("the release", || s.row("state") == "free").await;
        assert_eq!(s.row("last_outcome"), "failed");
    }),
    case!(late_statement_is_given_back, "sql", s => {
        let proxy = s.proxy();
        let client = s.made(Client::builder().patience(seconds(5)), &proxy.target);
        s.acquire(&client).await.release().await.expect("the release"); // connects
        let before = s.row("token");
        proxy.hold_up(true);
        let said = proxy.state()["messages_sent"].clone();
        let waiter = tokio::spawn(s.lease(&client).duration(5 * MINUTE).acquire());
        until("a statement that is held up", || proxy.state()["messages_sent"] != said).await;
        waiter.abort();
        // One before, and a second one when the first is answered.
        until("the answer to the release of what is not granted yet", || proxy.has_heard("leasehold.release_each(", 3)).await;
        until("the end of its connection", || proxy.is_left()).await;
        proxy.hold_up(false);
        until("the late grant", || s.row("token") != before).await;
        until("the release", || s.row("state") == "free").await;
        assert_eq!(s.row("last_outcome"), "failed");
    }),
    case!(grant_taken_back_is_acquired_anew, "grpc", s => {
        let proxy = s.proxy();
        proxy.decide(json!(["drop"]));
        let client = s.client_at(&proxy.target);
        let waiter = tokio::spawn(s.lease(&client).wait(MINUTE).acquire());
        until("the grant", || s.row("state") == "held").await;
        let first = s.row("lease_key");
        proxy.refuse(true);
        until("the end of the connection", || proxy.state()["connections"] == 0).await;
        // The daemon took it back, or wrote its answer before the connection broke.
        s.psql(&format!("select leasehold.release_ok('cases', '{}', '{first}')", s.key));
        proxy.decide(json!(["pass"]));
        proxy.refuse(false);
        let lease = granted(waiter).await;
        let row = s.row("lease_key, token");
        assert!(!row.starts_with(&first) && row.ends_with(&format!("|{}", lease.token())), "{row}");
    }),
    case!(deadline_counts_from_the_request, "grpc sql", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        s.acquire(&client).await.release().await.expect("the release"); // connects
        proxy.decide(json!([["delay", 2], "pass"]));
        let since = Instant::now();
        let lease = s.lease(&client).duration(seconds(20)).acquire().await.expect("the lease");
        let (left, passed) = (lease.remaining(), since.elapsed());
        // A fifth is the margin.
        assert!(left + passed <= seconds(16) + std::time::Duration::from_millis(1500), "{left:?} {passed:?}");
    }),
    case!(deadline_does_not_count_the_wait, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE).duration(seconds(9))).await;
        tokio::time::sleep(seconds(10)).await; // longer than its duration
        first.release().await.expect("the release");
        let lease = granted(waiter).await;
        until("a renewal", || s.beats() >= 1).await;
        assert!(lease.is_lost().is_none() && !lease.remaining().is_zero());
    }),
    case!(renewal_keeps_the_lease, "grpc sql pooler", s => {
        let client = s.client();
        let lease = s.lease(&client).duration(seconds(9)).acquire().await.expect("the lease");
        until("four renewals", || s.beats() >= 4).await;
        assert_eq!(s.row("state, token"), format!("held|{}", lease.token()));
        lease.release().await.expect("the release");
    }),
    case!(one_request_renews_all, "grpc sql pooler", s => {
        let client = s.client();
        let mut leases = vec![];
        for i in 0..50 {
            leases.push(client.lease("written.rust", &i.to_string()).duration(seconds(20)).acquire().await.expect("the lease"));
        }
        until("one transaction for all", || {
            s.psql("select count(*) > 0 from (select from public.written where namespace = 'written.rust' and what = 'renewed'
                    group by xid having count(distinct key) = 50) of_all") == "t"
        }).await;
    }),
    case!(lost_replies_cost_no_lease, "grpc", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.lease(&client).duration(seconds(20)).acquire().await.expect("the lease");
        proxy.decide(json!(["pass", "drop", "pass", "cut", "pass", ["delay", 0.2], "pass", "truncate", "cycle"]));
        until("four renewals", || s.beats() >= 4 || lease.is_lost().is_some()).await;
        assert_eq!(s.row("state, token"), format!("held|{}", lease.token()));
        assert!(proxy.state()["actions"]["drop"].as_u64() > Some(0), "{}", proxy.state());
        lease.release().await.expect("the release");
        assert_eq!(s.row("state, last_outcome"), "free|ok");
    }),
    case!(daemon_restarts, "grpc", s => {
        let daemon = Daemon::new();
        let client = s.client_at(&daemon.target);
        let lease = s.lease(&client).duration(seconds(15)).acquire().await.expect("the lease");
        ask("daemon/kill", json!({"id": daemon.id}));
        ask("daemon/start", json!({"id": daemon.id}));
        let before = s.beats();
        until("two renewals", || s.beats() > before + 1).await;
        assert_eq!(s.row("state, token"), format!("held|{}", lease.token()));
        lease.release().await.expect("the release");
    }),
    case!(hanging_daemon_is_left, "grpc", s => {
        let daemon = Daemon::new();
        let client = s.client_at(&format!("{},{}", daemon.target, s.target));
        let lease = s.lease(&client).duration(seconds(12)).acquire().await.expect("the lease");
        daemon.signal("SIGSTOP");
        let before = s.beats();
        until("renewals elsewhere", || s.beats() >= before + 4 || lease.is_lost().is_some()).await;
        assert_eq!(s.row("state, token"), format!("held|{}", lease.token()));
        lease.release().await.expect("the release");
        daemon.signal("SIGCONT");
    }),
    case!(leased_work_runs_once, "grpc sql", s => {
        let client = s.client();
        let once = || s.lease(&client).at_least(5 * MINUTE).run(|_| async { Ok::<_, Error>(()) });
        once().await.expect("the work");
        let skipped = once().await;
        assert!(matches!(skipped, Err(Error::Held(_))), "{skipped:?}");
    }),
    case!(declared_lease_is_used_everywhere, "grpc sql pooler", s => {
        let declared = s.client().declare("cases", |lease| lease.owner("declared").duration(MINUTE)).expect("valid options");
        let lease = declared.lease(&s.key).acquire().await.expect("the lease");
        assert_eq!(s.row("owner, duration"), "declared|00:01:00");
        lease.release().await.expect("the release");
        let site = s.clone();
        declared.lease(&s.key).owner("its own").run(|_| async move {
            assert_eq!(site.row("owner, duration"), "its own|00:01:00");
            Ok::<_, Error>(())
        }).await.expect("the work");
    }),
];
