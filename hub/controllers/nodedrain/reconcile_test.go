package nodedrain

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// world is a hub with one machine that is to be drained, and the cluster that its Node is in.
type world struct {
	t           *testing.T
	r           *Reconciler
	hub, remote client.Client
	now         time.Time
	// budget refuses the eviction of Pods whose name begins so.
	budget string
}

func newWorld(t *testing.T, pods ...*corev1.Pod) *world {
	t.Helper()
	scheme := fakeclient.Scheme(t, clientgoscheme.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	w := &world{t: t, now: time.Unix(1000, 0), budget: "none"}
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "c"}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", UID: "machine"},
		Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
		Name: "a"}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: "a", UID: "bootstrap",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
	machine.Status.NodeRef.Name = "node-a"
	w.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&clusterv1.Cluster{ObjectMeta: meta}, machine, bootstrap, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fleet", Name: "a-machine-plan", Labels: map[string]string{rkev1.MachineNameLabel: "a"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
		},
		Type: rkev1.MachinePlanSecretType,
	}).Build()
	remote := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(ctx context.Context, c client.Client, sub string, object,
			into client.Object, opts ...client.SubResourceCreateOption) error {
			if strings.HasPrefix(object.GetName(), w.budget) {
				err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause,
					Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
				return err
			}
			return c.SubResource(sub).Create(ctx, object, into, opts...)
		}})
	for _, p := range pods {
		remote.WithObjects(p)
	}
	w.remote = remote.Build()
	w.r = &Reconciler{Client: w.hub, Cache: w.hub, Now: func() time.Time { return w.now },
		ClusterCache: clustercache.NewFakeClusterCache(w.remote, client.ObjectKey{Namespace: "fleet", Name: "c"})}
	return w
}

// pass runs passes until one changes nothing, as the watch of the Secret does.
func (w *world) pass() {
	w.t.Helper()
	for range 10 {
		before := w.annotations()
		if _, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet",
			Name: "a-machine-plan"}}); err != nil {
			w.t.Fatal(err)
		}
		if cmp.Equal(before, w.annotations()) {
			return
		}
	}
	w.t.Fatal("it does not settle")
}

func (w *world) annotations() map[string]string {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "a-machine-plan"}, secret); err != nil {
		w.t.Fatal(err)
	}
	return secret.Annotations
}

func (w *world) annotate(key, value string) {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.hub.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "a-machine-plan"}, secret); err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, key, value)
	if err := w.hub.Update(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
}

// ask asks for a drain and returns the options as they were asked for.
func (w *world) ask(options rkev1.DrainOptions) string {
	w.t.Helper()
	raw, err := json.Marshal(options)
	if err != nil {
		w.t.Fatal(err)
	}
	w.annotate(rkev1.DrainOptionsAnnotation, string(raw))
	return string(raw)
}

func (w *world) cordoned() bool {
	w.t.Helper()
	return w.node().Spec.Unschedulable
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	if err := w.remote.Get(w.t.Context(), client.ObjectKey{Name: "node-a"}, node); err != nil {
		w.t.Fatal(err)
	}
	return node
}

func (w *world) pods() (names []string) {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.remote.List(w.t.Context(), &pods); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names
}

func (w *world) says(key, want string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.annotations()[key]); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", key, diff)
	}
}

// A Node is cordoned, drained but for DaemonSets and other Nodes' Pods, and taken back, and nothing is left of it.
func TestDrainAndTakeBack(t *testing.T) {
	elsewhere := pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "node-b" })
	w := newWorld(t, pod("web", nil), pod("logs", daemon), elsewhere)
	asked := w.ask(rkev1.DrainOptions{Enabled: true})
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)
	w.says(rkev1.DrainErrorAnnotation, "")
	if diff := cmp.Diff([]string{"elsewhere", "logs"}, w.pods()); diff != "" || !w.cordoned() ||
		w.node().Annotations[rkev1.DrainCordonedAnnotation] == "" {
		t.Errorf("Node %+v, Pods (-want +got):\n%s", w.node(), diff)
	}
	w.annotate(rkev1.UncordonAnnotation, asked)
	w.pass()
	if len(w.annotations()) > 0 || w.cordoned() || len(w.node().Annotations) > 0 {
		t.Errorf("Node %+v, left %v", w.node(), w.annotations())
	}
}

