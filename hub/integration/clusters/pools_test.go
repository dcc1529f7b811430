package clusters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// newPooled returns a Cluster of the provider Test with a pool of workers and a pool of servers.
func newPooled(namespace, name string) *provisioningv1.Cluster {
	ref := func() *provisioningv1.ObjectReference {
		return &provisioningv1.ObjectReference{APIVersion: infraGroup + "/v1beta2", Kind: "TestMachineTemplate", Name: "machines"}
	}
	return &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: provisioningv1.ClusterSpec{
			KubernetesVersion: "v1.36.3+k3s1",
			RKEConfig: &provisioningv1.RKEConfig{
				InfrastructureRef: &provisioningv1.ObjectReference{APIVersion: infraGroup + "/v1beta2", Kind: "TestCluster", Name: name},
				MachinePools: []provisioningv1.RKEMachinePool{
					{Name: "servers", EtcdRole: true, ControlPlaneRole: true, Quantity: ptr.To[int32](1), MachineConfigRef: ref()},
					{Name: "workers", WorkerRole: true, Quantity: ptr.To[int32](2), MachineConfigRef: ref()},
				},
			},
		},
	}
}

// pooled creates that Cluster and waits until its machines have hosts.
func pooled(t *testing.T, name string) *provisioningv1.Cluster {
	t.Helper()
	namespace := env.Namespace(t)
	env.Create(t, providerObject("TestCluster", namespace, name, map[string]any{"region": "here"}),
		machineTemplate(namespace, "machines", "small"))
	cluster := newPooled(namespace, name)
	env.Create(t, cluster)
	waitForMachines(t, cluster, 3)
	env.Get(t, namespace, name, cluster)
	return cluster
}

func deployment(t *testing.T, cluster *provisioningv1.Cluster, pool string) *clusterv1.MachineDeployment {
	t.Helper()
	md := &clusterv1.MachineDeployment{}
	env.Get(t, cluster.Namespace, cluster.Name+"-"+pool, md)
	return md
}

func quantity(t *testing.T, cluster *provisioningv1.Cluster, want int32) {
	t.Helper()
	testenv.Until(t, fmt.Sprintf("the pool and its MachineDeployment to have %d", want), func() error {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		md := deployment(t, cluster, "workers")
		got := ptr.Deref(cluster.Spec.RKEConfig.MachinePools[1].Quantity, -1)
		if got != want || *md.Spec.Replicas != want || md.Annotations[rkev1.AppliedQuantityAnnotation] != fmt.Sprint(want) {
			return fmt.Errorf("the pool has %d, the MachineDeployment %d, and %v", got, *md.Spec.Replicas, md.Annotations)
		}
		return nil
	})
}

// TestScale: the pool's quantity and its MachineDeployment's replicas follow each other.
func TestScale(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "scale")
	scale := func(replicas int32) {
		t.Helper()
		testenv.OnConflict(t, "scaling the pool", func() error {
			return env.Client.SubResource("scale").Update(t.Context(), deployment(t, cluster, "workers"),
				client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}))
		})
	}
	scale(4)
	quantity(t, cluster, 4)
	waitForMachines(t, cluster, 5)
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].Quantity = ptr.To[int32](1) })
	quantity(t, cluster, 1)
	waitForMachines(t, cluster, 2)
	scale(0)
	quantity(t, cluster, 0)
	waitForMachines(t, cluster, 1)
	if got := *cluster.Spec.RKEConfig.MachinePools[0].Quantity; got != 1 {
		t.Errorf("the other pool has %d", got)
	}
}

