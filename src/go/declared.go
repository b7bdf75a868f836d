package leasehold

import (
	"context"
	"time"
)

// Declared is a namespace with the options of its leases, written down once and used everywhere:
//
//	var client = leasehold.Must(leasehold.Dial(""))
//	var deploy = client.Declare("deploy", leasehold.Duration(time.Minute), leasehold.Wait(time.Hour))
//
//	l, err := deploy.Acquire(ctx, "web")
type Declared struct {
	c         *Client
	namespace string
	options   []Option
}

// Must is its first argument, or panics: for clients that are variables of a package. [Dial] and [Over] connect when they are first used.
func Must(c *Client, err error) *Client {
	if err != nil {
		panic(err)
	}
	return c
}

// Declare declares the leases of a namespace. It asks nobody, and panics with *[ArgumentError] where the namespace or an option is out of bounds,
// as a mistake in the program. Keys are checked in the same words when they are used, before anything is asked; that is an error.
func (c *Client) Declare(namespace string, options ...Option) *Declared {
	d := &Declared{c, namespace, append([]Option(nil), options...)}
	if err := newRequest(namespace, "any", options).check(); err != nil {
		panic(err)
	}
	return d
}

func (d *Declared) with(options []Option) []Option {
	return append(append([]Option(nil), d.options...), options...)
}

// Acquire is [Client.Acquire]; options come on top of those that were declared.
func (d *Declared) Acquire(ctx context.Context, key string, options ...Option) (*Lease, error) {
	return d.c.Acquire(ctx, d.namespace, key, d.with(options)...)
}

// Do is [Client.Do].
func (d *Declared) Do(ctx context.Context, key string, work func(context.Context, *Lease) error, options ...Option) error {
	return d.c.Do(ctx, d.namespace, key, work, d.with(options)...)
}

// Lead is [Client.Lead]. What the elector says counts before the options that were declared; it waits whatever they say.
func (d *Declared) Lead(ctx context.Context, key string, e Elector) error {
	return d.c.lead(ctx, newRequest(d.namespace, key, append([]Option{Duration(15 * time.Second)}, d.options...)), e)
}
