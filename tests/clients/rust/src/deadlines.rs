//! The time of leases in the calls that their work makes.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Deadline, Error, Lease, Leases, remaining};
use tokio::sync::mpsc::UnboundedReceiver;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

use crate::case;
use crate::kit::*;

/// Nothing is renewed meanwhile.
const HOUR: Duration = Duration::from_secs(3600);

/// A client of a gRPC server that knows no method, and the grpc-timeout of each call.
struct Another {
    stub: Grpc<InterceptedService<Channel, Deadline>>,
    timeouts: UnboundedReceiver<Option<String>>,
}

impl Another {
    async fn new() -> Another {
        let (address, timeouts) = noting("grpc-timeout").await;
        let channel = Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy();
        Another { stub: Grpc::new(InterceptedService::new(channel, Deadline)), timeouts }
    }

    /// The time that the server saw, of a call with a time of its own.
    async fn call(&mut self, own: Option<Duration>) -> Option<Duration> {
        let mut request = tonic::Request::new(());
        if let Some(own) = own {
            request.set_timeout(own);
        }
        self.stub.ready().await.expect("a connection");
        let path = PathAndQuery::from_static("/another.Service/Method");
        let refused = self.stub.unary(request, path, tonic_prost::ProstCodec::<(), ()>::default()).await;
        assert_eq!(refused.expect_err("no method").code(), tonic::Code::Unimplemented);
        let text = self.timeouts.recv().await.expect("a call")?;
        let (number, unit) = text.split_at(text.len() - 1);
        let number = number.parse().expect("a number");
        Some(if unit == "u" { Duration::from_micros(number) } else { Duration::from_millis(number) })
    }

    async fn is_at_most(&mut self, most: Duration) {
        for own in [None, Some(3 * HOUR)] {
            let sent = self.call(own).await.expect("a time");
            assert!(!sent.is_zero() && sent <= most, "{sent:?} of {most:?}");
        }
    }
}

pub const CASES: &[crate::Case] = &[case!(deadline_travels_in_metadata, "grpc", s => {
    let (client, mut another) = (s.client(), Another::new().await);
    assert_eq!((another.call(None).await, another.call(Some(seconds(10))).await, remaining()), (None, Some(seconds(10)), None));
    let inner = client.lease("cases", &format!("{} inner", s.key)).duration(2 * HOUR);
    let outer = s.lease(&client).duration(HOUR);
    outer.run(|lease| async move {
        let most = lease.remaining();
        another.is_at_most(most).await;
        for own in [seconds(10), 15 * MINUTE] {
            assert_eq!(another.call(Some(own)).await, Some(own));
        }
        // The lease of outer work counts, too.
        inner.run(|lease| async move {
            assert!(lease.remaining() > most && remaining() <= Some(most));
            another.is_at_most(most).await;
            Ok::<_, Error>(())
        }).await?;
        assert_eq!(tokio::spawn(async { remaining() }).await.expect("no panic"), None);
        lease.release().await?;
        assert_eq!(remaining(), Some(Duration::ZERO));
        Ok::<_, Error>(())
    }).await.expect("no loss");
    assert_eq!(remaining(), None);
    let both = client.leases([("cases", format!("{} 1", s.key)), ("cases", format!("{} 2", s.key))]).duration(HOUR);
    both.run(async |all: Arc<Leases>| {
        Another::new().await.is_at_most(all.remaining()).await;
        Ok::<_, Error>(())
    }).await.expect("no loss");
    let client = leasehold::blocking::Client::new(client);
    let lease = client.lease("cases", &s.key).duration(HOUR);
    let of_work = |lease: &Lease| Ok::<_, Error>((Some(lease.remaining()), remaining()));
    let (most, left) = tokio::task::block_in_place(|| std::thread::spawn(move || client.run(lease, of_work)).join()).expect("no panic").expect("no loss");
    assert!(left.is_some() && left <= most, "{left:?} of {most:?}");
})];
