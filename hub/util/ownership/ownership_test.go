package ownership

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/cause"
)

func reader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, provisioningv1.AddToScheme,
		managementv3.AddToScheme, corev1.AddToScheme)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func ref(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: name}
}

func ownedBy(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: kind, Name: name, UID: uid}
}

func meta(name string, uid types.UID, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, OwnerReferences: owners}
}

// TestCluster is about RKEControlPlanes; RKEClusters differ in the field alone.
func TestCluster(t *testing.T) {
	one := &clusterv1.Cluster{ObjectMeta: meta("one", "u1"), Spec: clusterv1.ClusterSpec{ControlPlaneRef: ref("RKEControlPlane", "plane"),
		InfrastructureRef: ref("RKECluster", "infra")}}
	two := &clusterv1.Cluster{ObjectMeta: meta("two", "u2"), Spec: clusterv1.ClusterSpec{ControlPlaneRef: ref("RKEControlPlane", "other")}}
	foreign := &clusterv1.Cluster{ObjectMeta: meta("foreign", "u3"), Spec: clusterv1.ClusterSpec{
		ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "RKEControlPlane",
			Name: "plane"}}}
	bare := &clusterv1.Cluster{ObjectMeta: meta("bare", "u4")}
	from := reader(t, one, two, foreign, bare)
	plane := func(name string, owners ...metav1.OwnerReference) client.Object {
		return &rkev1.RKEControlPlane{ObjectMeta: meta(name, "p", owners...)}
	}
	for _, tt := range []struct {
		name   string
		object client.Object
		// want is the Cluster, refused a part of the message; both empty for an object that nobody owns yet.
		want, refused string
	}{
		{name: "its own", object: plane("plane", ownedBy("Cluster", "one", "u1")), want: "one"},
		{name: "an older version of the API", object: plane("plane", metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta1",
			Kind: "Cluster", Name: "one", UID: "u1"}), want: "one"},
		{name: "nobody's", object: plane("plane")},
		{name: "that of a Cluster that is gone", object: plane("plane", ownedBy("Cluster", "gone", "u1"))},
		{name: "that of another kind of Cluster", object: plane("plane", metav1.OwnerReference{APIVersion: "provisioning.cattle.io/v1",
			Kind: "Cluster", Name: "one", UID: "u1"})},
		{name: "another one's", object: plane("thief", ownedBy("Cluster", "one", "u1")),
			refused: "spec.controlPlaneRef names RKEControlPlane plane"},
		{name: "a Cluster of another provider", object: plane("plane", ownedBy("Cluster", "foreign", "u3")), refused: "spec.controlPlaneRef"},
		{name: "a Cluster without control plane", object: plane("plane", ownedBy("Cluster", "bare", "u4")),
			refused: "spec.controlPlaneRef names nothing"},
		{name: "the UID of an earlier Cluster", object: plane("plane", ownedBy("Cluster", "one", "u0")),
			refused: "with UID u0, but its UID is u1"},
		{name: "no UID", object: plane("plane", ownedBy("Cluster", "one", "")), refused: "UID"},
		{name: "somebody has added another owner", object: plane("plane", ownedBy("Cluster", "two", "u2"), ownedBy("Cluster", "one", "u1")),
			want: "one"},
		{name: "the same owner twice", object: plane("plane", ownedBy("Cluster", "one", "u0"), ownedBy("Cluster", "one", "u1")), want: "one"},
		{name: "infrastructure", object: &rkev1.RKECluster{ObjectMeta: meta("infra", "i", ownedBy("Cluster", "one", "u1"))}, want: "one"},
		{name: "another one's infrastructure", object: &rkev1.RKECluster{ObjectMeta: meta("plane", "i", ownedBy("Cluster", "one", "u1"))},
			refused: "spec.infrastructureRef names RKECluster infra"},
		{name: "a kind that Clusters do not own", object: &rkev1.RKEBootstrap{ObjectMeta: meta("plane", "i", ownedBy("Cluster", "one", "u1"))},
			refused: "is not owned by"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster, refusal, err := Cluster(t.Context(), from, tt.object)
			if err != nil {
				t.Fatal(err)
			}
			checkOwner(t, cluster != nil, func() string { return cluster.Name }, refusal, tt.want, tt.refused)
		})
	}
}

func checkOwner(t *testing.T, found bool, name func() string, refusal *cause.Cause, want, refused string) {
	t.Helper()
	if found != (want != "") || found && name() != want {
		t.Errorf("the owner is found: %t, want %q", found, want)
	}
	switch {
	case (refusal != nil) != (refused != ""):
		t.Errorf("refused: %+v, want %q", refusal, refused)
	case refusal != nil && (!strings.Contains(refusal.Message, refused) || refusal.Reason != ReasonOwnerMismatch):
		t.Errorf("refused: %+v, want %q in it", refusal, refused)
	}
}

