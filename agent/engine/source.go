package engine

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/plans"
)

// Snapshot is what a Source held at one moment.
type Snapshot struct {
	// UID changes when the source was made anew under the same name. A plan that was applied for another UID is applied again.
	UID string
	// Delivery is what the hub asks for.
	Delivery plans.Delivery
	// Status is what was reported last.
	Status plans.Status
	// Interrupt is whether the plan is to wait or to end.
	Interrupt plans.Interrupt
	// Machine is the name that signatures of plans are for: "namespace/name" of the plan Secret; empty for local plans.
	Machine string
	// Local is set for a source that lies on the machine itself: what it says was applied has been applied here, also where the journal
	// does not know of it.
	Local bool
}

// target is which plan of which source something belongs to.
type target struct {
	UID      string
	Checksum string
}

func (s Snapshot) target() target {
	return target{UID: s.UID, Checksum: s.Delivery.Checksum()}
}

// ErrSuperseded is returned by Source.Update when the source holds another plan by now.
var ErrSuperseded = errors.New("another plan has been delivered")

// ErrRemoved is the cause with which Run's context ends when the source is no more: what it runs is ended too, and not left running.
var ErrRemoved = errors.New("the plan has been removed")

// ErrTooLarge is returned by Source.Update when the source cannot hold that much.
var ErrTooLarge = errors.New("the report is too large")

// Source is where plans come from and reports go to.
type Source interface {
	// Updates gives the newest snapshot; one that nobody took is replaced by a newer one.
	Updates() <-chan Snapshot
	// Get reads the source now.
	Get(ctx context.Context) (Snapshot, error)
	// Update changes the reported status, if the source still holds the plan of that UID and checksum, and returns what the source
	// holds then. Where another writer was faster, change is called again with the newer status. A change that changes nothing
	// writes nothing.
	Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (Snapshot, error)
}

// Reachability is what a Source may also tell: why it cannot be reached, and since when. The reason is empty while it can.
type Reachability interface {
	Unreachable() (reason string, since time.Time)
}

// Connections is what a source that talks to a hub counts since the agent started.
type Connections struct {
	// Reconnects is how often the watch had to be begun anew because something failed.
	Reconnects int64 `json:"reconnects"`
	// Registrations is how often the machine got a new connection by its stored identity, RegistrationsFailed how often it did not.
	Registrations       int64 `json:"registrations"`
	RegistrationsFailed int64 `json:"registrationsFailed"`
	// AuthoritiesReplaced is how often other certificate authorities took the place of those that were trusted.
	AuthoritiesReplaced int64 `json:"authoritiesReplaced"`
}

// Connecting is what a Source may also be: one that counts its connections.
type Connecting interface {
	Connections() Connections
}

// Images brings the content of an image into a folder that exists.
type Images interface {
	// Stage tells progress how many bytes of how many have come, now and then; progress may be nil, and total 0 while it is not known.
	Stage(ctx context.Context, image, dir string, progress func(done, total int64)) error
}
