// Package trust decides what the agent believes: whose plans it executes, and which certificate authorities it takes in place of those
// that it has. It never trusts more because something does not fit. It sends nothing and applies nothing.
package trust

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// Options of a Verifier. Host, Path and Log must be set.
type Options struct {
	// Policy is the configured one; empty is warn with a key, and off without.
	Policy config.PlanSignatures
	// Key gives the pinned key, or nil where none is. It is asked each time, since a machine that joins anew may get another one.
	Key func() (ed25519.PublicKey, error)
	// Host keeps the highest sequence that was accepted in the file Path.
	Host host.Host
	Path string
	Log  *slog.Logger
}

// Verifier checks the signatures of delivered plans.
type Verifier struct {
	Options
	mu       sync.Mutex
	accepted accepted
	// warned is what the log was told last, so that it is told once.
	warned string
}

// accepted is the plan with the highest sequence so far. It is on the disk before the plan is executed.
type accepted struct {
	KeyID    string `json:"keyID"`
	Machine  string `json:"machine"`
	Sequence int64  `json:"sequence"`
	Checksum string `json:"checksum"`
}

// ErrNoKey tells that signatures are to be enforced and nothing says whose.
var ErrNoKey = errors.New("planSignatures: is enforce, and the connection info holds no planSigningKey: " +
	"register the machine again with the install script at a hub that signs plans, or set planSignatures to warn")

// New reads what was accepted before.
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
		return nil, fmt.Errorf("reading which plans were accepted: %w", err)
	case json.Unmarshal(raw, &v.accepted) != nil:
		// The file is written as a whole, so this is damage. An older plan could pass now, which is said and not hidden.
		o.Log.Error("The record of accepted plan signatures is damaged, an old plan can be taken for a new one until the next is delivered", "path", o.Path)
	}
	return v, nil
}

// Policy is the one in force, with its default filled in.
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

// Verify returns why nothing of a delivered plan may be executed: neither files nor instructions, periodic instructions or probes. Once it
// has returned nil, the sequence of the plan is on the disk, and no plan that was signed before passes again. Calling it again for the
// same delivery writes nothing.
func (v *Verifier) Verify(s engine.Snapshot) error {
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
		v.Log.Warn("A plan is executed though its signature does not vouch for it", "reason", err, "checksum", s.Delivery.Checksum())
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
	next := accepted{KeyID: signature.KeyID, Machine: machine, Sequence: signature.Sequence, Checksum: checksum}
	last := v.accepted
	if last.KeyID != next.KeyID || last.Machine != next.Machine {
		// Another key or another machine counts anew.
		last = accepted{}
	}
	switch {
	case next == last:
		return nil
	case next.Sequence < last.Sequence:
		return fmt.Errorf("%w: the plan is a replay: its sequence %d is lower than %d, which was accepted before", plans.ErrSignature, next.Sequence, last.Sequence)
	case next.Sequence == last.Sequence:
		return fmt.Errorf("%w: two plans have the sequence %d", plans.ErrSignature, next.Sequence)
	}
	raw, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encoding which plan was accepted: %w", err)
	}
	if err := v.Host.WriteFile(v.Path, append(raw, '\n'), host.Private(0o600)); err != nil {
		return fmt.Errorf("recording which plan was accepted: %w", err)
	}
	v.accepted = next
	return nil
}
