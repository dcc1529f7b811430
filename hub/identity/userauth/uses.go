package userauth

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// writeInterval is the precision of status.lastUsedAt of a Token: it is written at most this often, however many requests there are.
const writeInterval = 5 * time.Minute

// maxQueued bounds how many Tokens wait to be written. If the queue is full, the next use is recorded.
const maxQueued = 1000

// usageRecorder writes when Tokens were used last. Nobody waits for it, and a use that is lost does no harm.
type usageRecorder struct {
	client client.Client
	log    logr.Logger
	now    func() time.Time
	queue  chan *managementv3.Token

	mu sync.Mutex
	// queued is when each Token was queued last, by name, for writeInterval.
	queued map[string]time.Time
}

func newUsageRecorder(c client.Client, log logr.Logger) *usageRecorder {
	return &usageRecorder{client: c, log: log, now: time.Now, queue: make(chan *managementv3.Token, maxQueued), queued: map[string]time.Time{}}
}

// record queues that a Token is in use now.
func (u *usageRecorder) record(token *managementv3.Token) {
	now := u.now()
	// A time that is yet to come was written while the clock was ahead.
	if last := token.Status.LastUsedAt; last != nil && now.Sub(last.Time).Abs() < writeInterval {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Sub(u.queued[token.Name]) < writeInterval {
		return
	}
	select {
	case u.queue <- token:
	default:
		return
	}
	for name, at := range u.queued {
		if now.Sub(at) >= writeInterval {
			delete(u.queued, name)
		}
	}
	u.queued[token.Name] = now
}

// run writes until ctx ends.
func (u *usageRecorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case token := <-u.queue:
			if err := u.write(ctx, token); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				u.log.Error(err, "Writing the last use of a Token failed", "Token", token.Name)
			}
		}
	}
}

func (u *usageRecorder) write(ctx context.Context, cached *managementv3.Token) error {
	token := cached.DeepCopy()
	token.Status.LastUsedAt = &metav1.Time{Time: u.now().UTC().Truncate(time.Second)}
	return u.client.Status().Patch(ctx, token, client.MergeFrom(cached))
}
