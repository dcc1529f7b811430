package signing

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
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

// TestRestored: after a restore, a plan that was applied is signed once more, since its machine may have accepted a later one. The clock
// may be behind.
func TestRestored(t *testing.T) {
	now := time.UnixMilli(1000)
	before := newSigner(t, &now)
	data := plans.SecretData{}
	plans.Deliver(data, []byte("{}"), 0, 0)
	if err := before.Sign(data, nil, machine); err != nil {
		t.Fatal(err)
	}
	after := New(before.key, before.now)
	after.SetRestored(time.UnixMilli(4000))
	for _, state := range []plans.State{plans.StateSucceeded, plans.StateFailed, plans.StateInProgress, plans.StatePending} {
		data[plans.KeyPlanState] = []byte(state)
		if !after.Stale(data, machine) {
			t.Errorf("a plan of before the restore that is %s is not signed again", state)
		}
	}
	now = time.UnixMilli(2000)
	if err := after.Sign(data, data, machine); err != nil {
		t.Fatal(err)
	}
	if after.Stale(data, machine) || sequence(t, after, data) < 4000 {
		t.Errorf("the sequence is %d, and the plan is signed again and again", sequence(t, after, data))
	}
}

// TestRestoredByAnotherProgram: an operator notes in the Secret of the key when the API's data were restored.
func TestRestoredByAnotherProgram(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
	before, err := Ensure(t.Context(), c, "system")
	if err != nil {
		t.Fatal(err)
	}
	data := plans.SecretData{}
	plans.Deliver(data, []byte("{}"), 0, 0)
	if err := before.Sign(data, nil, machine); err != nil {
		t.Fatal(err)
	}
	data[plans.KeyPlanState] = []byte(plans.StateSucceeded)
	time.Sleep(2 * time.Millisecond) // sequences are milliseconds
	for text, want := range map[string]struct {
		stale bool
		err   string
	}{
		"":                                  {},
		"2026-11-22T10:00:00Z":              {},
		"yesterday":                         {err: `must be a time that is over, such as 20`},
		time.Now().Format(time.RFC3339Nano): {stale: true},
		time.Now().Add(time.Hour).Format(time.RFC3339): {err: "must be a time that is over"},
	} {
		secret := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: SecretName}, secret); err != nil {
			t.Fatal(err)
		}
		secret.Annotations = map[string]string{RestoredAnnotation: text}
		if err := c.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		after, err := Ensure(t.Context(), c, "system")
		if want.err != "" {
			if _, stored := errors.AsType[pki.StoredError](err); !stored || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%q: got %v", text, err)
			}
			continue
		}
		if err != nil || after.Stale(data, machine) != want.stale {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestUpgradeSequenceGrows: the sequence of upgrades grows whatever the clock does, and what others have written does not count.
func TestUpgradeSequenceGrows(t *testing.T) {
	now := time.UnixMilli(1000)
	s := newSigner(t, &now)
	var raw []byte
	last := int64(0)
	for _, at := range []int64{1000, 1000, 5000, 2000, 9000} {
		now = time.UnixMilli(at)
		var err error
		if raw, err = s.SignUpgrade(plans.AgentUpgrade{Generation: 1, Checksums: map[string]string{"amd64": "aa"}}, raw, machine); err != nil {
			t.Fatal(err)
		}
		u, ok := s.Upgrade(raw, machine)
		if !ok || u.Sequence <= last || u.Sequence < at || u.Generation != 1 || u.Checksums["amd64"] != "aa" {
			t.Errorf("at %d the upgrade is %+v after %d", at, u, last)
		}
		last = u.Sequence
	}
	other := newSigner(t, &now)
	foreign, err := other.SignUpgrade(plans.AgentUpgrade{Sequence: 1 << 60}, nil, machine)
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"nothing": nil, "no JSON": []byte("x"), "another hub": foreign,
		"not signed": []byte(`{"generation":1,"sequence":99999999}`)} {
		if u, ok := s.Upgrade(raw, machine); ok {
			t.Errorf("%s: got %+v", name, u)
		}
		signed, err := s.SignUpgrade(plans.AgentUpgrade{}, raw, machine)
		if u, ok := s.Upgrade(signed, machine); err != nil || !ok || u.Sequence != now.UnixMilli() {
			t.Errorf("%s: the next is %+v, %v", name, u, err)
		}
	}
	if _, ok := s.Upgrade(raw, "fleet/m2"); ok {
		t.Error("the upgrade of another machine counts")
	}
	var none *Signer
	if _, err := none.SignUpgrade(plans.AgentUpgrade{}, nil, machine); err == nil {
		t.Error("a hub without a key signs")
	}
}

// TestVerifiedOnce: what was found valid stays so for the same plan, machine and signature only.
func TestVerifiedOnce(t *testing.T) {
	now := time.UnixMilli(1000)
	s := newSigner(t, &now)
	data := plans.SecretData{plans.KeyPlan: []byte("{}")}
	if err := s.Sign(data, nil, machine); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !s.Signed(data, machine) {
			t.Fatal("its own signature does not count")
		}
	}
	other := plans.SecretData{plans.KeyPlan: []byte("{ }"), plans.KeyPlanSignature: data[plans.KeyPlanSignature]}
	if s.Signed(data, "fleet/m2") || s.Signed(other, machine) {
		t.Error("the signature counts for another machine, or for another plan")
	}
	changed := plans.SecretData{plans.KeyPlan: data[plans.KeyPlan],
		plans.KeyPlanSignature: []byte(strings.Replace(string(data[plans.KeyPlanSignature]), "1000", "9999", 1))}
	if string(changed[plans.KeyPlanSignature]) == string(data[plans.KeyPlanSignature]) || s.Signed(changed, machine) {
		t.Errorf("another sequence counts: %s", changed[plans.KeyPlanSignature])
	}
}
