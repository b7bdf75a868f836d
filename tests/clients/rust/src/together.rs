//! Several leases in one step.

use std::sync::Arc;

use leasehold::{Client, Error, Leases, LeasesBuilder, Outcome, Reason, Scope};
use serde_json::json;

use crate::case;
use crate::kit::*;

impl Site {
    fn both(&self) -> [Scope; 2] {
        [Scope::new("cases", &self.key), Scope::new("cases", format!("{} 2", self.key))]
    }

    fn of_both(&self, client: &Client) -> LeasesBuilder {
        client.leases(self.both())
    }

    fn states(&self, columns: &str) -> String {
        self.psql(&format!("select {columns} from leasehold.scope where namespace = 'cases' and key in ('{0}', '{0} 2') order by key", self.key))
    }

    /// Those that wait for the second one too.
    fn all_waiters(&self) -> String {
        self.psql(&format!("select count(*) from leasehold.queue where namespace = 'cases' and key in ('{0}', '{0} 2')", self.key))
    }
}

fn is_wrong(result: Result<Leases, Error>, words: &str) {
    match result {
        Err(Error::InvalidArgument(wrong)) => assert_eq!(wrong.message, words),
        other => panic!("{other:?}"),
    }
}

pub const CASES: &[crate::Case] = &[
    case!(all_or_none, "grpc sql pooler", s => {
        let client = s.client();
        let second = format!("{} 2", s.key);
        let other = client.lease("cases", &second).owner("the other").acquire().await.expect("the lease");
        match s.of_both(&client).acquire().await {
            Err(Error::Held(held)) => {
                assert_eq!((held.holder.as_str(), held.namespace.as_str(), held.key.as_str()), ("the other", "cases", second.as_str()));
            }
            refused => panic!("{refused:?}"),
        }
        assert_ne!(s.row("state"), "held");
        other.release().await.expect("the release");
        let all = s.of_both(&client).acquire().await.expect("the leases");
        assert_eq!(s.states("state, token"), format!("held|{}\nheld|{}", all[0].token(), all[1].token()));
        assert!(all[0].token() != all[1].token() && !all.remaining().is_zero() && all.is_lost().is_none());
        all.release().await.expect("the release");
        assert_eq!(s.states("state"), "free\nfree");
        assert!(all.is_lost().is_none() && all.remaining().is_zero());
        let [first, second] = s.both();
        let mixed = client.leases([first, second.shared(2)]).acquire().await.expect("the leases");
        assert_eq!((mixed.len(), mixed[0].units(), mixed[1].units()), (2, 0, 2));
        drop(mixed);
        until("the release", || s.states("state, last_outcome") == "free|ok\nfree|ok").await;
        is_wrong(client.leases::<Scope>([]).acquire().await, "scopes must be 1 to 100, not 0");
        is_wrong(client.leases((0..101).map(|i| ("cases", i.to_string()))).acquire().await, "scopes must be 1 to 100, not 101");
        is_wrong(client.leases([("cases", "good"), ("cases", "")]).acquire().await, "key must be 1 to 1024 bytes, has 0");
        is_wrong(client.leases([s.both()[0].clone().shared(0)]).acquire().await, "units must be 1 to 1000000, not 0");
    }),
    case!(all_wait_together, "grpc", s => {
        let client = s.client();
        let first = s.of_both(&client).acquire().await.expect("the leases");
        let mut waiting = vec![];
        for i in 0..2 {
            let mut scopes = s.both();
            if i == 1 {
                scopes.reverse();
            }
            let (site, leases) = (s.clone(), s.client().leases(scopes).wait(MINUTE).owner(i.to_string()));
            waiting.push(tokio::spawn(leases.run(move |_| async move {
                assert_eq!(site.states("state, owner"), format!("held|{i}\nheld|{i}"));
                Ok::<_, Error>(())
            })));
            until("a place in both queues", || s.all_waiters() == (2 * (i + 1)).to_string()).await;
        }
        let gone = tokio::spawn(s.of_both(&client).wait(MINUTE).acquire());
        until("a place in both queues", || s.all_waiters() == "6").await;
        gone.abort(); // drops the future
        until("two waiters", || s.all_waiters() == "4").await;
        first.release().await.expect("the release");
        for each in waiting {
            within_a_minute("the end of the work", each).await.expect("no panic").expect("the leases");
        }
        assert_eq!((s.states("state"), s.all_waiters()), ("free\nfree".into(), "0".into()));
    }),
    case!(what_is_left_of_several_is_given_back, "grpc", s => {
        let proxy = s.proxy();
        proxy.decide(json!(["drop"]));
        let waiter = tokio::spawn(s.of_both(&s.client_at(&proxy.target)).wait(2 * MINUTE).duration(5 * MINUTE).acquire());
        until("the lost answer", || proxy.state()["actions"]["drop"].is_number() && s.states("state") == "held\nheld").await;
        let before = s.row("lease_key");
        s.force();
        proxy.decide(json!(["pass"]));
        proxy.cut();
        let all = within_a_minute("the grant", waiter).await.expect("no panic").expect("the leases");
        let after = s.row("lease_key");
        assert_ne!(before, after);
        assert_eq!(s.states("state, token, lease_key"), format!("held|{}|{after}\nheld|{}|{after}", all[0].token(), all[1].token()));
    }),
    case!(all_are_lost_as_one, "grpc sql pooler", s => {
        let (client, site) = (s.client(), s.clone());
        let result = s.of_both(&client).duration(seconds(9)).run(|all| async move {
            until("renewals of both", || site.states("heartbeats > 0") == "t\nt").await;
            site.force();
            let lost = within_a_minute("the loss", all.lost()).await;
            assert_eq!((lost.reason, &lost.key), (Reason::Forced, &site.key));
            assert_eq!(site.states("state"), "free\nheld");
            std::future::pending::<Result<(), Error>>().await
        }).await;
        assert!(matches!(result, Err(Error::Lost(ref lost)) if lost.reason == Reason::Forced && lost.key == s.key), "{result:?}");
        assert_eq!(s.states("state, last_outcome"), "free|forced\nfree|failed");
        // Without run().
        let all = s.of_both(&client).duration(seconds(9)).acquire().await.expect("the leases");
        s.force();
        assert_eq!(within_a_minute("the loss", all.run(std::future::pending::<()>())).await.expect_err("the loss").reason, Reason::Forced);
        drop(all);
        until("the release of the other", || s.states("state, last_outcome") == "free|forced\nfree|failed").await;
    }),
    case!(all_are_released_with_one_result, "grpc sql pooler", s => {
        let client = s.client();
        let all = s.of_both(&client).acquire().await.expect("the leases");
        all.release_with(Outcome::result(&json!({"rows": 3})).expect("JSON")).await.expect("the release");
        assert_eq!(s.states("state, last_outcome, last_result ->> 'rows'"), "free|ok|3\nfree|ok|3");
        s.of_both(&client).run(|_| async { Ok::<_, Error>(()) }).await.expect("no loss");
        assert_eq!(s.states("state, last_outcome"), "free|ok\nfree|ok");
        let broken = || Error::Denied { reason: "IO".into(), message: "the work is broken".into() };
        assert_eq!(s.of_both(&client).run(|_| async { Err::<(), _>(broken()) }).await, Err(broken()));
        let failed = "free|failed|IO: the work is broken";
        assert_eq!(s.states("state, last_outcome, last_error"), format!("{failed}\n{failed}"));
    }),
    case!(lost_answer_of_an_acquire_of_several_is_found, "", s => {
        let proxy = s.proxy();
        let client = s.made(Client::builder().patience(seconds(5)), &format!("{},{}", proxy.target, s.target));
        s.acquire(&client).await.release().await.expect("the release"); // connects
        proxy.decide(json!(["stop"])); // the daemon does not hear either that the caller has given up
        let waiter = tokio::spawn(s.of_both(&client).duration(5 * MINUTE).acquire());
        until("the grant", || s.states("state") == "held\nheld").await;
        waiter.abort();
        until("the release", || s.states("state, last_outcome") == "free|failed\nfree|failed").await;
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        // The lost answer of a release.
        let all = s.of_both(&client).duration(5 * MINUTE).acquire().await.expect("the leases");
        proxy.decide(json!(["drop", "pass"]));
        all.release().await.expect("the release");
        assert_eq!(s.states("state, last_outcome"), "free|ok\nfree|ok");
    }),
    case!(threads_without_async_use_several, "", s => {
        let (client, site) = (leasehold::blocking::Client::new(s.client()), s.clone());
        let thread = std::thread::spawn(move || {
            let all = client.acquire_all(client.leases(site.both())).expect("the leases");
            client.release_all(&all, Outcome::failure("as it should")).expect("the release");
            assert_eq!(site.states("last_error"), "as it should\nas it should");
            client.run_all(client.leases(site.both()), |all: &Leases| Ok::<_, Error>(all.len())).expect("no loss")
        });
        assert_eq!(tokio::task::block_in_place(|| thread.join()).expect("no panic"), 2);
        assert_eq!(s.states("state, last_outcome"), "free|ok\nfree|ok");
        let shared = Arc::new(s.of_both(&s.client()).acquire().await.expect("the leases"));
        let its = shared.clone();
        drop(shared);
        assert!(tokio::spawn(async move { let _its = its; panic!("as it should") }).await.is_err());
        until("the release", || s.states("state, last_error") == "free|the work panicked\nfree|the work panicked").await;
    }),
];
