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

// writeEvery is how exact status.lastUsedAt of a Token is: it is written at most this often, however many requests there are.
const writeEvery = 5 * time.Minute

// maxUnwritten bounds how many Tokens wait to be written. The use of one that finds no place is noted by its next use.
const maxUnwritten = 1000

// uses writes down when Tokens were used. Nobody waits for it, and a use that gets lost does no harm.
type uses struct {
	client client.Client
	log    logr.Logger
	now    func() time.Time
	queue  chan *managementv3.Token

	mu sync.Mutex
	// noted is when each Token was queued last, by name, for as long as that keeps it from being queued again.
	noted map[string]time.Time
}

func newUses(c client.Client, log logr.Logger) *uses {
	return &uses{client: c, log: log, now: time.Now, queue: make(chan *managementv3.Token, maxUnwritten), noted: map[string]time.Time{}}
}

// note takes down that a Token is in use now.
func (u *uses) note(token *managementv3.Token) {
	now := u.now()
	if last := token.Status.LastUsedAt; last != nil && now.Sub(last.Time) < writeEvery {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Sub(u.noted[token.Name]) < writeEvery {
		return
	}
	select {
	case u.queue <- token:
	default:
		return
	}
	for name, at := range u.noted {
		if now.Sub(at) >= writeEvery {
			delete(u.noted, name)
		}
	}
	u.noted[token.Name] = now
}

// run writes until ctx ends.
func (u *uses) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case token := <-u.queue:
			if err := u.write(ctx, token); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				u.log.Error(err, "Could not write when a Token was used last", "Token", token.Name)
			}
		}
	}
}

func (u *uses) write(ctx context.Context, cached *managementv3.Token) error {
	token := cached.DeepCopy()
	token.Status.LastUsedAt = &metav1.Time{Time: u.now().UTC().Truncate(time.Second)}
	return u.client.Status().Patch(ctx, token, client.MergeFrom(cached))
}
