//! Leader election, and leases that a stream holds.

use std::sync::Arc;

use leasehold::{Client, Error, Lease};
use tokio::sync::{Notify, mpsc};

use crate::case;
use crate::kit::*;

/// A candidate that sends its token when it is elected, and leads until it is told to resign.
fn stand(s: &Site, resign: &Arc<Notify>) -> mpsc::UnboundedReceiver<i64> {
    let (tell, tokens) = mpsc::unbounded_channel();
    let (candidate, resign) = (s.lease(&s.client()).duration(seconds(15)), resign.clone());
    tokio::spawn(candidate.lead(move |lease: Arc<Lease>| {
        let (tell, resign) = (tell.clone(), resign.clone());
        async move {
            let _ = tell.send(lease.token());
            resign.notified().await;
            Ok::<_, Error>(())
        }
    }));
    tokens
}

async fn next(tokens: &mut mpsc::UnboundedReceiver<i64>) -> i64 {
    within_a_minute("a leader", tokens.recv()).await.expect("a token")
}

pub const CASES: &[crate::Case] = &[
    case!(leader_killed_is_followed, "grpc", s => {
        let mut leader = s.program("lead", 5 * MINUTE);
        leader.line("working").await;
        let first = s.row("token");
        let mut tokens = stand(&s, &Arc::new(Notify::new()));
        until("a candidate", || s.waiters() == "1").await;
        leader.child.kill().expect("a kill");
        assert!(next(&mut tokens).await > first.parse().expect("a token"));
    }),
    case!(holder_killed_is_followed, "grpc", s => {
        let mut holder = s.program("hold", 5 * MINUTE);
        holder.line("working").await;
        let first: i64 = s.row("token").parse().expect("a token");
        let waiter = s.queue(1, s.lease(&s.client()).duration(5 * MINUTE).wait(5 * MINUTE)).await;
        holder.child.kill().expect("a kill");
        let next = granted(waiter).await; // long before the first lease would end by itself
        assert!(next.token() > first);
        assert_eq!(s.row("state, token"), format!("held|{}", next.token()));
        next.release().await.expect("the release");
    }),
    case!(leader_stopped_is_followed, "grpc", s => {
        let leader = s.program("lead", seconds(3));
        leader.line("working").await;
        let mut tokens = stand(&s, &Arc::new(Notify::new()));
        until("a candidate", || s.waiters() == "1").await;
        leader.signal("STOP");
        let token = next(&mut tokens).await;
        let before = leader.count("working");
        leader.signal("CONT");
        leader.line("lost").await;
        assert!(leader.count("working") <= before + 1, "it went on with its work"); // a step that had begun
        assert_eq!(s.row("state, token"), format!("held|{token}"));
    }),
    case!(candidate_says_alive_while_it_waits, "grpc", s => {
        let client = s.client();
        let _first = s.acquire(&client).await;
        let proxy = s.proxy();
        let _candidate = s.program_at("lead", seconds(3), &proxy.target);
        until("a candidate", || s.waiters() == "1").await;
        let sent = proxy.state()["messages_sent"].as_u64();
        until("its messages", || proxy.state()["messages_sent"].as_u64() >= sent.map(|sent| sent + 4)).await;
        assert_eq!(s.waiters(), "1");
    }),
    case!(stopped_candidate_is_passed_over, "grpc", s => {
        let mut first = s.program("lead", 5 * MINUTE);
        first.line("working").await;
        let proxy = s.proxy();
        proxy.set("http", true);
        let stopped = s.program_at("lead", seconds(3), &proxy.target);
        until("a candidate", || s.waiters() == "1").await;
        let mut tokens = stand(&s, &Arc::new(Notify::new()));
        until("a second candidate", || s.waiters() == "2").await;
        stopped.signal("STOP");
        first.child.kill().expect("a kill");
        next(&mut tokens).await;
    }),
    case!(leader_goes_on_after_a_reset, "grpc", s => {
        let proxy = s.proxy();
        proxy.set("http", true);
        let leader = s.program_at("lead", seconds(6), &proxy.target);
        leader.line("working").await;
        let _tokens = stand(&s, &Arc::new(Notify::new()));
        until("a candidate", || s.waiters() == "1").await;
        let (token, beats, asked) = (s.row("token"), s.beats(), proxy.state()["requests"].as_u64());
        proxy.cut();
        until("renewals over another connection", || s.beats() > beats + 3 && proxy.state()["requests"].as_u64() > asked).await;
        assert_eq!((s.row("token"), s.waiters()), (token, "1".into()));
    }),
    case!(reset_is_no_release, "grpc", s => {
        let proxy = s.proxy();
        let leader = s.program_at("lead", seconds(30), &proxy.target);
        leader.line("working").await;
        proxy.cut();
        leader.line("lost").await;
        assert_eq!(leader.count("lost unreachable"), 1);
    }),
    case!(stream_that_fails_costs_no_lease, "grpc", s => {
        let file = std::env::temp_dir().join(format!("leasehold-rust-{}", std::process::id()));
        let (file, token) = (file.as_path(), s.psql("select token from leasehold.token_create('rust')"));
        let write = |token: &str| std::fs::write(file, token).expect("a file");
        write(&token);
        let proxy = s.proxy();
        proxy.set("http", true);
        let client = s.made(Client::builder().token_file(file), &proxy.target);
        let other = client.lease("cases", &format!("{} other", s.key)).duration(seconds(24)).acquire().await.expect("the lease");
        let leader = s.lease(&client).duration(seconds(24)).while_connected().acquire().await.expect("the lease");
        write(""); // it is being written
        let before = s.beats();
        proxy.cut();
        let clock = s.client().lease("cases", "rust clock of streams").duration(seconds(9)).acquire().await.expect("the lease");
        until("renewals of another lease", || s.beats_of(&clock) >= 2).await;
        assert!(matches!(client.explain("cases", &s.key).await, Err(Error::Unavailable(_))));
        assert_eq!(proxy.state()["connections"], 0);
        write(&token);
        until("renewals of both", || s.beats() >= before + 2 && s.beats_of(&other) >= 1).await;
        std::fs::remove_file(file).expect("a file");
        assert!(leader.is_lost().is_none() && other.is_lost().is_none());
        assert_eq!(s.row("state, token"), format!("held|{}", leader.token()));
    }),
    case!(leader_resigns, "grpc sql", s => {
        let (one, two) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut tokens = stand(&s, &one);
        let first = next(&mut tokens).await;
        let mut others = stand(&s, &two);
        until("a second candidate", || s.waiters() == "1").await;
        one.notify_one();
        let second = next(&mut others).await;
        assert!(second > first);
        let mut tokens = stand(&s, &one); // again
        until("the first as a candidate", || s.waiters() == "1").await;
        s.psql(&format!("select from leasehold.force_release('cases', '{}', 'a test', {second})", s.key));
        assert!(next(&mut tokens).await > second);
    }),
];
