package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/access/endpoint"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/plans"
)

// endpointWorld is a cluster whose objects a fake API server holds. Cluster API's part is the test's.
type endpointWorld struct {
	t *testing.T
	r *Reconciler
	s *scope
}

func newEndpointWorld(t *testing.T, infraKind string) *endpointWorld {
	t.Helper()
	scheme := fakeclient.Scheme(t, rkev1.AddToScheme)
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "u"}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: meta}, cluster: &clusterv1.Cluster{ObjectMeta: meta},
		serverCA: testAuthority, clientCA: testAuthority}
	s.cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io",
		Kind: infraKind, Name: "c"}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	if infraKind == "RKECluster" {
		s.cluster.Spec.InfrastructureRef.APIGroup = rkev1.GroupVersion.Group
		infra := &rkev1.RKECluster{ObjectMeta: meta}
		infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "u"}}
		builder.WithObjects(infra)
	}
	w := &endpointWorld{t: t, s: s, r: &Reconciler{Client: builder.Build()}}
	w.serves("a", "10.0.0.1")
	return w
}

// serves adds a control plane machine that serves the API.
func (w *endpointWorld) serves(name, address string) *machine {
	m := server(name, rollout.ProgressApplied, rollout.ChangeNone, "")
	m.inputs.DetectedAddress = address
	w.s.machines = append(w.s.machines, m)
	return m
}