func TestMachine(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: meta("m", "u1"), Spec: clusterv1.MachineSpec{
		Bootstrap: clusterv1.Bootstrap{ConfigRef: ref("RKEBootstrap", "b")}, InfrastructureRef: ref("CustomMachine", "c")}}
	from := reader(t, machine)
	owner, stale := ownedBy("Machine", "m", "u1"), ownedBy("Machine", "m", "u0")
	for _, tt := range []struct {
		name          string
		object        client.Object
		want, refused string
	}{
		{name: "its own", object: &rkev1.RKEBootstrap{ObjectMeta: meta("b", "x", owner)}, want: "m"},
		{name: "still a MachineSet's", object: &rkev1.RKEBootstrap{ObjectMeta: meta("b", "x", ownedBy("MachineSet", "m", "u1"))}},
		{name: "another one's", object: &rkev1.RKEBootstrap{ObjectMeta: meta("thief", "x", owner)},
			refused: "spec.bootstrap.configRef names RKEBootstrap b"},
		{name: "an earlier Machine's", object: &rkev1.RKEBootstrap{ObjectMeta: meta("b", "x", stale)}, refused: "with UID u0"},
		{name: "custom machine", object: &rkev1.CustomMachine{ObjectMeta: meta("c", "x", owner)}, want: "m"},
		{name: "another one's custom machine", object: &rkev1.CustomMachine{ObjectMeta: meta("b", "x", owner)},
			refused: "spec.infrastructureRef names CustomMachine c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, refusal, err := Machine(t.Context(), from, tt.object)
			if err != nil {
				t.Fatal(err)
			}
			checkOwner(t, got != nil, func() string { return got.Name }, refusal, tt.want, tt.refused)
		})
	}
}

// TestPlanOwners: labels of a plan Secret prove nothing.
func TestPlanOwners(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: meta("m", "u1"),
		Spec: clusterv1.MachineSpec{Bootstrap: clusterv1.Bootstrap{ConfigRef: ref("RKEBootstrap", "b")}}}
	from := reader(t, machine,
		&rkev1.RKEBootstrap{ObjectMeta: meta("b", "ub", ownedBy("Machine", "m", "u1"))},
		&rkev1.RKEBootstrap{ObjectMeta: meta("thief", "ut", ownedBy("Machine", "m", "u1"))})
	controller := func(name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: rkev1.GroupVersion.String(), Kind: "RKEBootstrap", Name: name, UID: uid,
			Controller: ptr.To(true)}
	}
	labels := map[string]string{rkev1.MachineNameLabel: "m", rkev1.BootstrapNameLabel: "b"}
	for _, tt := range []struct {
		name               string
		secret             metav1.ObjectMeta
		bootstrap, machine bool
	}{
		{name: "its own", secret: meta(rkev1.PlanSecretName("b"), "s", controller("b", "ub")), bootstrap: true, machine: true},
		{name: "by label alone", secret: meta(rkev1.PlanSecretName("b"), "s")},
		{name: "an earlier RKEBootstrap's", secret: meta(rkev1.PlanSecretName("b"), "s", controller("b", "u0"))},
		{name: "one that is gone", secret: meta(rkev1.PlanSecretName("gone"), "s", controller("gone", "ub"))},
		{name: "a second Secret", secret: meta("second", "s", controller("b", "ub"))},
		{name: "of an RKEBootstrap that has no Machine", secret: meta(rkev1.PlanSecretName("thief"), "s", controller("thief", "ut")),
			bootstrap: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.secret.Labels = labels
			bootstrap, machine, err := PlanOwners(t.Context(), from, &corev1.Secret{ObjectMeta: tt.secret})
			if err != nil || (bootstrap != nil) != tt.bootstrap || (machine != nil) != tt.machine {
				t.Errorf("RKEBootstrap %v, Machine %v, %v", bootstrap != nil, machine != nil, err)
			}
		})
	}
}

func TestManagementCluster(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "one"}
	from := reader(t,
		&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-mine", Labels: Labels(key)}},
		&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-theirs",
			Labels: Labels(client.ObjectKey{Namespace: "other", Name: "one"})}},
		&managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-bare"}})
	for name, reason := range map[string]string{
		"c-m-mine": "", "c-m-theirs": ReasonManagementClusterNotOwned, "c-m-bare": ReasonManagementClusterNotOwned,
		"c-m-missing": ReasonWaitingForManagementCluster,
	} {
		management, refusal, err := ManagementCluster(t.Context(), from, key, name)
		if err != nil {
			t.Fatal(err)
		}
		if (management != nil) != (reason == "") || (refusal != nil) != (reason != "") || refusal != nil && refusal.Reason != reason {
			t.Errorf("%s: %v, refused %+v", name, management != nil, refusal)
		}
	}
	if management, refusal, err := ManagementCluster(t.Context(), from, client.ObjectKey{}, "c-m-bare"); err != nil || management != nil ||
		refusal == nil {
		t.Errorf("a cluster without a name: %v, refused %+v (%v)", management != nil, refusal, err)
	}
}