// A disruption budget is named, first as what is waited for, then as what is in the way; the drain goes on as soon as it lets it.
func TestDisruptionBudget(t *testing.T) {
	w := newWorld(t, pod("web", nil), pod("job", nil))
	w.budget = "web"
	asked := w.ask(rkev1.DrainOptions{Enabled: true, Timeout: 60})
	w.pass()
	stays := "cannot evict Pods default/web: The disruption budget web needs 2 healthy pods and has 2 currently"
	w.says(rkev1.DrainWaitingAnnotation, stays)
	w.says(rkev1.DrainErrorAnnotation, "")
	w.now = w.now.Add(time.Minute)
	w.pass()
	w.says(rkev1.DrainErrorAnnotation, "drain did not finish within 1m0s; retrying: "+stays)
	w.says(rkev1.DrainDoneAnnotation, "")
	w.budget = "none"
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)
	w.says(rkev1.DrainErrorAnnotation, "")
}

func TestOptions(t *testing.T) {
	w := newWorld(t, pod("web", nil), pod("own", alone))
	w.budget = "web"
	asked := w.ask(rkev1.DrainOptions{Enabled: true, IgnoreErrors: true})
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, "")
	w.now = w.now.Add(10 * time.Minute)
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)

	// Another request starts again: past the budget, this time.
	w.ask(rkev1.DrainOptions{Enabled: true, DisableEviction: true})
	w.pass()
	w.says(rkev1.DrainErrorAnnotation, "Pods default/own have no controller and will not be recreated (set force: true to drain them)")
	if len(w.pods()) != 2 {
		t.Errorf("a drain that cannot end has begun: %v", w.pods())
	}
	asked = w.ask(rkev1.DrainOptions{Enabled: true, DisableEviction: true, Force: true})
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)

	w.annotate(rkev1.DrainOptionsAnnotation, "{")
	w.pass()
	w.says(rkev1.DrainErrorAnnotation, "annotation rke.cattle.io/drain-options: invalid drain options: unexpected end of JSON input")
}

// Hooks are asked before and after, in the words that existing ones understand, also where nothing is drained.
func TestHooks(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		w := newWorld(t, pod("web", nil))
		hook := func(name string) []rkev1.DrainHook { return []rkev1.DrainHook{{Annotation: "example.com/" + name}, {}} }
		asked := w.ask(rkev1.DrainOptions{Enabled: enabled, PreDrainHooks: hook("pre"), PostDrainHooks: hook("post")})
		w.pass()
		w.says(rkev1.PreDrainAnnotation, asked)
		w.says(rkev1.DrainWaitingAnnotation, "waiting for the pre-drain hooks example.com/pre to answer")
		w.annotate("example.com/pre", "something else")
		w.pass()
		w.says(rkev1.DrainDoneAnnotation, "")
		w.annotate("example.com/pre", asked)
		w.pass()
		w.says(rkev1.DrainDoneAnnotation, asked)
		if len(w.pods()) == 1 == enabled || w.cordoned() != enabled {
			t.Errorf("enabled %v: Pods %v, cordoned %v", enabled, w.pods(), w.cordoned())
		}
		w.annotate(rkev1.UncordonAnnotation, asked)
		w.pass()
		w.says(rkev1.PostDrainAnnotation, asked)
		w.says(rkev1.DrainWaitingAnnotation, "waiting for the post-drain hooks example.com/post to answer")
		w.annotate("example.com/post", asked)
		w.pass()
		if len(w.annotations()) > 0 || w.cordoned() {
			t.Errorf("enabled %v: cordoned %v, left %v", enabled, w.cordoned(), w.annotations())
		}
	}
}

