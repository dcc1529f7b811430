package trust

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

const record = "/var/lib/agent/state/accepted"

func newKey(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

func deliver(t *testing.T, key ed25519.PrivateKey, plan, machine string, sequence int64) source.Snapshot {
	t.Helper()
	s := source.Snapshot{Machine: machine, Delivery: plans.Delivery{Plan: []byte(plan)}}
	if key != nil {
		var err error
		if s.Delivery.Signature, err = plans.Sign(key, s.Delivery.Checksum(), machine, sequence); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newVerifier(t *testing.T, h host.Host, key ed25519.PublicKey, policy config.PlanSignatures, log *bytes.Buffer) *Verifier {
	t.Helper()
	v, err := New(Options{Policy: policy, Host: h, Path: record, Log: slog.New(slog.NewTextHandler(log, nil)),
		Key: func() (ed25519.PublicKey, error) { return key, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEnforce shows that S1 needs more than the right to write the plan Secret: without the key nothing is executed. The steps follow
// each other.
func TestEnforce(t *testing.T) {
	public, private := newKey(t)
	_, thief := newKey(t)
	h := fake.New()
	v := newVerifier(t, h, public, config.SignaturesEnforce, &bytes.Buffer{})
	tampered := deliver(t, private, "{}", "ns/m", 5)
	tampered.Delivery.Plan = []byte(`{"instructions":[{"command":"sh"}]}`)
	for _, step := range []struct {
		name     string
		delivery source.Snapshot
		want     string
	}{
		{"no plan yet", source.Snapshot{Machine: "ns/m"}, ""},
		{"the first", deliver(t, private, "{}", "ns/m", 5), ""},
		{"the same again", deliver(t, private, "{}", "ns/m", 5), ""},
		{"not signed", deliver(t, nil, "{}", "ns/m", 0), "the plan is not signed"},
		{"another's key", deliver(t, thief, "{}", "ns/m", 6), "this machine trusts"},
		{"another machine's plan", func() source.Snapshot {
			s := deliver(t, private, "{}", "ns/other", 6)
			s.Machine = "ns/m"
			return s
		}(), "differ from those that were signed"},
		{"content changed", tampered, "differ from those that were signed"},
		{"another plan of the same sequence", deliver(t, private, `{"a":1}`, "ns/m", 5), "another plan with sequence 5 was accepted before"},
		{"a later one", deliver(t, private, `{"a":1}`, "ns/m", 7), ""},
		{"the first once more", deliver(t, private, "{}", "ns/m", 5), "replay: sequence 5 is lower than the accepted 7"},
		{"the first signed again", deliver(t, private, "{}", "ns/m", 8), ""},
		{"nonsense", source.Snapshot{Machine: "ns/m", Delivery: plans.Delivery{Plan: []byte("{}"), Signature: []byte("x")}},
			"decoding plan-signature"},
	} {
		err := v.Verify(step.delivery)
		if (step.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: got %v, want %q", step.name, err, step.want)
		}
	}
	// The record survives the process, and is private.
	if mode := h.Files()[record].Attrs.Mode; mode != 0o600 {
		t.Errorf("the record has mode %o", mode)
	}
	again := newVerifier(t, h, public, config.SignaturesEnforce, &bytes.Buffer{})
	if err := again.Verify(deliver(t, private, `{"a":1}`, "ns/m", 7)); !errors.Is(err, plans.ErrSignature) {
		t.Errorf("after a restart a replay passes: %v", err)
	}
	if err := again.Verify(deliver(t, private, `{"a":1}`, "ns/m2", 1)); err != nil {
		t.Errorf("the sequence of another plan Secret does not start again: %v", err)
	}
}

// Nothing may be executed before the record is on disk: a replay could be accepted after a crash.
func TestAcceptedOnlyOnDisk(t *testing.T) {
	public, private := newKey(t)
	h := fake.New()
	v := newVerifier(t, h, public, config.SignaturesEnforce, &bytes.Buffer{})
	h.FailWith(func(string, string) error { return errors.New("disk full") })
	err := v.Verify(deliver(t, private, "{}", "ns/m", 5))
	if !errors.Is(err, source.ErrNotStored) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v", err)
	}
	if err := v.Verify(deliver(t, nil, "{}", "ns/m", 6)); err == nil || errors.Is(err, source.ErrNotStored) {
		t.Errorf("a plan without a signature: got %v", err)
	}
	h.FailWith(nil)
	if err := v.Verify(deliver(t, private, "{}", "ns/m", 5)); err != nil {
		t.Error(err)
	}
}

func TestPolicies(t *testing.T) {
	public, private := newKey(t)
	for _, test := range []struct {
		policy, want config.PlanSignatures
		key          ed25519.PublicKey
		warns        bool
	}{
		{"", config.SignaturesOff, nil, false},
		{"", config.SignaturesWarn, public, true},
		{config.SignaturesOff, config.SignaturesOff, public, false},
		{config.SignaturesWarn, config.SignaturesWarn, nil, true},
	} {
		log := &bytes.Buffer{}
		v := newVerifier(t, fake.New(), test.key, test.policy, log)
		if got := v.Policy(); got != test.want {
			t.Errorf("%q: got %q", test.policy, got)
		}
		for range 3 {
			if err := v.Verify(deliver(t, nil, "{}", "ns/m", 0)); err != nil {
				t.Errorf("%q refuses: %v", test.policy, err)
			}
		}
		if warned := strings.Count(log.String(), "level=WARN"); warned != map[bool]int{true: 1}[test.warns] {
			t.Errorf("%q with key %v warned %d times", test.policy, test.key != nil, warned)
		}
	}
	_, err := New(Options{Policy: config.SignaturesEnforce, Key: func() (ed25519.PublicKey, error) { return nil, nil }})
	if !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "register the machine again") {
		t.Errorf("enforce without a key: %v", err)
	}
	// With the policy warn, a replay is logged.
	log := &bytes.Buffer{}
	v := newVerifier(t, fake.New(), public, config.SignaturesWarn, log)
	for _, sequence := range []int64{9, 8} {
		if err := v.Verify(deliver(t, private, "{}", "ns/m", sequence)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(log.String(), "replay: sequence 8") {
		t.Errorf("log is %s", log)
	}
}

// The highest sequence of each machine name counts, also after a plan for another name, and of a file of an earlier version. How many names
// are remembered is bounded.
func TestSequencesOfSeveralMachines(t *testing.T) {
	public, private := newKey(t)
	first := deliver(t, private, "{}", "ns/m", 5)
	h := fake.New()
	old := acceptedPlan{KeyID: plans.KeyID(public), Machine: "ns/m", Sequence: 7, Checksum: "c"}
	raw, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(record, raw, fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, h, public, config.SignaturesEnforce, &bytes.Buffer{})
	for i := range 2 * maxEarlier {
		if err := v.Verify(deliver(t, private, "{}", fmt.Sprintf("ns/other-%d", i), 1)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			// An agent of an earlier version reads the last one.
			var last acceptedPlan
			if err := json.Unmarshal(h.Files()[record].Content, &last); err != nil || last.Machine != "ns/other-0" {
				t.Errorf("got %+v, %v", last, err)
			}
		}
		if i < maxEarlier {
			again := newVerifier(t, h, public, config.SignaturesEnforce, &bytes.Buffer{})
			if err := again.Verify(first); err == nil || !strings.Contains(err.Error(), "sequence 5 is lower than the accepted 7") {
				t.Fatalf("after %d other names a replay passes: %v", i+1, err)
			}
		}
	}
	if got := len(v.accepted.Earlier); got != maxEarlier {
		t.Errorf("%d are remembered", got)
	}
}
