// Leaders of the Go package, as in ../../../proxied/lead.py: lead TARGET [KEY:SECONDS]...
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	leasehold "leasehold.example/go"
)

func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func stand(c *leasehold.Client, key string, duration time.Duration) {
	work := func(ctx context.Context, l *leasehold.Lease) error {
		step := int64(0)
		for ctx.Err() == nil {
			if step == 0 {
				fmt.Println("leading", key, l.Token(), now())
			}
			step = now()
			time.Sleep(20 * time.Millisecond)
		}
		if step == 0 { // its grant was read too late
			return nil
		}
		reason := "released"
		if lost, ok := l.Lost().(*leasehold.LostError); ok {
			reason = string(lost.Reason)
		}
		fmt.Println("over", key, reason, step)
		return nil
	}
	for {
		_ = c.Lead(context.Background(), "proxied", key, leasehold.Elector{Lead: work, Duration: duration, Owner: "go"})
	}
}

func main() {
	c, err := leasehold.Dial(os.Args[1])
	if err != nil {
		panic(err)
	}
	for _, each := range os.Args[2:] {
		name, seconds, _ := strings.Cut(each, ":")
		duration, err := time.ParseDuration(seconds + "s")
		if err != nil {
			panic(err)
		}
		go stand(c, name, duration)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
