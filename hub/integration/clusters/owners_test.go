package clusters

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/plans"
)

// claiming returns metadata with an owner reference and labels as Cluster API writes them.
func claiming(owner client.Object, kind, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: owner.GetNamespace(), Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner.GetName(),
			UID: owner.GetUID()}},
	}
}

// refused waits until a condition of an object says that it does not belong to the owner that it names.
func refused[T interface {
	client.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}](t *testing.T, object T, conditionType, field string) {
	t.Helper()
	message := testenv.Condition(t, env, object, conditionType, metav1.ConditionFalse, ownership.ReasonOwnerMismatch)
	if !strings.Contains(message, field) || !strings.Contains(message, "metadata.ownerReferences") {
		t.Errorf("%T: %s says %q, want %s in it", object, conditionType, message, field)
	}
}

func secretsIn(t *testing.T, namespace string) (names []string) {
	t.Helper()
	var list corev1.SecretList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// TestForeignOwner: a tenant who may write the kinds of rke.cattle.io in a namespace, and nothing else, gets no access to the machines of a
// cluster there with objects that claim to be its own.
func TestForeignOwner(t *testing.T) {
	t.Parallel()
	w := newControlPlaneCluster(t, "192.0.2.30")
	server := w.machine("server", "etcd", "control-plane", "worker")
	server.reportReady("10.9.2.1")
	server.awaitConfig()
	server.reportApplied()
	testenv.Condition(t, env, w.plane, rkev1.UpdatedCondition, metav1.ConditionTrue, "")
	w.awaitKubeconfigServer("https://192.0.2.30:6443")
	env.Get(t, w.namespace, "c", w.cluster)
	env.Get(t, w.namespace, "server", server.machine)
	before := secretsIn(t, w.namespace)
	tenant := env.Tenant(t, w.namespace, testenv.AllOf(rkev1.GroupVersion.Group))
	create := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			if err := tenant.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}

	plane := &rkev1.RKEControlPlane{ObjectMeta: claiming(w.cluster, "Cluster", "thief"),
		Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.35.6+k3s1", ClusterName: "c"}}
	stray := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "stray"},
		Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.35.6+k3s1", ClusterName: "c"}}
	infrastructure := &rkev1.RKECluster{ObjectMeta: claiming(w.cluster, "Cluster", "thief")}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: claiming(server.machine, "Machine", "thief"), Spec: rkev1.RKEBootstrapSpec{ClusterName: "c"}}
	custom := &rkev1.CustomMachine{ObjectMeta: claiming(server.machine, "Machine", "thief")}
	create(plane, stray, infrastructure, bootstrap, custom)
	refused(t, plane, rkev1.ReadyCondition, "spec.controlPlaneRef")
	refused(t, infrastructure, rkev1.ReadyCondition, "spec.infrastructureRef")
	refused(t, bootstrap, rkev1.IdentityReadyCondition, "spec.bootstrap.configRef")
	refused(t, custom, rkev1.ReadyCondition, "spec.infrastructureRef")
	testenv.Condition(t, env, stray, rkev1.ReadyCondition, metav1.ConditionUnknown, "WaitingForCluster")

	for _, object := range []client.Object{plane, stray, infrastructure, bootstrap, custom} {
		if err := tenant.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		env.Gone(t, object)
	}
	// The machine's own Secrets may still be on their way.
	after := secretsIn(t, w.namespace)
	for _, name := range before {
		if !slices.Contains(after, name) {
			t.Errorf("Secret %s is gone; there are %v", name, after)
		}
	}
	for _, name := range after {
		if strings.Contains(name, "thief") || strings.Contains(name, "stray") {
			t.Errorf("Secret %s was created", name)
		}
	}
	env.Get(t, w.namespace, "server", server.machine)
	if !server.machine.DeletionTimestamp.IsZero() {
		t.Error("the Machine of another one is being deleted")
	}
	if got := plans.State(server.secret().Data[plans.KeyPlanState]); got != plans.StateSucceeded {
		t.Errorf("the plan of the machine is %s: another one was delivered", got)
	}
}
