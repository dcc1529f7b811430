// Package trust decides which plans the agent executes, by their signatures, and which certificate authorities (CAs) replace those that it
// has pinned. A failed verification never widens the trust. The package sends nothing and applies nothing.
package trust

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	hostfs "github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// Options of a Verifier. Host, Path and Log must be set.
type Options struct {
	// Policy is planSignatures of the configuration; empty is warn with a key, and off without.
	Policy config.PlanSignatures
	// Key returns the pinned key, or nil if there is none. It is called for every plan, since a new registration may replace the key.
	Key func() (ed25519.PublicKey, error)
	// Host stores the file Path.
	Host host.Host
	// Path is the absolute path of the file with the accepted plans of the highest sequences; New creates none.
	Path string
	// Log gets a warning for each invalid signature under the policy warn.
	Log *slog.Logger
}

// Verifier checks the signatures of delivered plans.
type Verifier struct {
	Options
	mu       sync.Mutex
	accepted acceptedPlans
	// warned is the checksum and the error of the last warning, so that each is logged once.
	warned string
}

// maxEarlier is for how many keys and machines, beside the last ones, the accepted plan is remembered.
const maxEarlier = 15

// acceptedPlans is the file: the plan that was accepted last, as agents without Earlier read it too, and those of other keys or machines,
// the newest first. It is on disk before the plan is executed.
type acceptedPlans struct {
	acceptedPlan
	Earlier []acceptedPlan `json:"earlier,omitempty"`
}

// acceptedPlan is the accepted plan with the highest sequence of a key and a machine.
type acceptedPlan struct {
	KeyID    string `json:"keyID"`
	Machine  string `json:"machine"`
	Sequence int64  `json:"sequence"`
	Checksum string `json:"checksum"`
}

// sameSequence reports whether the sequences of both plans are comparable: those of one key for one machine are.
func (p acceptedPlan) sameSequence(other acceptedPlan) bool {
	return p.KeyID == other.KeyID && p.Machine == other.Machine
}

// find returns the accepted plan of the key and the machine of another one; the zero value if there is none.
func (a acceptedPlans) find(other acceptedPlan) acceptedPlan {
	for _, p := range append([]acceptedPlan{a.acceptedPlan}, a.Earlier...) {
		if p.sameSequence(other) {
			return p
		}
	}
	return acceptedPlan{}
}

// with returns a copy in which the accepted plan of its key and machine is next. The oldest one is dropped if there are too many.
func (a acceptedPlans) with(next acceptedPlan) acceptedPlans {
	earlier := slices.DeleteFunc(append([]acceptedPlan{a.acceptedPlan}, a.Earlier...), func(p acceptedPlan) bool {
		return p == acceptedPlan{} || p.sameSequence(next)
	})
	return acceptedPlans{acceptedPlan: next, Earlier: earlier[:min(len(earlier), maxEarlier)]}
}

// ErrNoKey means that signatures are enforced but the connection info has no key.
var ErrNoKey = errors.New("planSignatures: enforce needs a planSigningKey in the connection info: " +
	"register the machine again with the install script at a hub that signs plans, or set planSignatures to warn")

// New returns a Verifier that continues with the stored sequence. The error is ErrNoKey, or that of Key or of reading the file.
func New(o Options) (*Verifier, error) {
	v := &Verifier{Options: o}
	key, err := o.Key()
	if err != nil {
		return nil, fmt.Errorf("reading the key for plan signatures: %w", err)
	}
	if key == nil && o.Policy == config.SignaturesEnforce {
		return nil, ErrNoKey
	}
	raw, err := o.Host.ReadFile(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading the accepted plan: %w", err)
	case json.Unmarshal(raw, &v.accepted) != nil:
		// The file is written atomically, so it was damaged later.
		o.Log.Error("Record of accepted plan signatures is corrupt; a replayed plan is accepted until the next plan is delivered", "path", o.Path)
	}
	return v, nil
}

// Policy returns the effective policy.
func (v *Verifier) Policy() config.PlanSignatures {
	key, err := v.Key()
	if v.Options.Policy == "" && (key != nil || err != nil) {
		return config.SignaturesWarn
	}
	if v.Options.Policy == "" {
		return config.SignaturesOff
	}
	return v.Options.Policy
}

// Verify returns an error if nothing of a delivered plan may be executed: no file, instruction, periodic instruction or probe. When it
// returns nil, the sequence of the plan is on disk, and a plan with a lower one is refused. A second call for the same delivery writes
// nothing. The error wraps source.ErrNotStored if signature and sequence are valid and only that could not be written.
func (v *Verifier) Verify(s source.Snapshot) error {
	policy := v.Policy()
	if policy == config.SignaturesOff || len(s.Delivery.Plan) == 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.verify(s.Delivery, s.Machine)
	if err == nil {
		v.warned = ""
		return nil
	}
	if policy == config.SignaturesEnforce {
		return err
	}
	if text := s.Delivery.Checksum() + err.Error(); text != v.warned {
		v.warned = text
		v.Log.Warn("Applying a plan with an invalid signature", "error", err, "checksum", s.Delivery.Checksum())
	}
	return nil
}

func (v *Verifier) verify(d plans.Delivery, machine string) error {
	key, err := v.Key()
	if err != nil {
		return err
	}
	if key == nil {
		return ErrNoKey
	}
	checksum := d.Checksum()
	signature, err := plans.Verify(key, d.Signature, checksum, machine)
	if err != nil {
		return err
	}
	next := acceptedPlan{KeyID: signature.KeyID, Machine: machine, Sequence: signature.Sequence, Checksum: checksum}
	last := v.accepted.find(next)
	switch {
	case next == last:
		return nil
	case next.Sequence < last.Sequence:
		return fmt.Errorf("%w: replay: sequence %d is lower than the accepted %d", plans.ErrSignature, next.Sequence, last.Sequence)
	case next.Sequence == last.Sequence:
		return fmt.Errorf("%w: another plan with sequence %d was accepted before", plans.ErrSignature, next.Sequence)
	}
	accepted := v.accepted.with(next)
	raw, err := json.Marshal(accepted)
	if err != nil {
		return fmt.Errorf("encoding the accepted plan: %w", err)
	}
	if err := v.Host.WriteFile(v.Path, append(raw, '\n'), hostfs.WithMode(0o600)); err != nil {
		return fmt.Errorf("%w: %w", source.ErrNotStored, err)
	}
	v.accepted = accepted
	return nil
}
