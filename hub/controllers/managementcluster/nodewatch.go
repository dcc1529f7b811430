package managementcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	"github.com/drover-dev/drover/hub/util/message"
)

const (
	// versionTimeout and maxVersionBody, in bytes, bound a request for the version of a cluster. The answer is kept in the status, which is
	// written whenever the number of Nodes changes, as often as the cluster likes.
	versionTimeout = 30 * time.Second
	maxVersionBody = 4 << 10
	// minRetry to maxRetry is the time after which a cluster is observed again.
	minRetry, maxRetry = time.Second, time.Minute
	// uncountedRetry is the time where its Nodes cannot be counted. An API server that has just started may refuse what it allows later.
	uncountedRetry = 5 * time.Minute
	// unreachableAfter is how long the API of a cluster may not answer before that is shown: an API server that restarts answers sooner.
	unreachableAfter = time.Minute
)

// observation is what was read of an imported cluster.
type observation struct {
	// version is nil until the API has answered.
	version *version.Info
	// nodes is the number of Nodes; it is valid if counted.
	nodes   int
	counted bool
	// reached is set once the API has answered, if only with a refusal. unreachableSince is when it has stopped, where that is longer ago than
	// unreachableAfter; zero otherwise.
	reached          bool
	unreachableSince time.Time
}

// nodeWatchers holds one watch of Nodes per connected cluster.
type nodeWatchers struct {
	mu      sync.Mutex
	ctx     context.Context
	config  func(management string) *rest.Config
	changed func(management string)
	byName  map[string]*nodeWatcher
	// uncountedRetry and unreachableAfter are the constants; tests set shorter times.
	uncountedRetry, unreachableAfter time.Duration
}

func (w *nodeWatchers) start(ctx context.Context, config func(string) *rest.Config, changed func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.config, w.changed, w.byName = ctx, config, changed, map[string]*nodeWatcher{}
	w.uncountedRetry, w.unreachableAfter = cmp.Or(w.uncountedRetry, uncountedRetry), cmp.Or(w.unreachableAfter, unreachableAfter)
}

// watch starts the watch of a cluster, unless it runs, and returns what it has observed.
func (w *nodeWatchers) watch(name string) observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.byName[name]
	if one == nil {
		ctx, cancel := context.WithCancel(w.ctx)
		one = &nodeWatcher{cancel: cancel, changed: func() { w.changed(name) },
			uncountedRetry: w.uncountedRetry, unreachableAfter: w.unreachableAfter}
		w.byName[name] = one
		go one.run(ctx, name, w.config(name))
	}
	return one.get()
}

func (w *nodeWatchers) stop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.byName[name]; one != nil {
		one.cancel()
		delete(w.byName, name)
	}
}

// nodeWatcher watches the Nodes of one cluster. It reads the version whenever a watch begins: a watch ends when the cluster's API server is
// replaced.
type nodeWatcher struct {
	cancel                           context.CancelFunc
	changed                          func()
	uncountedRetry, unreachableAfter time.Duration
	// failedSince is when the API did not answer for the first time after it had; zero if it answered last. It is for run alone.
	failedSince time.Time

	mu       sync.Mutex
	observed observation
}

func (w *nodeWatcher) get() observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

func (w *nodeWatcher) update(change func(*observation)) {
	w.mu.Lock()
	before := w.observed
	change(&w.observed)
	same := w.observed == before
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

// run observes the cluster until ctx ends. Where its Nodes cannot be counted, the version is known nevertheless, and both are requested
// again from time to time.
func (w *nodeWatcher) run(ctx context.Context, name string, config *rest.Config) {
	log := ctrl.Log.WithName("managementcluster").WithValues("Cluster", name)
	nodes, err1 := newNodeSet(config)
	versions, err2 := newVersionClient(config)
	if err := errors.Join(err1, err2); err != nil {
		log.Error(err, "Failed to watch the Nodes of the cluster")
		return
	}
	level := 0 // of the log: a cluster whose Nodes cannot be counted is logged once
	for delay := minRetry; ; delay = min(2*delay, maxRetry) {
		begin := time.Now()
		err := w.observe(ctx, nodes, versions)
		wait := delay
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), errors.Is(err, clusternodes.ErrTooMany):
			// The manifest of a legacy agent does not let the hub read Nodes, and an API may have none.
			w.update(func(o *observation) { o.nodes, o.counted = 0, false })
			log.V(level).Info("Not counting the Nodes of the cluster: it has none or too many, or the hub may not list them",
				"error", message.Bound(err.Error(), message.MaxError))
			nodes.names, level, wait = nil, 1, w.uncountedRetry
		case err != nil:
			nodes.names = nil
			log.V(1).Info("Watching the Nodes of the cluster failed, retrying", "error", message.Bound(err.Error(), message.MaxError))
		}
		if time.Since(begin) > minWatch/2 {
			delay = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// observe reads the version, lists the Nodes unless they are known, and watches them until the watch ends.
func (w *nodeWatcher) observe(ctx context.Context, nodes *nodeSet, versions discovery.ServerVersionInterface) error {
	if err := w.readVersion(ctx, versions); err != nil {
		return err
	}
	count := func() { w.update(func(o *observation) { o.nodes, o.counted = len(nodes.names), true }) }
	if nodes.names == nil {
		if err := nodes.list(ctx); err != nil {
			return fmt.Errorf("listing the Nodes: %w", err)
		}
		count()
	}
	if err := nodes.watch(ctx, count); err != nil {
		return fmt.Errorf("watching the Nodes: %w", err)
	}
	return nil
}

func (w *nodeWatcher) readVersion(ctx context.Context, from discovery.ServerVersionInterface) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	got, err := from.ServerVersion()
	w.answered(err, time.Now())
	if err != nil {
		return fmt.Errorf("reading the version of the cluster's API: %w", err)
	}
	w.update(func(o *observation) {
		if o.version == nil || *o.version != *got {
			o.version = got
		}
	})
	return nil
}

// answered records whether the API has answered a request that ended with this error. What it refuses, it has answered.
func (w *nodeWatcher) answered(err error, now time.Time) {
	var status apierrors.APIStatus
	switch {
	case err == nil || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError:
		w.failedSince = time.Time{}
		w.update(func(o *observation) { o.reached, o.unreachableSince = true, time.Time{} })
		return
	case w.failedSince.IsZero():
		w.failedSince = now
	}
	if now.Sub(w.failedSince) > w.unreachableAfter {
		w.update(func(o *observation) { o.unreachableSince = w.failedSince })
	}
}

func newVersionClient(config *rest.Config) (discovery.ServerVersionInterface, error) {
	config = rest.CopyConfig(config)
	config.Timeout = versionTimeout
	tunnelaccess.LimitBodies(config, maxVersionBody)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}
