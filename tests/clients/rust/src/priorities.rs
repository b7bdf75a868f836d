//! The priority of waiters.

use std::time::Duration;

use leasehold::Error;
use tokio::sync::mpsc;

use crate::case;
use crate::kit::*;
use crate::secure::{secured, tls, with_token};

/// Leases and waits that end by nothing but the case.
const LASTING: Duration = Duration::from_secs(300);

pub const CASES: &[crate::Case] = &[
    case!(priority_is_served_first, "grpc sql pooler", s => {
        let namespace = "rust-urgent";
        let queue = |columns: &str| s.psql(&format!("select {columns} from leasehold.queue where namespace = '{namespace}'"));
        s.psql(&format!("select leasehold.set_policy('{namespace}', max_priority => 9, ageing => '1 day')"));
        let client = s.client();
        let lease = || client.lease(namespace, &s.key).duration(LASTING);
        let held = lease().acquire().await.expect("the lease");
        let (tell, mut granted) = mpsc::unbounded_channel();
        let waiters = [("first", 0), ("low", 2), ("high", 9), ("late", 9)];
        for (i, (owner, priority)) in waiters.into_iter().enumerate() {
            let tell = tell.clone();
            tokio::spawn(lease().owner(owner).priority(priority).wait(LASTING).run(move |_| async move {
                tell.send(owner).expect("the case");
                Ok::<_, Error>(())
            }));
            until("a place in the queue", || queue("count(*)") == (i + 1).to_string()).await;
        }
        assert_eq!(queue("string_agg(priority::text, ' ' order by position)"), "9 9 2 0");
        held.release().await.expect("the release");
        for owner in ["high", "late", "low", "first"] {
            assert_eq!(within_a_minute("a grant", granted.recv()).await, Some(owner));
        }
    }),
    // Of who has the right lease alone.
    case!(priority_above_the_policy_is_denied, "grpc sql", s => {
        let client = if s.on == "grpc" {
            let facts = secured();
            with_token(&facts, "worker", tls(&facts, "ca"))
        } else {
            s.psql("create role urgent_rust login in role leasehold_client; select leasehold.access_grant('role:urgent_rust', 'secure', 'lease')");
            s.client_at(&s.target.replace("user=postgres", "user=urgent_rust"))
        };
        s.psql("select leasehold.set_policy('secure', max_priority => 9)");
        let lease = client.lease("secure", &s.key).priority(9).acquire().await.expect("the lease");
        for wait in [Duration::ZERO, LASTING] {
            match client.lease("secure", &s.key).priority(10).wait(wait).acquire().await {
                Err(Error::Denied { reason, message }) => {
                    assert_eq!(reason, "ACCESS_DENIED");
                    assert!(message.contains("priority must be at most 9") && message.contains("is 10"), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        lease.release().await.expect("the release");
    }),
    case!(wrong_priority_is_named, "grpc sql pooler", s => {
        let client = s.client();
        match s.lease(&client).priority(1001).acquire().await {
            Err(Error::InvalidArgument(wrong)) => {
                assert_eq!((wrong.field.as_str(), wrong.message.as_str()), ("priority", "priority must be 0 to 1000, not 1001"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(s.row("state"), "");
        // An administrator's.
        s.lease(&client).priority(1000).acquire().await.expect("the lease").release().await.expect("the release");
    }),
];
