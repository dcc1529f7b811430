package signing

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/plans"
)

const machine = "fleet/m1"

func newSigner(t *testing.T, now *time.Time) *Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(key, func() time.Time { return *now })
}

func sequence(t *testing.T, s *Signer, data plans.SecretData) int64 {
	t.Helper()
	signature, err := plans.Verify(s.Public(), data[plans.KeyPlanSignature], plans.Checksum(data[plans.KeyPlan]), machine)
	if err != nil {
		t.Fatal(err)
	}
	return signature.Sequence
}

func TestSequenceGrows(t *testing.T) {
	now := time.UnixMilli(1000)
	s := newSigner(t, &now)
	data := plans.SecretData{}
	last := int64(0)
	for _, at := range []int64{1000, 1000, 5000, 2000, 2000, 9000} { // the clock stands still, and goes back
		now = time.UnixMilli(at)
		previous := plans.SecretData{plans.KeyPlan: data[plans.KeyPlan], plans.KeyPlanSignature: data[plans.KeyPlanSignature]}
		plans.Deliver(data, []byte(strings.Repeat(" ", int(last%7))+"{}"), 0, 0)
		if err := s.Sign(data, previous, machine); err != nil {
			t.Fatal(err)
		}
		got := sequence(t, s, data)
		if got <= last || got < at {
			t.Errorf("at %d the sequence is %d after %d", at, got, last)
		}
		last = got
	}
	// A sequence that somebody else has put there does not use up the numbers.
	forged, err := plans.Sign(newSigner(t, &now).key, plans.Checksum([]byte("{}")), machine, 1<<62)
	if err != nil {
		t.Fatal(err)
	}
	data = plans.SecretData{plans.KeyPlan: []byte("{}")}
	if err := s.Sign(data, plans.SecretData{plans.KeyPlan: []byte("{}"), plans.KeyPlanSignature: forged}, machine); err != nil {
		t.Fatal(err)
	}
	if got := sequence(t, s, data); got != 9000 {
		t.Errorf("after a forged sequence it is %d", got)
	}
}

func TestStale(t *testing.T) {
	now := time.UnixMilli(1000)
	before := newSigner(t, &now)
	data := plans.SecretData{}
	plans.Deliver(data, []byte("{}"), 0, 0)
	if !before.Stale(data, machine) || before.Stale(plans.SecretData{}, machine) {
		t.Error("a plan without signature is not stale, or no plan is")
	}
	if err := before.Sign(data, nil, machine); err != nil {
		t.Fatal(err)
	}
	if before.Stale(data, machine) || !before.Stale(data, "fleet/other") || !newSigner(t, &now).Stale(data, machine) {
		t.Error("a good signature is stale, or one of another machine or key is not")
	}
	now = time.UnixMilli(2000)
	after := New(before.key, before.now)
	if !after.Stale(data, machine) {
		t.Error("a plan that waits since before the hub started is not signed again")
	}
	data[plans.KeyPlanState] = []byte(plans.StateSucceeded)
	if after.Stale(data, machine) {
		t.Error("a plan that was applied is signed again at each start of the hub")
	}
	if err := (*Signer)(nil).Sign(data, nil, machine); err != nil || (*Signer)(nil).Stale(data, machine) || (*Signer)(nil).Public() != nil {
		t.Error("no signer does something")
	}
}
