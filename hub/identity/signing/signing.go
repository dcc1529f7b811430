// Package signing signs plans, so that machines can verify that a plan comes from this hub (docs/adr/0005-signed-plans.md). It owns the
// Secret SecretName of the system namespace, which it alone writes: whoever may write plan Secrets still cannot sign. It signs what it is
// given; that this is a plan which the hub has rendered is its caller's responsibility.
package signing

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/plans"
)

const (
	// SecretName is the Secret of the system namespace that holds the key.
	SecretName = "drover-plan-signing"
	// RestoredAnnotation of the Secret is when the hub's data were restored from a backup by another program than this, as RFC 3339 has it. It
	// has the effect of SetRestored.
	RestoredAnnotation = "rke.cattle.io/restored-at"
	// keyName is its key: an ed25519 private key, PKCS #8 in PEM, as "openssl genpkey -algorithm ed25519" makes it.
	keyName = "signing.key"
)

// Signer signs plans. A nil Signer signs nothing.
type Signer struct {
	key ed25519.PrivateKey
	// started is when this hub began; see Stale.
	started time.Time
	// restored is when its data were restored from a backup, zero if they were not; see Stale.
	restored time.Time
	now      func() time.Time
	// verified has the sequences of the last maxVerified signatures that were valid, by their digests: each reconcile of a cluster asks
	// for those of all its machines, and to verify one takes a hundred times as long as to look it up.
	verified *lru.Cache
}

// maxVerified is for as many machines. An entry has about 150 bytes.
const maxVerified = 20_000

// New returns a Signer with a key and a clock.
func New(key ed25519.PrivateKey, now func() time.Time) *Signer {
	return &Signer{key: key, started: now(), now: now, verified: lru.New(maxVerified)}
}

// Ensure returns the Signer of a hub: it reads the key in the system namespace, and creates it if there is none. It may run in several
// replicas at once. A key that cannot be read is an error and is never replaced, since machines hold its public half.
func Ensure(ctx context.Context, c client.Client, namespace string) (*Signer, error) {
	key, err := pki.KeySecret{Namespace: namespace, Name: SecretName, DataKey: keyName, Purpose: "plan signatures"}.Ensure(ctx, c)
	if err != nil {
		return nil, err
	}
	out := New(key, time.Now)
	restored, err := ReadRestored(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	out.SetRestored(restored)
	return out, nil
}

// ReadRestored returns when the hub's data were restored from a backup, as RestoredAnnotation says; zero where nothing does.
func ReadRestored(ctx context.Context, c client.Reader, namespace string) (time.Time, error) {
	secret := &corev1.Secret{}
	if _, err := objects.Get(ctx, c, client.ObjectKey{Namespace: namespace, Name: SecretName}, secret); err != nil {
		return time.Time{}, fmt.Errorf("reading when the hub was restored: %w", err)
	}
	text := secret.Annotations[RestoredAnnotation]
	if text == "" {
		return time.Time{}, nil
	}
	now := time.Now()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.After(now) {
		return time.Time{}, pki.StoredError{Err: fmt.Errorf("the annotation %s of the Secret %s/%s must be a time that is over, such as %s, "+
			"got %q", RestoredAnnotation, namespace, SecretName, now.UTC().Format(time.RFC3339), text)}
	}
	return at, nil
}

// SetRestored has all plans signed once more that were signed before the hub's data were restored from a backup. It must be called before
// the Signer is used. Of several times the last counts.
func (s *Signer) SetRestored(at time.Time) {
	if at.After(s.restored) {
		s.restored = at
	}
}

// Restored is when the hub's data were restored from a backup; zero if they were not, or of a nil Signer.
func (s *Signer) Restored() time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.restored
}

// Public is the key that machines pin; nil of a nil Signer.
func (s *Signer) Public() ed25519.PublicKey {
	if s == nil {
		return nil
	}
	return s.key.Public().(ed25519.PublicKey)
}

