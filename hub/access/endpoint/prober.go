package endpoint

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
)

const (
	// probeTimeout is how long an endpoint has to answer.
	probeTimeout = 4 * time.Second
	// resultTTL is how long a result is valid.
	resultTTL = 15 * time.Second
	// maxProbes is how many clusters are probed at a time.
	maxProbes = 50
)

// Targets are the endpoints of a cluster.
type Targets struct {
	Servers []Server
	// CA are the certificates (PEM) that servers are verified by.
	CA []byte
	// Management is the name of the management Cluster, by which the tunnel is found; empty for none.
	Management string
	// Administrator is set where the hub is an administrator of the cluster.
	Administrator bool
}

// Result is which endpoints answer.
type Result struct {
	// Server is the URL of the first server that answers; empty if none does.
	Server string
	// Tunnel is set where the API answers through the tunnel.
	Tunnel bool
}

// Prober probes endpoints in the background: where a firewall drops packets that takes seconds, and no reconcile waits for it.
type Prober struct {
	// Done gets an object with the name and namespace of each cluster whose probe has ended.
	Done chan event.GenericEvent

	probe func(context.Context, Targets) Result
	now   func() time.Time
	slots chan struct{}

	mu   sync.Mutex
	last map[client.ObjectKey]*probe
}

// probe is the last one of a cluster; at is zero while it runs.
type probe struct {
	result Result
	at     time.Time
}

// NewProber returns a Prober. run makes one probe; Requests(access) does that by requests.
func NewProber(run func(context.Context, Targets) Result, now func() time.Time) *Prober {
	return &Prober{Done: make(chan event.GenericEvent), probe: run, now: now, slots: make(chan struct{}, maxProbes),
		last: map[client.ObjectKey]*probe{}}
}

// Probe returns the result of the last probe while that is valid. Otherwise it starts another one, unless one runs or the last one is
// younger than interval, and returns false.
func (p *Prober) Probe(cluster client.ObjectKey, targets Targets, interval time.Duration) (Result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	maps.DeleteFunc(p.last, func(_ client.ObjectKey, last *probe) bool {
		return !last.at.IsZero() && now.Sub(last.at) > 2*directInterval
	})
	if last := p.last[cluster]; last != nil {
		switch age := now.Sub(last.at); {
		case last.at.IsZero():
			return Result{}, false
		case age < resultTTL:
			return last.result, true
		case age < interval:
			return Result{}, false
		}
	}
	running := &probe{}
	p.last[cluster] = running
	go func() {
		p.slots <- struct{}{}
		defer func() { <-p.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		result := p.probe(ctx, targets)
		cancel()
		p.mu.Lock()
		running.result, running.at = result, p.now()
		p.mu.Unlock()
		p.Done <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace,
			Name: cluster.Name}}}
	}()
	return Result{}, false
}

// Requests returns a function that probes all servers and the tunnel at once, by requests for /readyz. access may be nil.
func Requests(access *tunnelaccess.Access) func(context.Context, Targets) Result {
	return func(ctx context.Context, targets Targets) (result Result) {
		var wait sync.WaitGroup
		urls := URLs(targets.Servers)
		answers := make([]bool, len(urls))
		for i, url := range urls {
			wait.Go(func() { answers[i] = tunnelaccess.Direct(ctx, url, targets.CA) == nil })
		}
		if access.Connected(targets.Management) {
			wait.Go(func() { result.Tunnel = access.Answers(ctx, targets.Management, targets.Administrator) == nil })
		}
		wait.Wait()
		if i := slices.Index(answers, true); i >= 0 {
			result.Server = urls[i]
		}
		return result
	}
}