// TestInPlaceChange: changes that do not concern the machine itself reach existing machines.
func TestInPlaceChange(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "inplace")
	before := waitForMachines(t, cluster, 3)
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		p := &c.Spec.RKEConfig.MachinePools[1]
		p.Labels = map[string]string{"team": "a"}
		p.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		p.DrainBeforeDelete = true
		p.UnhealthyNodeTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: 5 * time.Minute}}
	})
	testenv.Until(t, "the change to reach the machines", func() error {
		for _, machine := range waitForMachines(t, cluster, 3) {
			if machine.Labels[rkev1.MachinePoolNameLabel] != "workers" {
				continue
			}
			bootstrap := &rkev1.RKEBootstrap{}
			env.Get(t, cluster.Namespace, machine.Spec.Bootstrap.ConfigRef.Name, bootstrap)
			for what, o := range map[string]client.Object{"Machine": &machine, "RKEBootstrap": bootstrap} {
				annotations := o.GetAnnotations()
				_, excluded := annotations[clusterv1.ExcludeNodeDrainingAnnotation]
				if o.GetLabels()["team"] != "a" || annotations[rkev1.LabelsAnnotation] != `{"team":"a"}` || annotations[rkev1.TaintsAnnotation] == "" ||
					excluded {
					return fmt.Errorf("%s has %v and %v", what, o.GetLabels(), annotations)
				}
			}
		}
		return nil
	})
	after := waitForMachines(t, cluster, 3)
	if fmt.Sprint(names(before)) != fmt.Sprint(names(after)) {
		t.Errorf("machines were replaced: %v, then %v", names(before), names(after))
	}
	check := &clusterv1.MachineHealthCheck{}
	testenv.Until(t, "the MachineHealthCheck", func() error {
		return env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "inplace-workers"}, check)
	})
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].UnhealthyNodeTimeout = nil })
	env.Gone(t, check)
}

func names(machines []clusterv1.Machine) []string {
	var out []string
	for _, machine := range machines {
		out = append(out, machine.Name)
	}
	return out
}

// templates lists the copies of machine templates, and the templates of RKEBootstraps, of a pool.
func templates(t *testing.T, cluster *provisioningv1.Cluster, pool string) []string {
	t.Helper()
	machine, bootstrap := &unstructured.UnstructuredList{}, &rkev1.RKEBootstrapTemplateList{}
	machine.SetGroupVersionKind(machineTemplate("", "", "").GroupVersionKind())
	var out []string
	for _, list := range []client.ObjectList{machine, bootstrap} {
		if err := env.Client.List(t.Context(), list, client.InNamespace(cluster.Namespace),
			client.MatchingLabels{rkev1.MachinePoolNameLabel: pool}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range machine.Items {
		out = append(out, machine.Items[i].GetName())
	}
	for i := range bootstrap.Items {
		out = append(out, "RKEBootstrapTemplate "+bootstrap.Items[i].Name)
	}
	return out
}

// TestTemplateChange: a change of the template's spec replaces the machines of the pool, and the old copy is deleted; a change of its
// labels has no effect.
func TestTemplateChange(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "roll")
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachinePools[1].RollingUpdate = &provisioningv1.RKEMachinePoolRollingUpdate{
			MaxUnavailable: ptr.To(intstr.FromString("100%"))}
		c.Spec.RKEConfig.MachinePools[0].MachineConfigRef.Name = "others"
	})
	message := testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionFalse, "MachineTemplateNotFound")
	if want := `spec.rkeConfig.machinePools[servers].machineConfigRef: TestMachineTemplate "others" does not exist`; !strings.Contains(message,
		want) {
		t.Errorf("RKECluster says %q, want %q", message, want)
	}
	old := deployment(t, cluster, "workers").Spec.Template.Spec.InfrastructureRef.Name
	before := templates(t, cluster, "workers")
	source := machineTemplate(cluster.Namespace, "machines", "")
	env.Get(t, cluster.Namespace, "machines", source)
	testenv.Change(t, env, source, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) })
	testenv.Change(t, env, source, func(o *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(o.Object, "large", "spec", "template", "spec", "size"); err != nil {
			t.Fatal(err)
		}
	})
	testenv.Until(t, "a new copy", func() error {
		if name := deployment(t, cluster, "workers").Spec.Template.Spec.InfrastructureRef.Name; name == old {
			return fmt.Errorf("it is still %s", name)
		}
		return nil
	})
	waitForMachines(t, cluster, 3)
	// Cluster API removes the old MachineSet once the new machines have Nodes, which they never get here.
	var sets clusterv1.MachineSetList
	if err := env.Client.List(t.Context(), &sets, client.InNamespace(cluster.Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		if sets.Items[i].Spec.Template.Spec.InfrastructureRef.Name == old {
			if err := client.IgnoreNotFound(env.Client.Delete(t.Context(), &sets.Items[i])); err != nil {
				t.Fatal(err)
			}
		}
	}
	env.Gone(t, machineTemplate(cluster.Namespace, old, ""))
	testenv.Until(t, "the old templates and machines to go", func() error {
		if after := templates(t, cluster, "workers"); len(after) != 2 || fmt.Sprint(after) == fmt.Sprint(before) {
			return fmt.Errorf("templates were %v and are %v", before, after)
		}
		for _, machine := range waitForMachines(t, cluster, 3) {
			if machine.Labels[rkev1.MachinePoolNameLabel] != "workers" {
				continue
			}
			host := providerObject("TestMachine", cluster.Namespace, machine.Spec.InfrastructureRef.Name, nil)
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
				return err
			}
			if size, _, _ := unstructured.NestedString(host.Object, "spec", "size"); size != "large" {
				return fmt.Errorf("machine %s has the size %q", machine.Name, size)
			}
		}
		return nil
	})
	// The pool whose template is missing has its machines and can be scaled.
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[0].Quantity = ptr.To[int32](2) })
	waitForMachines(t, cluster, 4)
	env.Create(t, machineTemplate(cluster.Namespace, "others", "small"))
	testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionTrue, "")
}