// Sign adds to data the signature of the plan in it. machine is "namespace/name" of the plan Secret, previous its former data. The
// sequence is the time in milliseconds, but always above that of previous, and never one that is stale: the clock may go back.
func (s *Signer) Sign(data, previous plans.SecretData, machine string) error {
	if s == nil {
		return nil
	}
	sequence := max(s.now().UnixMilli(), s.started.UnixMilli(), s.restored.UnixMilli())
	if last, ok := s.signed(previous, machine); ok && last >= sequence {
		sequence = last + 1
	}
	raw, err := plans.Sign(s.key, plans.Checksum(data[plans.KeyPlan]), machine, sequence)
	if err != nil {
		return fmt.Errorf("signing the plan of %s: %w", machine, err)
	}
	data[plans.KeyPlanSignature] = raw
	return nil
}

// SignUpgrade returns the value of the key "agent-upgrade" for a machine. The sequence is the time in milliseconds, but always above that
// of previous, which is the former value.
func (s *Signer) SignUpgrade(u plans.AgentUpgrade, previous []byte, machine string) ([]byte, error) {
	if s == nil {
		return nil, errors.New("this hub has no key to sign upgrades of agents with")
	}
	u.Sequence = s.now().UnixMilli()
	if last, ok := s.Upgrade(previous, machine); ok && last.Sequence >= u.Sequence {
		u.Sequence = last.Sequence + 1
	}
	raw, err := plans.SignUpgrade(s.key, u, machine)
	if err != nil {
		return nil, fmt.Errorf("signing the upgrade of the agent of %s: %w", machine, err)
	}
	return raw, nil
}

// Upgrade decodes the value of the key "agent-upgrade"; false if this hub has not signed it for the machine.
func (s *Signer) Upgrade(raw []byte, machine string) (plans.AgentUpgrade, bool) {
	if s == nil || len(raw) == 0 {
		return plans.AgentUpgrade{}, false
	}
	u, err := plans.DecodeUpgrade(raw)
	if err != nil || u.Verify(s.Public(), machine) != nil {
		return plans.AgentUpgrade{}, false
	}
	return u, true
}

// Stale reports whether the plan in data needs a signature: it has none of this key, was signed before the hub's data were restored, or is
// pending and was signed before this hub started. A machine that has accepted a later plan than the backup has would refuse it as a replay,
// also one that it has applied: its probes would not be run any more. Of a backup that was restored by another program, only pending plans
// are signed again unless RestoredAnnotation says so. A plan that an agent without states has applied stays pending, and counts as applied:
// each start of a hub would rewrite the Secrets of all such machines, whose agents look at no signature.
func (s *Signer) Stale(data plans.SecretData, machine string) bool {
	if s == nil || len(data[plans.KeyPlan]) == 0 {
		return false
	}
	sequence, ok := s.signed(data, machine)
	pending := plans.State(data[plans.KeyPlanState]) == plans.StatePending && !appliedByChecksum(data)
	return !ok || sequence < s.restored.UnixMilli() || pending && sequence < s.started.UnixMilli()
}

// appliedByChecksum reports whether an agent that reports checksums only has applied the pending plan in data.
func appliedByChecksum(data plans.SecretData) bool {
	revision := string(data[plans.KeyPlanRevision])
	return (revision == "" || revision == "0") && string(data[plans.KeyAppliedChecksum]) == plans.Checksum(data[plans.KeyPlan])
}

// Signed reports whether this hub has signed the plan in data for a machine, so that nobody else has written it. A nil Signer, which signs
// nothing, cannot tell, and says yes.
func (s *Signer) Signed(data plans.SecretData, machine string) bool {
	if s == nil {
		return true
	}
	_, ok := s.signed(data, machine)
	return ok
}

// signed is the sequence of a plan that this key has signed. A sequence that somebody else has written does not count: it could use up
// all sequences.
func (s *Signer) signed(data plans.SecretData, machine string) (int64, bool) {
	checksum, raw := plans.Checksum(data[plans.KeyPlan]), data[plans.KeyPlanSignature]
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", machine, checksum, raw))
	if sequence, found := s.verified.Get(digest); found {
		return sequence.(int64), true
	}
	signature, err := plans.Verify(s.Public(), raw, checksum, machine)
	if err != nil {
		return 0, false
	}
	s.verified.Add(digest, signature.Sequence)
	return signature.Sequence, true
}
