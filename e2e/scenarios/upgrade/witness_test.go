//go:build e2e && full

package upgrade

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
)

// witness asks a cluster for its Nodes and its guests, again and again, and remembers what went wrong. It is a client as
// one behind a load balancer: it turns to the next server when one does not answer, and calls it a failure when none does.
type witness struct {
	servers []client.Client
	// apis and etcds are the addresses of the API servers and of etcd's members.
	apis, etcds []string
	stop        context.CancelFunc
	done        chan struct{}

	mu       sync.Mutex
	asked    int
	failures []string
	stalls   int           // looks that nobody answered though nobody was down
	stalled  time.Time     // since when that is so; zero while somebody answers
	slowest  time.Duration // to the first answer, with servers that did not answer before
	fewest   int32         // guests that were available at the worst time
	seen     map[string]*history
	order    []string // Nodes in the order in which they changed
}

// history is what was seen of a Node.
type history struct {
	first    string // its version and how many Pods it takes
	changed  bool
	cordoned bool // before it changed
}

// patience is how long one server may take to answer.
const patience = 3 * time.Second

// longestStall is how long nobody may answer although nobody is down. A cluster without a quorum looks like that, too.
const longestStall = 20 * time.Second

// watchCluster starts a witness of a cluster whose API runs on the given hosts, and etcd on those of their names.
func watchCluster(t *testing.T, cluster client.ObjectKey, machines map[string]*hosts.Host, servers []*hosts.Host) *witness {
	t.Helper()
	_, config, err := shared.ClusterClient(t.Context(), shared.Hub, cluster)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{done: make(chan struct{}), fewest: 1 << 30, seen: map[string]*history{}}
	for _, name := range etcds {
		w.etcds = append(w.etcds, machines[name].IP().String()+":2379")
	}
	for _, host := range servers {
		w.apis = append(w.apis, host.IP().String()+":6443")
		one := rest.CopyConfig(config)
		one.Host = fmt.Sprintf("https://%s:6443", host.IP())
		one.Timeout = patience
		c, err := lab.NewClient(one)
		if err != nil {
			t.Fatal(err)
		}
		w.servers = append(w.servers, c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	t.Cleanup(w.end)
	go w.watch(ctx)
	return w
}

func (w *witness) end() {
	w.stop()
	<-w.done
}

func (w *witness) watch(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		w.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (w *witness) look(ctx context.Context) {
	nodes, guests := &corev1.NodeList{}, &appsv1.Deployment{}
	var errs []string
	began := time.Now()
	// While the answer takes its time it is seen whether those are there who should give it.
	present := make(chan bool, 1)
	checked := time.AfterFunc(time.Second, func() { present <- w.present(ctx) })
	for _, server := range w.servers {
		err := server.List(ctx, nodes)
		if err == nil {
			err = server.Get(ctx, client.ObjectKey{Namespace: "default", Name: "guests"}, guests)
		}
		if err == nil {
			errs = nil
			break
		}
		errs = append(errs, err.Error())
	}
	stalled := !checked.Stop() && errs != nil && <-present
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if stalled && w.stalled.IsZero() {
		w.stalled = began
	}
	if stalled && time.Since(w.stalled) < longestStall {
		w.stalls++
		return
	}
	w.stalled = time.Time{}
	if errs != nil {
		w.failures = append(w.failures, time.Now().Format("15:04:05.0")+" "+strings.Join(errs, " | "))
		return
	}
	w.slowest = max(w.slowest, time.Since(began))
	w.fewest = min(w.fewest, guests.Status.AvailableReplicas)
	for _, node := range nodes.Items {
		w.see(&node)
	}
}

// present reports whether one API server and most members of etcd accept connections. A process that stands still for some seconds does,
// for the kernel does that; one that has been stopped or is starting does not.
func (w *witness) present(ctx context.Context) bool {
	accepting := func(addresses []string) (n int) {
		for _, address := range addresses {
			ctx, cancel := context.WithTimeout(ctx, patience)
			conn, err := shared.Dial(ctx, "tcp", address)
			cancel()
			if err == nil {
				n++
				_ = conn.Close()
			}
		}
		return n
	}
	return accepting(w.apis) > 0 && accepting(w.etcds) > len(w.etcds)/2
}

func (w *witness) see(node *corev1.Node) {
	now := node.Status.NodeInfo.KubeletVersion + " " + node.Status.Capacity.Pods().String()
	h := w.seen[node.Name]
	if h == nil {
		h = &history{first: now}
		w.seen[node.Name] = h
	}
	if now != h.first && !h.changed {
		h.changed = true
		w.order = append(w.order, node.Name)
	}
	h.cordoned = h.cordoned || node.Spec.Unschedulable && !h.changed
}

// changed are the Nodes that have changed, in their order.
func (w *witness) changed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.order...)
}

// report says how it was, and fails the test where the API or the guests were unreachable.
func (w *witness) report(t *testing.T) {
	t.Helper()
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("the API was asked %d times, failed %d times, stood still %d times and took at most %.1f s; at least %d guests were available; "+
		"the order was %s", w.asked, len(w.failures), w.stalls, w.slowest.Seconds(), w.fewest, strings.Join(w.order, ", "))
	if len(w.failures) > 0 {
		t.Errorf("no server of the API answered:\n%s", strings.Join(w.failures, "\n"))
	}
	if w.fewest < 1 {
		t.Errorf("no guest was available, although their PodDisruptionBudget asks for one")
	}
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