// TestPoolRemoval: a pool is removed with its machines and all of its objects, and the other pools do not change.
func TestPoolRemoval(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "removed")
	md := deployment(t, cluster, "workers")
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools = c.Spec.RKEConfig.MachinePools[:1] })
	env.Gone(t, md)
	waitForMachines(t, cluster, 1)
	testenv.Until(t, "the templates of the pool to go", func() error {
		if left := templates(t, cluster, "workers"); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		return nil
	})
	if left := templates(t, cluster, "servers"); len(left) != 2 {
		t.Errorf("the other pool has %v", left)
	}
}

// TestPoolsNoWrites: a converged cluster with pools is not written again, whatever else happens in the hub.
func TestPoolsNoWrites(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "rest")
	versions := func() string {
		env.Get(t, cluster.Namespace, cluster.Name, cluster)
		out := "Cluster " + cluster.ResourceVersion
		for _, pool := range []string{"servers", "workers"} {
			md := deployment(t, cluster, pool)
			out += fmt.Sprintf(" %s %d %s", pool, md.Generation, templates(t, cluster, pool))
		}
		return out
	}
	last, since := versions(), time.Now()
	// Until its machines have come up, the Cluster reports how far they are.
	for deadline := time.Now().Add(3 * time.Minute); time.Since(since) < 3*time.Second; time.Sleep(200 * time.Millisecond) {
		if now := versions(); now != last {
			if last, since = now, time.Now(); since.After(deadline) {
				t.Fatalf("it never rests: %s", now)
			}
		}
	}
}

