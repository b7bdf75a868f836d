//! Releases for which nobody waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, Error, Lease, Outcome};
use serde_json::json;

use crate::case;
use crate::kit::*;

/// A hundred leases of a namespace of their own.
async fn many(client: &Client, namespace: &str) -> Vec<Lease> {
    let mut leases = vec![];
    for i in 0..100 {
        leases.push(client.lease(namespace, &i.to_string()).acquire().await.expect("the lease"));
    }
    leases
}

pub const CASES: &[crate::Case] = &[
    case!(try_release_waits_for_nothing, "grpc sql pooler", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.acquire(&client).await;
        proxy.decide(json!(["drop"]));
        lease.try_release(Outcome::result(&json!({"rows": 3})).expect("JSON")).expect("it was held");
        assert!(lease.remaining().is_zero() && lease.is_lost().is_none());
        assert_eq!(lease.try_release(Outcome::success()), Err(Error::Released));
        lease.release().await.expect("it was released");
        until("the release", || s.row("state, last_outcome, last_result ->> 'rows'") == "free|ok|3").await;
        proxy.decide(json!(["pass"]));
    }),
    case!(try_releases_go_together, "grpc sql pooler", s => {
        let client = s.client();
        let leases = many(&client, "written.rust-together").await;
        drop(leases);
        let ended = |looked: &str| s.psql(&format!("select {looked} from public.written where namespace = 'written.rust-together' and what = 'ended'"));
        until("all releases", || ended("count(*)") == "100").await;
        assert_eq!(ended("count(distinct xid) < 20"), "t");
    }),
    case!(acquire_follows_its_own_try_release, "grpc sql pooler", s => {
        let client = s.client();
        for _ in 0..10 {
            s.acquire(&client).await.try_release(Outcome::success()).expect("it was held");
        }
        s.acquire(&client).await.release().await.expect("the release");
    }),
    case!(close_sends_what_try_release_left, "grpc sql pooler", s => {
        let client = s.client();
        drop(many(&client, "many.rust-closing").await);
        client.close().await;
        assert_eq!(s.psql("select count(*) from leasehold.scope where namespace = 'many.rust-closing' and state = 'held'"), "0");
    }),
    case!(undelivered_release_is_logged, "grpc", s => {
        let said = Arc::new(Mutex::new(vec![]));
        let proxy = s.proxy();
        let its = said.clone();
        let log = move |line: &str| its.lock().expect("lines").push(line.to_string());
        let client = s.made(Client::builder().flush_timeout(Duration::from_millis(300)).log(log), &proxy.target);
        let lease = s.acquire(&client).await;
        proxy.freeze(true);
        lease.try_release(Outcome::success()).expect("it was held");
        client.close().await;
        let said = said.lock().expect("lines").clone();
        assert!(said.len() == 1 && said[0].contains(&format!("cases/{} was not delivered, and the lease is left to expire", s.key)), "{said:?}");
        assert_eq!(lease.try_release(Outcome::success()), Err(Error::Released));
        assert_eq!(s.row("state"), "held");
        proxy.freeze(false);
    }),
];