// A Node that somebody else has cordoned stays so, and one that a hub has cordoned which died then is taken back by the next.
func TestCordon(t *testing.T) {
	w := newWorld(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	if err := w.remote.Patch(t.Context(), node, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"unschedulable":true}}`))); err != nil {
		t.Fatal(err)
	}
	asked := w.ask(rkev1.DrainOptions{Enabled: true})
	w.annotate(rkev1.UncordonAnnotation, asked)
	w.pass()
	if !w.cordoned() {
		t.Error("somebody's own cordon is gone")
	}
	w.annotate(rkev1.DrainCordonedAnnotation, "true")
	asked = w.ask(rkev1.DrainOptions{Enabled: true})
	w.annotate(rkev1.UncordonAnnotation, asked)
	w.pass()
	if w.cordoned() {
		t.Error("the hub's own cordon stays")
	}

	// Somebody takes the request away by hand.
	w.ask(rkev1.DrainOptions{Enabled: true})
	w.pass()
	w.annotate(rkev1.DrainOptionsAnnotation, "")
	w.pass()
	if w.cordoned() || len(w.annotations()) > 0 {
		t.Errorf("cordoned %v, left %v", w.cordoned(), w.annotations())
	}
}

// While the server restarts that the hub goes through, a drain waits and fails not.
func TestUnanswered(t *testing.T) {
	w := newWorld(t, pod("web", nil))
	refused := true
	w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(w.remote.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if refused {
				return errors.New("dial tcp 10.0.0.1:6443: connect: connection refused")
			}
			return c.Patch(ctx, object, patch, opts...)
		},
	}), client.ObjectKey{Namespace: "fleet", Name: "c"})
	asked := w.ask(rkev1.DrainOptions{Enabled: true})
	w.pass()
	w.says(rkev1.DrainWaitingAnnotation, "the cluster's API does not answer")
	refused = false
	w.pass()
	w.says(rkev1.DrainDoneAnnotation, asked)
	w.says(rkev1.DrainWaitingAnnotation, "")
}

// Nothing is drained while the cluster is paused or cannot be reached, and a machine that goes is left to Cluster API.
func TestWhatStopsADrain(t *testing.T) {
	w := newWorld(t, pod("web", nil))
	w.ask(rkev1.DrainOptions{Enabled: true})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
	pause := func(paused bool) {
		if err := w.hub.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		cluster.Spec.Paused = ptr.To(paused)
		if err := w.hub.Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	w.pass()
	if w.cordoned() || len(w.annotations()) != 1 {
		t.Errorf("paused: cordoned %v, %v", w.cordoned(), w.annotations())
	}
	pause(false)
	connected := w.r.ClusterCache
	w.r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
	w.pass()
	w.says(rkev1.DrainErrorAnnotation, "no connection to the cluster's API")
	w.r.ClusterCache = connected
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a"}}
	if err := w.hub.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if len(w.annotations()) > 0 || w.cordoned() {
		t.Errorf("the machine is gone: cordoned %v, left %v", w.cordoned(), w.annotations())
	}
}

// TestPausedMachine: a drain that waits since its Machine is paused says so, for the machines that wait for it, and goes on afterwards.
func TestPausedMachine(t *testing.T) {
	w := newWorld(t, pod("web", nil))
	asked := w.ask(rkev1.DrainOptions{Enabled: true})
	pause := func(value map[string]string) {
		machine := &clusterv1.Machine{}
		if err := w.hub.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "a"}, machine); err != nil {
			t.Fatal(err)
		}
		machine.Annotations = value
		if err := w.hub.Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	pause(map[string]string{clusterv1.PausedAnnotation: ""})
	w.pass()
	w.says(rkev1.DrainWaitingAnnotation, "the Machine is paused; remove its annotation cluster.x-k8s.io/paused to continue")
	if w.cordoned() || len(w.annotations()) != 2 {
		t.Errorf("paused: cordoned %v, %v", w.cordoned(), w.annotations())
	}
	pause(nil)
	w.pass()
	w.says(rkev1.DrainWaitingAnnotation, "")
	w.says(rkev1.DrainDoneAnnotation, asked)
}
