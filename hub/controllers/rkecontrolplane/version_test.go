package rkecontrolplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestSetInitialVersion: a Machine of a MachineSet gets the version of the RKEControlPlane of its own Cluster, and nothing else changes it.
func TestSetInitialVersion(t *testing.T) {
	const namespace, desired = "fleet", "v1.36.3+k3s1"
	yes := true
	newCluster := func(name string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-one"}}
		c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane", Name: name,
		}
		return c
	}
	newControlPlane := func(name, version string) *rkev1.RKEControlPlane {
		cp := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: "uid-one", Controller: &yes},
		}}}
		cp.Spec.KubernetesVersion = version
		return cp
	}
	external := newCluster("external")
	external.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "other.example.com", Kind: "Other", Name: "external"}
	foreign := newControlPlane("foreign", desired)
	foreign.OwnerReferences[0].UID = "another"
	away := errors.New("the API does not answer")
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)).WithObjects(
		newCluster("one"), newControlPlane("one", desired), external, newCluster("foreign"), foreign,
		newCluster("invalid"), newControlPlane("invalid", "latest"), newCluster("early"),
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if key.Name == "away" {
				return away
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	for name, tc := range map[string]struct {
		cluster, owner, version, want string
	}{
		"of a MachineSet":                    {cluster: "one", owner: "MachineSet", want: desired},
		"of nobody":                          {cluster: "one"},
		"with a version":                     {cluster: "one", owner: "MachineSet", version: "v1.35.0", want: "v1.35.0"},
		"another control plane":              {cluster: "external", owner: "MachineSet"},
		"the control plane is another's":     {cluster: "foreign", owner: "MachineSet"},
		"a version Cluster API would refuse": {cluster: "invalid", owner: "MachineSet"},
		"no control plane yet":               {cluster: "early", owner: "MachineSet"},
		"no cluster":                         {cluster: "none", owner: "MachineSet"},
		"the API does not answer":            {cluster: "away", owner: "MachineSet"},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
		m.Spec.ClusterName, m.Spec.Version = tc.cluster, tc.version
		if tc.owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: tc.owner, Name: "set", Controller: &yes}}
		}
		SetInitialVersion(t.Context(), c, m)
		if m.Spec.Version != tc.want {
			t.Errorf("%s: version %q, want %q", name, m.Spec.Version, tc.want)
		}
	}
}

// TestVersionGoesBack: an earlier minor version than servers run is warned of, unless a restore brings back the data of its time.
func TestVersionGoesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		desired, runs string
		change        func(*scope)
		warns         bool
	}{
		"an earlier minor version": {"v1.35.6+k3s1", "v1.36.3+k3s1", nil, true},
		"an earlier patch":         {"v1.36.1+k3s1", "v1.36.3+k3s1", nil, false},
		"a later version":          {"v1.36.3+k3s1", "v1.35.6+k3s1", nil, false},
		"not known yet":            {"v1.35.6+k3s1", "", nil, false},
		"a worker":                 {"v1.35.6+k3s1", "v1.36.3+k3s1", func(s *scope) { s.machines[1].state.Etcd = false }, false},
		"a restore": {"v1.35.6+k3s1", "v1.36.3+k3s1", func(s *scope) {
			s.operation = &operationv1.ETCDSnapshotRestore{}
		}, false},
		"a restore that did not end": {"v1.35.6+k3s1", "v1.36.3+k3s1", func(s *scope) {
			s.controlPlane.Spec.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "s", Generation: 1}
			s.controlPlane.Annotations = map[string]string{rkev1.UnrestoredConfigurationAnnotation: "s/1"}
		}, false},
	} {
		s := scopeWithMachines()
		s.controlPlane.Spec.KubernetesVersion = tc.desired
		s.machines[1].state.Etcd, s.machines[1].state.Version = true, tc.runs
		if tc.change != nil {
			tc.change(s)
		}
		got := s.goesBack()
		if len(got) > 0 != tc.warns || tc.warns && (got.Err() != nil || !strings.Contains(got[0].String(), "v1.36.3+k3s1 on b")) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestVersionSkips: a version that is more than one minor version later than a server runs is warned of, as when another upgrade has not
// ended; unless a restore brings back the data of its time.
func TestVersionSkips(t *testing.T) {
	for name, tc := range map[string]struct {
		desired, runs string
		change        func(*scope)
		warns         bool
	}{
		"a minor version is left out": {"v1.36.3+rke2r1", "v1.34.2+rke2r1", nil, true},
		"several are left out":        {"v1.36.3+rke2r1", "v1.32.9+rke2r2", nil, true},
		"the next minor version":      {"v1.36.3+rke2r1", "v1.35.6+rke2r1", nil, false},
		"a pre-release of the next":   {"v1.36.0-rc1+rke2r1", "v1.35.6+rke2r1", nil, false},
		"a pre-release runs":          {"v1.36.3+rke2r1", "v1.35.0-rc2+rke2r1", nil, false},
		"a later patch":               {"v1.36.3+rke2r1", "v1.36.1+rke2r1", nil, false},
		"an earlier minor version":    {"v1.34.2+rke2r1", "v1.36.3+rke2r1", nil, false},
		"not known yet":               {"v1.36.3+rke2r1", "", nil, false},
		"a worker":                    {"v1.36.3+rke2r1", "v1.34.2+rke2r1", func(s *scope) { s.machines[1].state.Etcd = false }, false},
		"a server that leaves":        {"v1.36.3+rke2r1", "v1.34.2+rke2r1", func(s *scope) { s.machines[1].state.Deleting = true }, false},
		"a restore": {"v1.36.3+rke2r1", "v1.34.2+rke2r1", func(s *scope) {
			s.operation = &operationv1.ETCDSnapshotRestore{}
		}, false},
	} {
		s := scopeWithMachines()
		s.controlPlane.Spec.KubernetesVersion = tc.desired
		s.machines[1].state.Etcd, s.machines[1].state.Version = true, tc.runs
		if tc.change != nil {
			tc.change(s)
		}
		got := s.skipsMinor()
		if len(got) > 0 != tc.warns || tc.warns && (got.Err() != nil || !strings.Contains(got[0].String(), tc.runs+" on b")) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	s := scopeWithMachines()
	s.controlPlane.Spec.KubernetesVersion = "v1.36.3+rke2r1"
	s.machines[1].state.Etcd, s.machines[1].state.Version = true, "v1.33.4+rke2r1"
	const want = `spec.kubernetesVersion: "v1.36.3+rke2r1" skips a minor version after v1.33.4+rke2r1 on b, which Kubernetes does not ` +
		"support for servers: upgrade to a release of v1.34 first"
	if got := s.skipsMinor(); len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
