//! Shared leases.

use leasehold::{Error, Held, Lease, Reason};
use serde_json::json;

use crate::case;
use crate::kit::*;

fn held(result: Result<Lease, Error>) -> Box<Held> {
    match result {
        Err(Error::Held(held)) => held,
        other => panic!("{other:?}"),
    }
}

pub const CASES: &[crate::Case] = &[
    case!(readers_share_and_a_writer_waits, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.lease(&client).shared(1).owner("first").acquire().await.expect("the lease");
        let second = s.lease(&client).shared(1).owner("second").acquire().await.expect("the lease");
        assert_eq!(s.row("state, units"), "shared|2");
        assert!(first.units() == 1 && first.slots().is_empty() && second.token() > first.token());
        let told = held(s.lease(&client).acquire().await);
        assert_eq!((told.holder.as_str(), told.holder_count, told.units_free), ("first", 2, None));
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE)).await;
        first.release().await.expect("the release");
        assert_eq!(s.row("state, units"), "shared|1");
        second.release().await.expect("the release");
        let writer = granted(waiter).await;
        assert_eq!(writer.units(), 0);
        assert_eq!(held(s.lease(&client).shared(1).acquire().await).holder_count, 1);
    }),
    case!(units_fit_the_capacity, "grpc sql pooler", s => {
        let client = s.client();
        s.psql("select leasehold.set_policy('cases.rust-five', capacity => 5)");
        let share = |units| client.lease("cases.rust-five", &s.key).shared(units);
        let first = share(2).acquire().await.expect("the lease");
        let second = share(2).acquire().await.expect("the lease");
        assert_eq!((first.slots(), second.slots()), (vec![1, 2], vec![3, 4]));
        let told = held(share(2).acquire().await);
        assert_eq!((told.holder_count, told.units_free), (2, Some(1)));
        first.release().await.expect("the release");
        let third = share(3).wait(MINUTE).acquire().await.expect("the lease");
        assert_eq!((third.units(), third.slots()), (3, vec![1, 2, 5]));
        assert_eq!(held(share(1).acquire().await).units_free, Some(0));
        for (units, bound) in [(6, "5"), (0, "1")] {
            match share(units).acquire().await {
                Err(Error::InvalidArgument(wrong)) => assert!(wrong.field == "units" && wrong.bound.contains(bound), "{wrong:?}"),
                other => panic!("{other:?}"),
            }
        }
    }),
    case!(shared_waiters_are_served_in_order, "grpc sql pooler", s => {
        let client = s.client();
        let first = s.acquire(&client).await;
        let mut waiters = vec![];
        for (i, is_reader) in [true, true, false, true].into_iter().enumerate() {
            let lease = s.lease(&client).wait(MINUTE);
            waiters.push(s.queue(i as u32 + 1, if is_reader { lease.shared(1) } else { lease }).await);
        }
        first.release().await.expect("the release");
        let mut waiters = waiters.into_iter();
        let mut next = || waiters.next().expect("a waiter");
        let (one, two) = (granted(next()).await, granted(next()).await);
        assert_eq!(s.row("state, units") + &s.waiters(), "shared|22");
        one.release().await.expect("the release");
        two.release().await.expect("the release");
        let writer = granted(next()).await;
        assert_eq!(s.row("state") + &s.waiters(), "held1");
        writer.release().await.expect("the release");
        let last = granted(next()).await;
        assert!(two.token() < writer.token() && writer.token() < last.token());
    }),
    case!(downgrade_lets_readers_in, "grpc sql pooler", s => {
        let client = s.client();
        let lease = s.lease(&client).duration(seconds(12)).acquire().await.expect("the lease");
        let (first, key) = (lease.token(), s.row("lease_key"));
        let waiter = s.queue(1, s.lease(&client).wait(MINUTE).shared(1)).await;
        lease.downgrade(1).await.expect("the downgrade");
        let reader = granted(waiter).await;
        assert!(lease.units() == 1 && first < lease.token() && lease.token() < reader.token());
        lease.downgrade(1).await.expect("the same again");
        assert_eq!(s.shares(), format!("{}|1\n{}|1", lease.token(), reader.token()));
        assert_eq!(s.psql(&format!("select lease_key from leasehold.share where token = {}", lease.token())), key);
        let before = s.beats_of(&lease);
        until("a renewal", || s.beats_of(&lease) > before).await;
        lease.release().await.expect("the release");
        assert_eq!(s.shares(), format!("{}|1", reader.token()));
        assert_eq!(lease.downgrade(1).await, Err(Error::Released));
    }),
    case!(lost_downgrade_is_repeated, "grpc", s => {
        let proxy = s.proxy();
        let client = s.client_at(&proxy.target);
        let lease = s.acquire(&client).await;
        proxy.decide(json!(["cut", "pass"]));
        lease.downgrade(2).await.expect("the downgrade");
        assert_eq!(lease.units(), 2);
        assert_eq!(s.shares(), format!("{}|2", lease.token()));
        lease.release().await.expect("the release");
        let streaming = s.lease(&client).while_connected().acquire().await.expect("the lease"); // its stream would not know
        assert!(matches!(streaming.downgrade(1).await, Err(Error::InvalidArgument(_))));
        streaming.release().await.expect("the release");
        assert_eq!(s.row("state, last_outcome"), "free|ok");
    }),
    case!(shared_leases_end_one_by_one, "grpc sql pooler", s => {
        let client = s.client();
        let kept = s.lease(&client).duration(seconds(12)).shared(1).acquire().await.expect("the lease");
        let ended = s.lease(&client).duration(seconds(12)).shared(1).acquire().await.expect("the lease");
        until("a renewal of each", || s.beats_of(&kept) >= 1 && s.beats_of(&ended) >= 1).await;
        s.psql(&format!("select from leasehold.force_release('cases', '{}', 'a test', {})", s.key, ended.token()));
        assert_eq!(lost(&ended).await.reason, Reason::Forced);
        assert!(matches!(ended.downgrade(1).await, Err(Error::Lost(_))));
        let before = s.beats_of(&kept);
        until("a renewal", || s.beats_of(&kept) > before || kept.is_lost().is_some()).await;
        assert_eq!(kept.is_lost(), None);
        kept.release().await.expect("the release");
    }),
];
