// A stock Go client that works through restarts: worker TARGETS SERVICE_CONFIG. See test_rolling_restart.py.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "leasehold.example/go/leaseholdv1"
)

const (
	workers = 4
	timeout = time.Minute
)

var (
	pairs   [workers]int64
	stopped int32
)

func leaseKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func pair(client pb.LeaseServiceClient, number int) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	scope, key := &pb.Scope{Namespace: []string{"restart"}, Key: fmt.Sprint("go", number)}, leaseKey()
	ref := &pb.LeaseRef{Scope: scope, LeaseKey: key}
	if _, err := client.Acquire(ctx, &pb.AcquireRequest{Scope: scope, LeaseKey: key, Duration: durationpb.New(30 * time.Second),
		Wait: durationpb.New(20 * time.Second)}); err != nil {
		return err
	}
	if _, err := client.Heartbeat(ctx, &pb.HeartbeatRequest{Leases: []*pb.LeaseRef{ref}}); err != nil {
		return err
	}
	_, err := client.Release(ctx, &pb.ReleaseRequest{Items: []*pb.ReleaseItem{{Lease: ref}}})
	return err
}

func tell(word string) {
	fmt.Print(word)
	for i := range pairs {
		fmt.Print(" ", atomic.LoadInt64(&pairs[i]))
	}
	fmt.Println()
}

func main() {
	config, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	daemons := manual.NewBuilderWithScheme("daemons")
	state := resolver.State{}
	for _, target := range strings.Split(os.Args[1], ",") {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: target})
	}
	daemons.InitialState(state)
	conn, err := grpc.NewClient("daemons:///", grpc.WithResolvers(daemons), grpc.WithDefaultServiceConfig(string(config)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6,
			MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		atomic.StoreInt32(&stopped, 1)
	}()
	var all sync.WaitGroup
	for i := 0; i < workers; i++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			for atomic.LoadInt32(&stopped) == 0 {
				if err := pair(pb.NewLeaseServiceClient(conn), number); err != nil {
					fmt.Println("failed", err)
				} else {
					atomic.AddInt64(&pairs[number], 1)
				}
			}
		}(i)
	}
	for atomic.LoadInt32(&stopped) == 0 {
		tell("pairs")
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	tell("ended")
}
