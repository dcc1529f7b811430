package clusters

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// capiCluster is a cluster of plain Cluster API objects with the infrastructure provider Boot.
type capiCluster struct {
	t         *testing.T
	namespace string
	name      string
}

func newCAPICluster(t *testing.T) *capiCluster {
	t.Helper()
	c := &capiCluster{t: t, namespace: env.Namespace(t), name: "one"}
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}
	capi := &clusterv1.Cluster{ObjectMeta: meta}
	capi.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
		Name: c.name}
	capi.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKECluster",
		Name: c.name}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta}
	controlPlane.Spec.KubernetesVersion, controlPlane.Spec.ClusterName = "v1.36.3+k3s1", c.name
	env.Create(t, &rkev1.RKECluster{ObjectMeta: meta}, controlPlane, capi)
	return c
}

func (c *capiCluster) capi() *clusterv1.Cluster {
	c.t.Helper()
	capi := &clusterv1.Cluster{}
	env.Get(c.t, c.namespace, c.name, capi)
	return capi
}

// machine creates a Machine of the infrastructure provider Boot with roles.
func (c *capiCluster) machine(name string, userdata rkev1.Userdata, roles ...string) *clusterv1.Machine {
	c.t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.namespace, Name: name,
		Labels: map[string]string{clusterv1.ClusterNameLabel: c.name, rkev1.ClusterNameLabel: c.name}}
	for _, role := range roles {
		meta.Labels["rke.cattle.io/"+role+"-role"] = "true"
		if role == "control-plane" {
			meta.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
	}
	infrastructure := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"providerID": "boot:///" + name}}}
	infrastructure.SetAPIVersion(infraGroup + "/v1")
	infrastructure.SetKind("BootMachine")
	infrastructure.SetNamespace(c.namespace)
	infrastructure.SetName(name)
	infrastructure.SetLabels(meta.Labels)
	machine := &clusterv1.Machine{ObjectMeta: meta}
	machine.Spec.ClusterName = c.name
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
		Name: name}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infraGroup, Kind: "BootMachine", Name: name}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: *meta.DeepCopy()}
	bootstrap.Spec.ClusterName, bootstrap.Spec.Userdata = c.name, userdata
	env.Create(c.t, infrastructure, bootstrap, machine)
	return machine
}

// provision sets the status of a BootMachine as its provider does.
func (c *capiCluster) provision(name, address string) {
	c.t.Helper()
	infrastructure := &unstructured.Unstructured{}
	infrastructure.SetAPIVersion(infraGroup + "/v1")
	infrastructure.SetKind("BootMachine")
	testenv.OnConflict(c.t, "provisioning "+name, func() error {
		env.Get(c.t, c.namespace, name, infrastructure)
		infrastructure.Object["status"] = map[string]any{
			"initialization": map[string]any{"provisioned": true},
			"addresses":      []any{map[string]any{"type": "InternalIP", "address": address}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}},
		}
		return env.Client.Status().Update(c.t.Context(), infrastructure)
	})
}

// bootstrap reads the RKEBootstrap of a Machine.
func (c *capiCluster) bootstrap(name string) *rkev1.RKEBootstrap {
	c.t.Helper()
	bootstrap := &rkev1.RKEBootstrap{}
	env.Get(c.t, c.namespace, name, bootstrap)
	return bootstrap
}

// awaitBootstrapData waits until Cluster API has the bootstrap data of a Machine, and returns the Secret.
func (c *capiCluster) awaitBootstrapData(name string) *corev1.Secret {
	c.t.Helper()
	data := &corev1.Secret{}
	testenv.Until(c.t, "the bootstrap data of "+name, func() error {
		machine := &clusterv1.Machine{}
		env.Get(c.t, c.namespace, name, machine)
		if machine.Spec.Bootstrap.DataSecretName == nil {
			return fmt.Errorf("Cluster API has none: %+v", c.bootstrap(name).Status.Conditions)
		}
		return env.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: *machine.Spec.Bootstrap.DataSecretName}, data)
	})
	return data
}

// runAgents reports every plan of the cluster as applied, with healthy probes, until the test ends.
func (c *capiCluster) runAgents() {
	ctx := c.t.Context()
	go func() {
		for ctx.Err() == nil {
			var secrets corev1.SecretList
			_ = env.Client.List(ctx, &secrets, client.InNamespace(c.namespace), client.MatchingLabels{rkev1.ClusterNameLabel: c.name})
			for i := range secrets.Items {
				if err := apply(ctx, &secrets.Items[i]); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					c.t.Errorf("playing an agent: %v", err)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

// apply reports a plan as applied, unless it was reported before.
func apply(ctx context.Context, secret *corev1.Secret) error {
	raw := secret.Data[plans.KeyPlan]
	if secret.Type != rkev1.MachinePlanSecretType || len(raw) == 0 || string(secret.Data[plans.KeyPlanState]) != string(plans.StatePending) {
		return nil
	}
	plan, err := plans.Decode(raw)
	if err != nil {
		return err
	}
	status, err := plans.DecodeStatus(secret.Data)
	if err != nil {
		return err
	}
	status.State, status.AppliedChecksum, status.Revision = plans.StateSucceeded, plans.Checksum(raw), status.Revision+1
	status.ProbeStatuses = map[string]plans.ProbeStatus{}
	for name := range plan.Probes {
		status.ProbeStatuses[name] = plans.ProbeStatus{Healthy: true}
	}
	if err := status.WriteTo(secret.Data); err != nil {
		return err
	}
	return client.IgnoreNotFound(env.Client.Update(ctx, secret))
}