// TestClusterOf: both sides have to name each other.
func TestClusterOf(t *testing.T) {
	named := func(name string) map[string]string {
		return map[string]string{rkev1.ManagementClusterNameAnnotation: name}
	}
	prov := func(name, management string) *provisioningv1.Cluster {
		return &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: named(management)}}
	}
	capi := func(name, plane string) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: meta(name, types.UID(name)),
			Spec: clusterv1.ClusterSpec{ControlPlaneRef: ref("RKEControlPlane", plane)}}
	}
	plane := &rkev1.RKEControlPlane{ObjectMeta: meta("plane", "p", ownedBy("Cluster", "plain", "plain"))}
	plane.Annotations = named("c-m-plain")
	shared := &rkev1.RKEControlPlane{ObjectMeta: meta("shared", "s", ownedBy("Cluster", "shared", "shared"))}
	shared.Annotations = named("c-m-shared")
	made := capi("made", "made")
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "provisioning.cattle.io/v1", Kind: "Cluster", Name: "made"}}
	madePlane := &rkev1.RKEControlPlane{ObjectMeta: meta("made", "m", ownedBy("Cluster", "made", "made"))}
	madePlane.Spec.ManagementClusterName = "c-m-made"
	from := reader(t, prov("shared", "c-m-other"), capi("shared", "shared"), shared, prov("made", ""), made, madePlane, prov("one", "c-m-one"),
		prov("mixed", "c-m-mixed"), capi("mixed", "plane"), capi("plain", "plane"), plane,
		capi("usurper", "plane"), capi("bare", "none"))
	for _, tt := range []struct {
		name, management, cluster string
		found                     bool
	}{
		{name: "provisioned", management: "c-m-one", cluster: "one", found: true},
		{name: "left behind by an earlier Cluster of the name", management: "c-m-left", cluster: "one"},
		{name: "written for Cluster API", management: "c-m-plain", cluster: "plain", found: true},
		{name: "left behind by an earlier one", management: "c-m-left", cluster: "plain"},
		{name: "a Cluster that refers to the control plane of another one", management: "c-m-plain", cluster: "usurper"},
		{name: "a Cluster without control plane", management: "c-m-plain", cluster: "bare"},
		{name: "both kinds of Clusters", management: "c-m-plain", cluster: "mixed"},
		{name: "written for Cluster API, with a later Cluster of the name", management: "c-m-shared", cluster: "shared", found: true},
		{name: "provisioned by a Cluster that does not name it any more", management: "c-m-made", cluster: "made"},
		{name: "gone", management: "c-m-gone", cluster: "gone"},
		{name: "no labels", management: "c-m-one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: tt.management,
				Labels: Labels(client.ObjectKey{Namespace: "ns", Name: tt.cluster})}}
			got, err := ClusterOf(t.Context(), from, management)
			if err != nil || (got != nil) != tt.found || got != nil && got.Name != tt.cluster {
				t.Errorf("got %+v (%v)", got, err)
			}
		})
	}
}

// TestClusterAPI: the name alone does not make a Cluster of Cluster API that of a Cluster.
func TestClusterAPI(t *testing.T) {
	made := &clusterv1.Cluster{ObjectMeta: meta("made", "u1", metav1.OwnerReference{APIVersion: "provisioning.cattle.io/v1", Kind: "Cluster",
		Name: "made", UID: "before-a-move"})}
	from := reader(t, made, &clusterv1.Cluster{ObjectMeta: meta("native", "u2")},
		&clusterv1.Cluster{ObjectMeta: meta("other", "u3", ownedBy("Cluster", "other", "u4"))})
	rke := provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}
	for _, tt := range []struct {
		name         string
		spec         provisioningv1.ClusterSpec
		found, taken bool
	}{
		{name: "made", spec: rke, found: true},
		{name: "native", spec: rke, taken: true},
		{name: "other", spec: rke, taken: true},
		{name: "missing", spec: rke},
		{name: "native"}, // an imported Cluster has none
	} {
		capi, taken, err := ClusterAPI(t.Context(), from, &provisioningv1.Cluster{ObjectMeta: meta(tt.name, "p"), Spec: tt.spec})
		if err != nil || (capi != nil) != tt.found || (taken != nil) != tt.taken || taken != nil && taken.Reason != ReasonNameTaken {
			t.Errorf("%s: found %t, taken %+v, %v", tt.name, capi != nil, taken, err)
		}
	}
}
