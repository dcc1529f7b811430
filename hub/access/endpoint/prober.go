package endpoint

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/util/inflight"
)

const (
	// probeTimeout is how long an endpoint has to answer.
	probeTimeout = 4 * time.Second
	// resultTTL is how long a result is valid.
	resultTTL = 15 * time.Second
	// maxProbes is how many clusters are probed at a time. One that becomes free is for the namespace with the fewest: servers that drop
	// packets take all of probeTimeout.
	maxProbes = 50
	// probeUser is the name in the client certificate of probes, which has no rights but those of every user.
	probeUser = "system:drover:probe"
)

// Targets are the endpoints of a cluster.
type Targets struct {
	Servers []Server
	// CA are the certificates (PEM) that servers are verified by.
	CA []byte
	// ClientCA is the authority of client certificates that the servers accept; nil where the hub does not have it.
	ClientCA *pki.Pair
	// Management is the name of the management Cluster, by which the tunnel is found; empty for none.
	Management string
	// Administrator is set where the hub is an administrator of the cluster.
	Administrator bool
}

// trust identifies the authorities.
func (t Targets) trust() string {
	if t.ClientCA == nil {
		return string(t.CA)
	}
	return string(t.CA) + string(t.ClientCA.Cert.Raw)
}

// Mismatch is a server that the hub cannot use although it answers: the certificate authorities that the hub has are not those of the
// cluster, or the server is not the cluster's.
type Mismatch struct {
	// Server is its URL; empty for none.
	Server string
	// Client is set where the server refuses a client certificate. Otherwise it presents a certificate that is not of the authority.
	Client bool
}

// Result is which endpoints answer.
type Result struct {
	// Server is the URL of the first server that answers; empty if none does.
	Server string
	// Tunnel is set where the API answers through the tunnel.
	Tunnel bool
	// Mismatch is one of the servers, where none answers that the hub can use.
	Mismatch Mismatch
}

// Prober probes endpoints in the background: where a firewall drops packets that takes seconds, and no reconcile waits for it.
type Prober struct {
	// Done gets an object with the name and namespace of each cluster whose probe has ended.
	Done chan event.GenericEvent

	probe func(context.Context, Targets) Result
	now   func() time.Time
	slots *inflight.Fair

	mu   sync.Mutex
	last map[client.ObjectKey]*probe
}

// probe is the last one of a cluster; at is zero while it runs, with the result of the one before.
type probe struct {
	result Result
	at     time.Time
	// trust identifies the authorities; changed is set where the probe before was made with others.
	trust   string
	changed bool
}

// NewProber returns a Prober. run makes one probe; Requests(access) does that by requests.
func NewProber(run func(context.Context, Targets) Result, now func() time.Time) *Prober {
	return &Prober{Done: make(chan event.GenericEvent), probe: run, now: now, slots: inflight.NewFair(maxProbes),
		last: map[client.ObjectKey]*probe{}}
}

// Probe returns the result of the last probe while that is valid. Otherwise it starts another one, unless one runs or the last one is
// younger than interval, and returns false. A probe with other authorities does not count.
func (p *Prober) Probe(cluster client.ObjectKey, targets Targets, interval time.Duration) (Result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	maps.DeleteFunc(p.last, func(_ client.ObjectKey, last *probe) bool {
		return !last.at.IsZero() && now.Sub(last.at) > 2*directInterval
	})
	running := &probe{trust: targets.trust()}
	last := p.last[cluster]
	running.changed = last != nil && last.trust != running.trust
	if last != nil && !running.changed {
		switch age := now.Sub(last.at); {
		case last.at.IsZero():
			return Result{}, false
		case age < resultTTL:
			return last.result, true
		case age < interval:
			return Result{}, false
		case age < 2*interval:
			running.result = last.result // until it has ended
		}
	}
	p.last[cluster] = running
	go func() {
		release, _ := p.slots.Acquire(context.Background(), cluster.Namespace, nil)
		defer release()
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

// Mismatch returns that of the last probe with the same authorities.
func (p *Prober) Mismatch(cluster client.ObjectKey, targets Targets) Mismatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.last[cluster]; last != nil && last.trust == targets.trust() {
		return last.result.Mismatch
	}
	return Mismatch{}
}

// trustChanged reports whether the authorities are others than before the last valid result.
func (p *Prober) trustChanged(cluster client.ObjectKey, targets Targets) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[cluster]
	return last != nil && (last.trust != targets.trust() || last.changed && (last.at.IsZero() || p.now().Sub(last.at) < resultTTL))
}

// Requests returns a function that probes all servers and the tunnel at once, by requests for /readyz. access may be nil.
func Requests(access *tunnelaccess.Access) func(context.Context, Targets) Result {
	return func(ctx context.Context, targets Targets) (result Result) {
		var wait sync.WaitGroup
		urls := URLs(targets.Servers)
		answers := make([]error, len(urls))
		credential := probeCertificate(targets.ClientCA)
		for i, url := range urls {
			wait.Go(func() { answers[i] = tunnelaccess.Direct(ctx, url, targets.CA, credential) })
		}
		if access.Connected(targets.Management) {
			wait.Go(func() { result.Tunnel = access.Answers(ctx, targets.Management, targets.Administrator) == nil })
		}
		wait.Wait()
		for i, err := range answers {
			untrusted, refused := tunnelaccess.IsUntrusted(err), errors.Is(err, tunnelaccess.ErrUnauthorized)
			switch {
			case err == nil:
				return Result{Server: urls[i], Tunnel: result.Tunnel}
			case (untrusted || refused) && result.Mismatch.Server == "":
				result.Mismatch = Mismatch{Server: urls[i], Client: refused}
			}
		}
		return result
	}
}

// probeCertificate issues the client certificate of a probe; nil where there is no authority for it.
func probeCertificate(ca *pki.Pair) *pki.Pair {
	if ca == nil {
		return nil
	}
	pair, err := pki.Issue(pki.Request{CommonName: probeUser, Usage: x509.ExtKeyUsageClientAuth, Lifetime: time.Hour}, ca, time.Now())
	if err != nil {
		return nil // the servers are asked without one
	}
	return pair
}
