package clusters

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/timeline"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/plans"
)

// imported creates a Cluster for an existing cluster, and waits for its management Cluster.
func imported(t *testing.T) *provisioningv1.Cluster {
	t.Helper()
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "imported"}}
	env.Create(t, cluster)
	testenv.Until(t, "the management Cluster", func() error {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		if cluster.Status.ClusterName == "" {
			return errors.New("it has no name")
		}
		return nil
	})
	return cluster
}

// hasKubeconfig returns whether a cluster has a kubeconfig Secret.
func hasKubeconfig(t *testing.T, namespace, cluster string) bool {
	t.Helper()
	err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}, &corev1.Secret{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func naming(management string) map[string]string {
	return map[string]string{rkev1.ManagementClusterNameAnnotation: management}
}

// TestManagementNameIsReserved: a tenant with all rights in a namespace cannot set the name of a management Cluster on any object.
func TestManagementNameIsReserved(t *testing.T) {
	t.Parallel()
	victim := imported(t).Status.ClusterName
	namespace := env.Namespace(t)
	tenant := env.Tenant(t, namespace,
		testenv.AllOf(provisioningv1.GroupVersion.Group, rkev1.GroupVersion.Group, clusterv1.GroupVersion.Group))
	meta := func(name string, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}
	}
	mine := &provisioningv1.Cluster{ObjectMeta: meta("mine", nil)}
	plane := &rkev1.RKEControlPlane{ObjectMeta: meta("plane", nil), Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}}
	for _, object := range []client.Object{mine, plane} {
		if err := tenant.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Condition(t, env, mine, provisioningv1.CreatedCondition, metav1.ConditionTrue, "")

	update := func(object client.Object, set func(client.Object)) func() error {
		return func() error {
			changed := object.DeepCopyObject().(client.Object)
			set(changed)
			return tenant.Patch(t.Context(), changed, client.MergeFrom(object))
		}
	}
	create := func(object client.Object) func() error {
		return func() error { return tenant.Create(t.Context(), object) }
	}
	version := rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}
	for name, attempt := range map[string]func() error{
		"Cluster with the annotation":         create(&provisioningv1.Cluster{ObjectMeta: meta("aa", naming(victim))}),
		"RKEControlPlane with the annotation": create(&rkev1.RKEControlPlane{ObjectMeta: meta("bb", naming(victim)), Spec: version}),
		"RKEControlPlane with the field": create(&rkev1.RKEControlPlane{
			ObjectMeta: meta("cc", nil), Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1", ManagementClusterName: victim}}),
		"another name on the Cluster":           update(mine, func(o client.Object) { o.SetAnnotations(naming(victim)) }),
		"no name on the Cluster":                update(mine, func(o client.Object) { o.SetAnnotations(nil) }),
		"the annotation on the RKEControlPlane": update(plane, func(o client.Object) { o.SetAnnotations(naming(victim)) }),
		"the field of the RKEControlPlane": update(plane,
			func(o client.Object) { o.(*rkev1.RKEControlPlane).Spec.ManagementClusterName = victim }),
	} {
		if err := attempt(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the hub sets") {
			t.Errorf("%s: %v", name, err)
		}
	}
	env.Get(t, namespace, "mine", mine)
	if err := update(mine, func(o client.Object) { o.SetLabels(map[string]string{"mine": "too"}) })(); err != nil {
		t.Errorf("a change of something else: %v", err)
	}
	if err := tenant.Delete(t.Context(), mine); err != nil {
		t.Error(err)
	}
	env.Gone(t, mine)
}

// TestForeignManagementCluster: an object with the name of another tenant's management Cluster gives no access to it: no administrator's
// kubeconfig, no registration token, no object in its namespace.
func TestForeignManagementCluster(t *testing.T) {
	t.Parallel()
	owner := imported(t)
	victim := owner.Status.ClusterName
	env.NewAgent(t, victim)
	testenv.Condition(t, env, owner, provisioningv1.ConnectedCondition, metav1.ConditionTrue, "")
	testenv.Until(t, "the kubeconfig of its owner", func() error {
		if !hasKubeconfig(t, owner.Namespace, owner.Name) {
			return errors.New("there is none")
		}
		return nil
	})

	t.Run("imported Cluster", func(t *testing.T) {
		thief := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "thief", Annotations: naming(victim)}}
		env.Create(t, thief)
		testenv.Condition(t, env, thief, provisioningv1.CreatedCondition, metav1.ConditionFalse, "NameTaken")
		// The controller of kubeconfigs has nowhere to say so; a cluster that came later has its kubeconfig when it is done with this one.
		later := imported(t)
		env.NewAgent(t, later.Status.ClusterName)
		testenv.Until(t, "the kubeconfig of a later cluster", func() error {
			if !hasKubeconfig(t, later.Namespace, later.Name) {
				return errors.New("there is none")
			}
			return nil
		})
		if hasKubeconfig(t, thief.Namespace, thief.Name) {
			t.Error("the kubeconfig of another one's cluster was handed out")
		}
		var tokens managementv3.TokenList
		if err := env.Client.List(t.Context(), &tokens); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, token := range tokens.Items {
			if token.Spec.ClusterName == victim {
				n++
			}
		}
		if n != 1 {
			t.Errorf("there are %d tokens of the hub for the cluster of another one, want 1", n)
		}
	})

	t.Run("RKEControlPlane", func(t *testing.T) {
		// This one has a registration token for its agents, too.
		victim := env.NewCluster(t, "made", nil).Cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
		env.NewAgent(t, victim)
		for name, set := range map[string]func(*rkev1.RKEControlPlane){
			"field":      func(c *rkev1.RKEControlPlane) { c.Spec.ManagementClusterName = victim },
			"annotation": func(c *rkev1.RKEControlPlane) { c.Annotations = naming(victim) },
		} {
			w := newControlPlaneCluster(t, "192.0.2.20", set)
			server := w.machine("server", "etcd", "control-plane", "worker")
			server.reportReady("10.9.1.1")
			message := testenv.Condition(t, env, w.plane, rkev1.ReadyCondition, metav1.ConditionFalse, ownership.ReasonManagementClusterNotOwned)
			if !strings.Contains(message, victim) || !strings.Contains(message, "spec.managementClusterName") {
				t.Errorf("%s: Ready says %q", name, message)
			}
			testenv.Condition(t, env, server.bootstrap(), rkev1.IdentityReadyCondition, metav1.ConditionTrue, "")
			if hasKubeconfig(t, w.namespace, "c") {
				t.Errorf("%s: the kubeconfig of another one's cluster was handed out", name)
			}
			if len(server.secret().Data[plans.KeyPlan]) > 0 {
				t.Errorf("%s: a plan was delivered", name)
			}
		}
	})

	t.Run("provisioning log", func(t *testing.T) {
		for _, namespace := range []string{victim, env.Namespace(t)} {
			thief := &provisioningv1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "thief", Annotations: naming(namespace)},
				Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
			}
			env.Create(t, thief)
			testenv.Condition(t, env, thief, provisioningv1.CreatedCondition, metav1.ConditionFalse, "")
			later := env.NewCluster(t, "later", nil)
			testenv.Until(t, "the provisioning log of a later cluster", func() error {
				return provisioningLog(t, later.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation])
			})
			if err := provisioningLog(t, namespace); !apierrors.IsNotFound(err) {
				t.Errorf("the provisioning log in namespace %s: %v", namespace, err)
			}
		}
	})
}

func provisioningLog(t *testing.T, namespace string) error {
	t.Helper()
	log := &corev1.ConfigMap{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: timeline.LogName}, log); err != nil {
		return err
	}
	if log.Data[timeline.LogKey] == "" {
		return fmt.Errorf("it is empty")
	}
	return nil
}
