package leasehold_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	leasehold "leasehold.example/go"
	pb "leasehold.example/go/leaseholdv1"
)

// another service, which looks at what calls carry.
type another struct {
	pb.UnimplementedLeaseServiceServer
	left chan time.Duration
}

func (a *another) see(ctx context.Context) {
	deadline, has := ctx.Deadline() // of its grpc-timeout
	if !has {
		deadline = time.Now().Add(time.Hour)
	}
	a.left <- time.Until(deadline)
}

func (a *another) AcquireStream(_ *pb.AcquireRequest, stream pb.LeaseService_AcquireStreamServer) error {
	a.see(stream.Context())
	return status.Error(codes.PermissionDenied, "a test")
}

func (a *another) AcquireAll(ctx context.Context, _ *pb.AcquireAllRequest) (*pb.AcquireAllResponse, error) {
	a.see(ctx)
	return nil, status.Error(codes.PermissionDenied, "a test")
}

func (a *another) AskHandOver(ctx context.Context, _ *pb.AskHandOverRequest) (*pb.AskHandOverResponse, error) {
	a.see(ctx)
	return &pb.AskHandOverResponse{}, nil
}

func (a *another) GetLease(ctx context.Context, _ *pb.GetLeaseRequest) (*pb.GetLeaseResponse, error) {
	a.see(ctx)
	if headers, _ := metadata.FromIncomingContext(ctx); len(headers) == 0 {
		return nil, errors.New("no metadata")
	}
	return &pb.GetLeaseResponse{}, nil
}

// The cases about what happens under a lease.
var nestedCases = []testCase{
	{"lost_lease_ends_nested_calls", "grpc sql", func(s *site) {
		c := s.client()
		other, err := c.Acquire(context.Background(), "cases", s.key+" other")
		must(s, err)
		err = c.Do(context.Background(), "cases", s.key, func(ctx context.Context, l *leasehold.Lease) error {
			nested := make(chan error, 1)
			go func() {
				_, err := c.Acquire(ctx, "cases", other.Key(), leasehold.Wait(leasehold.Forever))
				nested <- err
			}()
			wait(s, "a waiter", func() bool {
				return s.psql("select count(*) from leasehold.queue where key = '%s'", other.Key()) == "1"
			})
			s.force()
			if err := <-nested; !errors.Is(err, context.Canceled) {
				s.Error(err)
			}
			return nil
		}, leasehold.Duration(6*time.Second))
		if !errors.As(err, new(*leasehold.LostError)) {
			s.Fatal(err)
		}
		wait(s, "an empty queue", func() bool {
			return s.psql("select count(*) from leasehold.queue where key = '%s'", other.Key()) == "0"
		})
		s.release(other)
		s.is(s.psql("select state from leasehold.scope where key = '%s'", other.Key()), "free")
	}},
	{"deadline_travels_in_metadata", "grpc", func(s *site) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(s, err)
		server, service := grpc.NewServer(), &another{left: make(chan time.Duration, 1)}
		pb.RegisterLeaseServiceServer(server, service)
		go server.Serve(listener)
		defer server.Stop()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(s, err)
		defer conn.Close()
		call := func(ctx context.Context, remaining func() time.Duration) {
			ctx, cancel := leasehold.WithDeadline(ctx)
			defer cancel()
			most := remaining()
			_, err := pb.NewLeaseServiceClient(conn).GetLease(ctx, &pb.GetLeaseRequest{})
			must(s, err)
			if left := <-service.left; left <= 0 || left > most+time.Millisecond {
				s.Error(left, most)
			}
		}
		must(s, s.client().Do(context.Background(), "cases", s.key, func(ctx context.Context, l *leasehold.Lease) error {
			call(ctx, l.Remaining)
			return s.client().Do(ctx, "cases", s.key+" inner", func(ctx context.Context, inner *leasehold.Lease) error {
				call(ctx, l.Remaining)
				return nil
			}, leasehold.Duration(time.Hour))
		}))
		must(s, s.client().Do(context.Background(), "cases", s.key, func(ctx context.Context, l *leasehold.Lease) error {
			c := s.clientAt(listener.Addr().String(), leasehold.Patience(30*time.Minute))
			for what, own := range map[string]func() error{
				"Holder":      func() error { _, err := c.Holder(ctx, "cases", "x"); return err },
				"Explain":     func() error { _, err := c.Explain(ctx, "cases", "x"); return err },
				"AskHandOver": func() error { _, err := c.AskHandOver(ctx, "cases", "x", "a test"); return err },
				"Acquire":     func() error { _, err := c.Acquire(ctx, "cases", "x"); return err },
				"AcquireAll":  func() error { _, err := c.AcquireAll(ctx, s.both()); return err },
			} {
				most, err := l.Remaining(), own()
				if left := <-service.left; left <= 0 || left > most+time.Millisecond || err != nil && !errors.As(err, new(*leasehold.DeniedError)) {
					s.Error(what, left, most, err)
				}
			}
			_, err := c.Acquire(ctx, "cases", "x", leasehold.Wait(time.Minute)) // renewals move the deadline meanwhile
			if left := <-service.left; left < 59*time.Minute || !errors.As(err, new(*leasehold.DeniedError)) {
				s.Error(left, err)
			}
			return nil
		}))
		must(s, s.client().DoAll(context.Background(), s.both(), func(ctx context.Context, all *leasehold.Leases) error {
			call(ctx, all.Remaining)
			return nil
		}))
	}},
	{"callbacks_tell_of_a_lease", "grpc sql pooler", func(s *site) {
		var mu sync.Mutex
		var told []string
		tell := func(what string) { mu.Lock(); defer mu.Unlock(); told = append(told, what) }
		is := func(what string) func(*leasehold.Lease) { return func(*leasehold.Lease) { tell(what) } }
		count := func(what string) int {
			mu.Lock()
			defer mu.Unlock()
			return len(slices.DeleteFunc(slices.Clone(told), func(each string) bool { return each != what }))
		}
		option := leasehold.Tell(leasehold.Listener{Granted: is("granted"), Renewed: is("renewed"), Released: is("released"),
			Lost: func(_ *leasehold.Lease, lost *leasehold.LostError) { tell(string(lost.Reason)) }})
		c := s.client()
		l := s.acquire(c, option, leasehold.Duration(6*time.Second))
		wait(s, "two renewals", func() bool { return count("renewed") >= 2 })
		s.release(l)
		wait(s, "the release", func() bool { return count("released") == 1 })
		s.acquire(c, option, leasehold.Duration(6*time.Second))
		s.force()
		wait(s, "the loss", func() bool { return count("forced") == 1 })
		renewed := slices.Compact(slices.Clone(told))
		if got := strings.Join(renewed, " "); got != "granted renewed released granted forced" && got != "granted renewed released granted renewed forced" {
			s.Fatal(got)
		}
	}},
}
