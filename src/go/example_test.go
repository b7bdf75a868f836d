package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	leasehold "leasehold.example/go"
)

func Example() {
	c, err := leasehold.Dial("127.0.0.1:7420")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Do(context.Background(), "payments", "inv-42", func(ctx context.Context, l *leasehold.Lease) error {
		fmt.Println("token", l.Token()) // pass it on, and stop when ctx ends
		return nil
	}, leasehold.Duration(30*time.Second), leasehold.Wait(5*time.Second))
	var held *leasehold.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder)
	}
}

func ExampleClient_Lead() {
	c, err := leasehold.Dial("10.0.0.1:7420,10.0.0.2:7420")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	log.Fatal(c.Lead(context.Background(), "api", "scheduler", leasehold.Elector{
		Lead: func(ctx context.Context, l *leasehold.Lease) error {
			<-ctx.Done() // work until then
			return nil
		},
		OnLeader: func(owner string) { log.Println("the leader is", owner) },
	}))
}
