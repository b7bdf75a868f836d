package leasehold_test

import (
	"testing"

	leasehold "leasehold.example/go"
)

func TestANamespaceWithASlashStandsInQuotes(t *testing.T) {
	for _, c := range []struct{ namespace, key, name string }{{"a/b", "k", `"a/b"/k`}, {"a", "b/k", "a/b/k"}, {"a.b", "k", "a.b/k"}} {
		held := &leasehold.HeldError{Namespace: c.namespace, Key: c.key, Holder: "w", Ahead: 2}
		if want := "leasehold: " + c.name + ` is held by "w", 2 waiters ahead`; held.Error() != want {
			t.Errorf("%s, not %s", held, want)
		}
		lost := &leasehold.LostError{Namespace: c.namespace, Key: c.key, Reason: leasehold.Forced}
		if want := "leasehold: the lease " + c.name + " is lost: forced"; lost.Error() != want {
			t.Errorf("%s, not %s", lost, want)
		}
	}
}