// reconcile runs what concerns the endpoint as often as changes bring further reconciles.
func (w *endpointWorld) reconcile() {
	w.t.Helper()
	for range 3 {
		if err := w.r.findInfraCluster(w.t.Context(), w.s); err != nil {
			w.t.Fatal(err)
		}
		if err := w.r.ensureEndpoint(w.t.Context(), w.s); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.r.findInfraCluster(w.t.Context(), w.s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *endpointWorld) edit(change func(*rkev1.RKECluster)) {
	w.t.Helper()
	infra := w.infra()
	change(infra)
	if err := w.r.Client.Update(w.t.Context(), infra); err != nil {
		w.t.Fatal(err)
	}
}

func (w *endpointWorld) infra() *rkev1.RKECluster {
	w.t.Helper()
	infra := &rkev1.RKECluster{}
	if err := w.r.Client.Get(w.t.Context(), client.ObjectKey{Namespace: "fleet", Name: "c"}, infra); err != nil {
		w.t.Fatal(err)
	}
	return infra
}

// wantServers checks where a new kubeconfig may lead, and what certificates and plans get.
func (w *endpointWorld) wantServers(host string, urls ...string) {
	w.t.Helper()
	servers, _ := w.s.servers()
	if diff := cmp.Diff(urls, endpoint.URLs(servers)); diff != "" {
		w.t.Errorf("kubeconfigs (-want +got):\n%s", diff)
	}
	if got := w.s.endpoint().Host; got != host {
		w.t.Errorf("plans get the endpoint %q, want %q", got, host)
	}
}

func at(host string) rkev1.APIEndpoint { return rkev1.APIEndpoint{Host: host, Port: 6443} }

// TestChosenEndpoint: the hub gives Cluster API the address of a machine, which is none for kubeconfigs and plans, also where the Cluster
// keeps it after its machine is gone; and a user's own replaces it.
func TestChosenEndpoint(t *testing.T) {
	w := newEndpointWorld(t, "RKECluster")
	w.reconcile()
	if got := w.infra().Spec.ControlPlaneEndpoint; got != at("10.0.0.1") {
		t.Fatalf("the RKECluster has the endpoint %v", got)
	}
	w.s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint(at("10.0.0.1"))
	w.serves("b", "10.0.0.2")
	w.reconcile()
	w.wantServers("", "https://10.0.0.1:6443", "https://10.0.0.2:6443")

	// A machine that does not serve the API for a while changes nothing, one that goes does.
	w.s.machines[0].state.Progress = rollout.ProgressPending
	w.reconcile()
	if got := w.infra().Spec.ControlPlaneEndpoint; got != at("10.0.0.1") {
		t.Errorf("while the machine restarts, the RKECluster has the endpoint %v", got)
	}
	w.s.machines[0].state.Deleting = true
	w.reconcile()
	w.wantServers("", "https://10.0.0.2:6443")
	if got := w.infra().Spec.ControlPlaneEndpoint; got != at("10.0.0.2") {
		t.Errorf("after the machine was deleted, the RKECluster has the endpoint %v", got)
	}

	w.edit(func(c *rkev1.RKECluster) { c.Spec.ControlPlaneEndpoint = at("lb.example.com") })
	w.reconcile()
	w.wantServers("lb.example.com", "https://lb.example.com:6443")
	if got := w.infra().Spec.ControlPlaneEndpoint; got != at("lb.example.com") {
		t.Errorf("the user's endpoint became %v", got)
	}
	w.s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint(at("other.example.com"))
	w.wantServers("other.example.com", "https://other.example.com:6443")
}

// TestChosenEndpointIsRecordedFirst: an endpoint that the hub does not know to be its own would go into certificates, so it is written only
// after that was stored.
func TestChosenEndpointIsRecordedFirst(t *testing.T) {
	w := newEndpointWorld(t, "RKECluster")
	if err := w.r.findInfraCluster(t.Context(), w.s); err != nil {
		t.Fatal(err)
	}
	if err := w.r.ensureEndpoint(t.Context(), w.s); err != nil {
		t.Fatal(err)
	}
	if got := w.s.controlPlane.Annotations[rkev1.ChosenEndpointsAnnotation]; got != "10.0.0.1:6443" ||
		!w.infra().Spec.ControlPlaneEndpoint.IsZero() {
		t.Errorf("recorded %q, and the RKECluster has %v", got, w.infra().Spec.ControlPlaneEndpoint)
	}
	// However many follow, that of the Cluster stays known.
	w.s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint(at("10.0.0.1"))
	for _, host := range []string{"fd00::1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9"} {
		w.s.machines[0].inputs.DetectedAddress = host
		w.reconcile()
		if got := w.infra().Spec.ControlPlaneEndpoint; got != at(host) || w.s.endpoint().Host != "" {
			t.Errorf("the RKECluster has %v, and %v counts as a user's", got, w.s.endpoint())
		}
	}
	if got := len(w.s.chosen()); got != maxChosenEndpoints {
		t.Errorf("%d endpoints are recorded: %v", got, w.s.chosen())
	}
}

// TestEndpointOfOthers: where somebody else provides for the endpoint, or the RKECluster is not the cluster's, the hub writes none.
func TestEndpointOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name, infraKind string
		set             func(*endpointWorld)
		infra, plane    rkev1.APIEndpoint
	}{
		{name: "nobody's", infraKind: "RKECluster", infra: at("10.0.0.1")},
		{name: "another provider without one", infraKind: "LabCluster", plane: at("10.0.0.1")},
		{name: "another provider's", infraKind: "LabCluster", set: func(w *endpointWorld) {
			w.s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint(at("lb"))
		}},
		{name: "a user's in the Cluster", infraKind: "RKECluster", set: func(w *endpointWorld) {
			w.s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint(at("127.0.0.1"))
		}},
		{name: "a user's in the RKECluster", infraKind: "RKECluster", infra: at("lb"), set: func(w *endpointWorld) {
			w.edit(func(c *rkev1.RKECluster) { c.Spec.ControlPlaneEndpoint = at("lb") })
		}},
		{name: "a user's in the RKEControlPlane", infraKind: "RKECluster", plane: at("lb"), set: func(w *endpointWorld) {
			w.s.controlPlane.Spec.ControlPlaneEndpoint = at("lb")
		}},
		{name: "no server yet", infraKind: "RKECluster",
			set: func(w *endpointWorld) { w.s.machines[0].state.Progress = rollout.ProgressPending }},
		{name: "an address that is none", infraKind: "RKECluster",
			set: func(w *endpointWorld) { w.s.machines[0].inputs.DetectedAddress = "a,b c" }},
		{name: "an RKECluster of another Cluster", infraKind: "RKECluster", set: func(w *endpointWorld) {
			w.edit(func(c *rkev1.RKECluster) { c.OwnerReferences[0].UID = "other" })
		}},
		{name: "an RKECluster that is paused", infraKind: "RKECluster", set: func(w *endpointWorld) {
			w.edit(func(c *rkev1.RKECluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}},
		{name: "an RKECluster that somebody else manages", infraKind: "RKECluster", set: func(w *endpointWorld) {
			w.edit(func(c *rkev1.RKECluster) { c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: "x"} })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newEndpointWorld(t, tt.infraKind)
			if tt.set != nil {
				tt.set(w)
			}
			w.reconcile()
			if got := w.s.controlPlane.Spec.ControlPlaneEndpoint; got != tt.plane {
				t.Errorf("the RKEControlPlane has %v, want %v", got, tt.plane)
			}
			if tt.infraKind != "RKECluster" {
				return
			}
			if got := w.infra().Spec.ControlPlaneEndpoint; got != tt.infra {
				t.Errorf("the RKECluster has %v, want %v", got, tt.infra)
			}
		})
	}
}

// TestServesAPI: a change that restarts nothing does not make a cluster of one server unavailable.
func TestServesAPI(t *testing.T) {
	probed := rollout.Report{Delivered: plans.Plan{Probes: map[string]plans.Probe{render.APIServerProbe: {}}}}
	unhealthy := probed
	unhealthy.Unhealthy = []string{render.APIServerProbe}
	for name, tc := range map[string]struct {
		progress rollout.Progress
		underway rollout.Change
		report   rollout.Report
		want     bool
	}{
		"healthy":                              {progress: rollout.ProgressApplied, report: probed, want: true},
		"no probe":                             {progress: rollout.ProgressApplied},
		"a label, which it has not applied":    {rollout.ProgressPending, rollout.ChangeMinor, probed, true},
		"a restart":                            {rollout.ProgressApplying, rollout.ChangeRestart, probed, false},
		"the first plan":                       {rollout.ProgressApplying, rollout.ChangeFirst, probed, false},
		"a label, and it was unhealthy before": {rollout.ProgressApplying, rollout.ChangeMinor, unhealthy, false},
	} {
		m := &machine{report: tc.report, state: rollout.Machine{Progress: tc.progress, Underway: tc.underway}}
		if got := m.servesAPI(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
