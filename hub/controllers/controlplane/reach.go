package controlplane

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

const (
	// reachTimeout is how long a server may take to answer a look, reachFor how long what was seen is believed.
	reachTimeout = 4 * time.Second
	reachFor     = 15 * time.Second
	// forgetLook is when nobody is interested any more in when a look was.
	forgetLook = 2 * directAgain
	// maxLooks bounds how many clusters are looked at at the same time.
	maxLooks = 50
)

// reach is which ways lead to a cluster's API at the moment.
type reach struct {
	// direct is the first of the servers that answers; empty where none does.
	direct string
	// tunnel tells that the API answers through the tunnel of the cluster's agent.
	tunnel bool
}

// lookout looks which ways lead to clusters, where there is doubt. A look takes seconds where firewalls drop packets, and so no pass waits
// for one: the look has the cluster worked on again when it is done.
type lookout struct {
	ask    func(ctx context.Context, what look) reach
	now    func() time.Time
	done   chan event.TypedGenericEvent[client.Object]
	slots  chan struct{}
	mu     sync.Mutex
	byName map[types.NamespacedName]*looked
}

// look is what to look at.
type look struct {
	servers       []string
	authorities   []byte
	management    string
	administrator bool
}

type looked struct {
	reach   reach
	at      time.Time
	running bool
}

func newLookout(access *tunnelaccess.Access, now func() time.Time) *lookout {
	return &lookout{
		ask: func(ctx context.Context, what look) reach { return lookNow(ctx, access, what) }, now: now,
		done: make(chan event.TypedGenericEvent[client.Object]), slots: make(chan struct{}, maxLooks), byName: map[types.NamespacedName]*looked{},
	}
}

// at returns what was seen a moment ago. Where nothing was, it begins a look and returns false, unless the last one is younger than every.
func (l *lookout) at(controlPlane *rkev1.RKEControlPlane, what look, every time.Duration) (reach, bool) {
	key := client.ObjectKeyFromObject(controlPlane)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, seen := range l.byName {
		if !seen.running && now.Sub(seen.at) > forgetLook {
			delete(l.byName, name)
		}
	}
	if seen := l.byName[key]; seen != nil {
		switch age := now.Sub(seen.at); {
		case seen.running:
			return reach{}, false
		case age < reachFor:
			return seen.reach, true
		case age < every:
			return reach{}, false
		}
	}
	seen := &looked{running: true}
	l.byName[key] = seen
	object := &rkev1.RKEControlPlane{}
	object.Namespace, object.Name = key.Namespace, key.Name
	go func() {
		l.slots <- struct{}{}
		defer func() { <-l.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
		found := l.ask(ctx, what)
		cancel()
		l.mu.Lock()
		seen.reach, seen.at, seen.running = found, l.now(), false
		l.mu.Unlock()
		l.done <- event.TypedGenericEvent[client.Object]{Object: object}
	}()
	return reach{}, false
}

// lookNow asks all servers and the tunnel at once.
func lookNow(ctx context.Context, access *tunnelaccess.Access, what look) reach {
	var found reach
	var wait sync.WaitGroup
	answers := make([]bool, len(what.servers))
	for i, server := range what.servers {
		wait.Go(func() { answers[i] = tunnelaccess.Direct(ctx, server, what.authorities) == nil })
	}
	if access.Connected(what.management) {
		wait.Go(func() { found.tunnel = access.Answers(ctx, what.management, what.administrator) == nil })
	}
	wait.Wait()
	for i, answer := range answers {
		if answer {
			found.direct = what.servers[i]
			break
		}
	}
	return found
}
