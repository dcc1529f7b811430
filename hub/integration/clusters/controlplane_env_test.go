package clusters

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// controlPlaneCluster is a cluster of plain Cluster API objects whose provider is the test.
type controlPlaneCluster struct {
	t         *testing.T
	namespace string
	cluster   *clusterv1.Cluster
	plane     *rkev1.RKEControlPlane
}

func ref(group, kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name}
}

func infra(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": infraGroup + "/v1", "kind": kind, "spec": spec}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// newControlPlaneCluster creates a cluster whose infrastructure is provisioned and has an endpoint. edit changes its RKEControlPlane.
func newControlPlaneCluster(t *testing.T, endpoint string, edit ...func(*rkev1.RKEControlPlane)) *controlPlaneCluster {
	t.Helper()
	namespace := env.Namespace(t)
	w := &controlPlaneCluster{t: t, namespace: namespace}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "c"}
	w.cluster = &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
		ControlPlaneRef: ref(rkev1.GroupVersion.Group, "RKEControlPlane", "c"), InfrastructureRef: ref(infraGroup, "PlaneCluster", "c"),
	}}
	w.plane = &rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}}
	for _, f := range edit {
		f(w.plane)
	}
	infrastructure := infra("PlaneCluster", namespace, "c",
		map[string]any{"controlPlaneEndpoint": map[string]any{"host": endpoint, "port": int64(6443)}})
	env.Create(t, infrastructure, w.plane, w.cluster)
	w.setProvisioned(infrastructure, nil)
	return w
}

// setProvisioned sets the status of an infrastructure object as its provider does.
func (w *controlPlaneCluster) setProvisioned(object *unstructured.Unstructured, addresses []any) {
	w.t.Helper()
	status := map[string]any{"initialization": map[string]any{"provisioned": true}}
	if addresses != nil {
		status["addresses"] = addresses
	}
	w.setStatus(object, status)
}

func (w *controlPlaneCluster) setStatus(object *unstructured.Unstructured, status map[string]any) {
	w.t.Helper()
	testenv.OnConflict(w.t, "setting the status of "+object.GetName(), func() error {
		if err := env.Client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		object.Object["status"] = status
		return env.Client.Status().Update(w.t.Context(), object)
	})
}

// fakeMachine is a machine whose infrastructure provider and agent are the test.
type fakeMachine struct {
	*controlPlaneCluster
	machine        *clusterv1.Machine
	infrastructure *unstructured.Unstructured
}

// machine creates a Machine and the objects that it refers to.
func (w *controlPlaneCluster) machine(name string, roles ...string) *fakeMachine {
	w.t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: "c", rkev1.ClusterNameLabel: "c"}
	for _, role := range roles {
		labels["rke.cattle.io/"+role+"-role"] = "true"
	}
	if slices.Contains(roles, "control-plane") {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels}
	n := &fakeMachine{controlPlaneCluster: w, infrastructure: infra("PlaneMachine", w.namespace, name, map[string]any{}),
		machine: &clusterv1.Machine{
			ObjectMeta: meta, Spec: clusterv1.MachineSpec{
				ClusterName: "c", InfrastructureRef: ref(infraGroup, "PlaneMachine", name),
				Bootstrap: clusterv1.Bootstrap{ConfigRef: ref(rkev1.GroupVersion.Group, "RKEBootstrap", name)},
			},
		}}
	env.Create(w.t, n.infrastructure, &rkev1.RKEBootstrap{ObjectMeta: meta, Spec: rkev1.RKEBootstrapSpec{ClusterName: "c"}}, n.machine)
	return n
}

// reportReady sets the status that the provider sets once the machine's host is up.
func (n *fakeMachine) reportReady(addresses ...string) {
	n.t.Helper()
	testenv.OnConflict(n.t, "changing "+n.machine.Name, func() error {
		if err := env.Client.Get(n.t.Context(), client.ObjectKeyFromObject(n.infrastructure), n.infrastructure); err != nil {
			return err
		}
		n.infrastructure.Object["spec"] = map[string]any{"providerID": "plane://" + n.machine.Name}
		return env.Client.Update(n.t.Context(), n.infrastructure)
	})
	n.reportAddresses(addresses...)
}

func (n *fakeMachine) reportAddresses(addresses ...string) {
	n.t.Helper()
	var list []any
	for _, a := range addresses {
		list = append(list, map[string]any{"type": "InternalIP", "address": a})
	}
	n.setProvisioned(n.infrastructure, list)
}

func (n *fakeMachine) bootstrap() *rkev1.RKEBootstrap {
	return &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.machine.Name}}
}

func (n *fakeMachine) secret() *corev1.Secret {
	n.t.Helper()
	secret := &corev1.Secret{}
	env.Get(n.t, n.namespace, rkev1.PlanSecretName(n.machine.Name), secret)
	return secret
}

// awaitConfig waits for a pending plan, and returns the distribution's configuration in it.
func (n *fakeMachine) awaitConfig() map[string]any {
	n.t.Helper()
	var config map[string]any
	testenv.Until(n.t, "a plan for "+n.machine.Name, func() error {
		secret := &corev1.Secret{}
		if err := env.Client.Get(n.t.Context(), client.ObjectKey{Namespace: n.namespace, Name: rkev1.PlanSecretName(n.machine.Name)},
			secret); err != nil {
			return err
		}
		if plans.State(secret.Data[plans.KeyPlanState]) != plans.StatePending {
			return fmt.Errorf("its state is %q", secret.Data[plans.KeyPlanState])
		}
		plan, err := plans.Decode(secret.Data[plans.KeyPlan])
		if err != nil {
			return err
		}
		for _, f := range plan.Files {
			if f.Path == "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml" {
				raw, err := base64.StdEncoding.DecodeString(f.Content)
				if err != nil {
					return err
				}
				return json.Unmarshal(raw, &config)
			}
		}
		return fmt.Errorf("no configuration among %d files", len(plan.Files))
	})
	return config
}

// reportApplied reports the plan as applied.
func (n *fakeMachine) reportApplied() {
	n.t.Helper()
	testenv.OnConflict(n.t, "reporting for "+n.machine.Name, func() error {
		secret := n.secret()
		plan, err := plans.Decode(secret.Data[plans.KeyPlan])
		if err != nil {
			return err
		}
		status := plans.Status{State: plans.StateSucceeded, Revision: 1, AppliedChecksum: plans.Checksum(secret.Data[plans.KeyPlan]),
			ProbeStatuses: map[string]plans.ProbeStatus{}}
		for probe := range plan.Probes {
			status.ProbeStatuses[probe] = plans.ProbeStatus{Healthy: true}
		}
		if err := status.WriteTo(secret.Data); err != nil {
			return err
		}
		return env.Client.Update(n.t.Context(), secret)
	})
}
