// Package source is the contract between the engine, which applies plans, and the places plans come from and reports go to: the plan
// Secret of a hub (source/remote) and plan files on the machine (source/local). It holds types only and does nothing.
package source

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/plans"
)

// Snapshot is what a Source held at one moment.
type Snapshot struct {
	// UID changes when the source was recreated under the same name; for a plan Secret it is metadata.uid. A plan that was applied for
	// another UID is applied again.
	UID string
	// Delivery is what the hub asks for: plan, limits and signature.
	Delivery plans.Delivery
	// Status is what was reported last.
	Status plans.Status
	// Interrupt reports whether the hub has paused or canceled the plan.
	Interrupt plans.Interrupt
	// Machine is the name that signatures of plans are for: "namespace/name" of the plan Secret; empty for local plans.
	Machine string
	// Local is set for a source on the machine itself. What it reports as applied was applied on this machine, also when the journal does
	// not know about it.
	Local bool
}

// PlanID identifies one plan of one source: a plan with the same content in a recreated source is another one.
type PlanID struct {
	// UID is Snapshot.UID.
	UID string
	// Checksum is plans.Checksum of the raw plan; empty when none was delivered.
	Checksum string
}

// PlanID identifies the plan that the snapshot holds.
func (s Snapshot) PlanID() PlanID {
	return PlanID{UID: s.UID, Checksum: s.Delivery.Checksum()}
}

var (
	// ErrSuperseded is returned by Source.Update when the source holds another plan by now.
	ErrSuperseded = errors.New("another plan has been delivered")
	// ErrTooLarge is wrapped by Source.Update's error when the source cannot hold a status of that size.
	ErrTooLarge = errors.New("the report is too large")
	// ErrNotStored is wrapped by why a plan may not be executed that is valid, if only that it was accepted cannot be stored, as on a full
	// disk.
	ErrNotStored = errors.New("storing that the plan was accepted failed")
	// ErrRemoved is the cause with which the context of an engine's Run ends when its source was deleted: programs it has started are
	// stopped, and not left running as at an ordinary stop of the agent.
	ErrRemoved = errors.New("the plan has been removed")
)

// Source is where plans come from and reports go to.
type Source interface {
	// Updates delivers the newest snapshot. A snapshot that was not received is replaced by a newer one.
	Updates() <-chan Snapshot
	// Get reads the source now, past any cache.
	Get(ctx context.Context) (Snapshot, error)
	// Update changes the reported status, provided that the source still holds the plan of that UID and checksum (else ErrSuperseded), and
	// returns what the source holds afterwards. On a conflict with another writer, change is called again with the newer status. A change
	// that changes nothing writes nothing. The error wraps ErrTooLarge when the status does not fit.
	Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (Snapshot, error)
}

// Reachability is implemented by a Source that may be out of reach.
type Reachability interface {
	// Unreachable says why the source cannot be reached and since when; reason is empty while it can.
	Unreachable() (reason string, since time.Time)
}

// Connections are counters of a source that talks to a hub, since the agent started.
type Connections struct {
	// Reconnects is how often the watch was restarted because of an error.
	Reconnects int64 `json:"reconnects"`
	// Registrations is how often the machine got a new connection with its stored identity.
	Registrations int64 `json:"registrations"`
	// RegistrationsFailed is how often that was tried without success.
	RegistrationsFailed int64 `json:"registrationsFailed"`
	// AuthoritiesReplaced is how often the trusted certificate authorities were replaced by others.
	AuthoritiesReplaced int64 `json:"authoritiesReplaced"`
}

// ConnectionCounter is implemented by a Source that counts its connections.
type ConnectionCounter interface {
	// Connections returns the counters as they are now.
	Connections() Connections
}