// TestInvalidPools: a pool that cannot be created has a message that says why, and is created once that is corrected.
func TestInvalidPools(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	cluster := newPooled(namespace, "problems")
	cluster.Spec.RKEConfig.MachinePools[0].MachineConfigRef.Kind = "LateMachineTemplate"
	cluster.Spec.RKEConfig.MachinePools[1].Taints = []corev1.Taint{{Key: "k", Effect: "Go"}}
	env.Create(t, cluster)
	says := func(reason string, parts ...string) {
		t.Helper()
		message := testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionFalse, reason)
		testenv.Until(t, fmt.Sprintf("RKECluster to say %q", parts), func() error {
			for _, part := range parts {
				if !strings.Contains(message, part) {
					message = testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionFalse, "")
					return fmt.Errorf("it says %q", message)
				}
			}
			return nil
		})
	}
	says("InfrastructureNotFound", `spec.rkeConfig.infrastructureRef: TestCluster "problems" does not exist`,
		"spec.rkeConfig.machinePools[servers].machineConfigRef: kind LateMachineTemplate.infrastructure.cluster.x-k8s.io is not installed",
		`spec.rkeConfig.machinePools[workers].taints[0].effect is "Go"`)
	testenv.Condition(t, env, cluster, "MachinePoolsReady", metav1.ConditionFalse, "MachineTemplateKindNotInstalled")

	env.Create(t, providerObject("TestCluster", namespace, "problems", map[string]any{}), machineTemplate(namespace, "machines", "small"))
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].Taints = nil })
	testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionFalse, "MachineTemplateKindNotInstalled")
	waitForMachines(t, cluster, 2)

	installLate(t)
	says("MachineTemplateNotFound", "spec.rkeConfig.machinePools[servers].machineConfigRef: LateMachineTemplate")
	late := machineTemplate(namespace, "machines", "small")
	late.SetKind("LateMachineTemplate")
	env.Create(t, late)
	testenv.Condition(t, env, cluster, "RKECluster", metav1.ConditionTrue, "")
	deployment(t, cluster, "servers")
}

// TestNameTaken: a MachineDeployment of another owner is not adopted.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	first, second := newPooled(namespace, "one"), newPooled(namespace, "one-b")
	first.Spec.RKEConfig.MachinePools[1].Name = "b-c"
	second.Spec.RKEConfig.MachinePools[1].Name = "c"
	env.Create(t, providerObject("TestCluster", namespace, "one", map[string]any{}),
		providerObject("TestCluster", namespace, "one-b", map[string]any{}),
		machineTemplate(namespace, "machines", "small"), first)
	testenv.Condition(t, env, first, "RKECluster", metav1.ConditionTrue, "")
	env.Create(t, second)
	message := testenv.Condition(t, env, second, "RKECluster", metav1.ConditionFalse, "NameTaken")
	if !strings.Contains(message, "give the pool another name") {
		t.Errorf("RKECluster says %q", message)
	}
	env.Delete(t, second)
	env.Gone(t, second)
	if md := deployment(t, first, "b-c"); !md.DeletionTimestamp.IsZero() {
		t.Error("the MachineDeployment of the other Cluster was deleted")
	}
}

// TestDeletionIncomplete deletes Clusters with pools that were provisioned only in part.
func TestDeletionIncomplete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		make func(t *testing.T, namespace string) []client.Object
	}{
		{name: "no infrastructure", make: func(_ *testing.T, namespace string) []client.Object {
			return []client.Object{machineTemplate(namespace, "machines", "small")}
		}},
		{name: "no template", make: func(_ *testing.T, namespace string) []client.Object {
			return []client.Object{providerObject("TestCluster", namespace, "half", map[string]any{})}
		}},
		{name: "nothing at all", make: func(*testing.T, string) []client.Object { return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			namespace := env.Namespace(t)
			users := tt.make(t, namespace)
			env.Create(t, users...)
			cluster := newPooled(namespace, "half")
			env.Create(t, cluster)
			testenv.Until(t, "the pools to be looked at", func() error {
				env.Get(t, namespace, "half", cluster)
				for _, c := range cluster.Status.Conditions {
					if c.Type == "MachinePoolsReady" && c.Reason != "WaitingForControlPlane" {
						return nil
					}
				}
				return fmt.Errorf("it has %+v", cluster.Status.Conditions)
			})
			env.Delete(t, cluster)
			env.Gone(t, cluster)
			for _, object := range users {
				if err := env.Client.Delete(t.Context(), object); err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
			}
			env.Left(t, namespace)
		})
	}
}
