package lab

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

//go:embed cluster.yaml
var clusterYAML string

// ClusterManifest is what a user applies for a cluster of custom machines in this lab.
func (l *Lab) ClusterManifest(cluster client.ObjectKey, version string) []byte {
	return []byte(strings.NewReplacer("NAMESPACE", cluster.Namespace, "NAME", cluster.Name, "VERSION", version, "REGISTRY",
		l.RegistryURL()).Replace(clusterYAML))
}

// ApplyCluster applies the manifest of a cluster, and keeps it in the lab's folder for the user to see.
func (l *Lab) ApplyCluster(ctx context.Context, hub client.Client, key client.ObjectKey) error {
	return l.ApplyClusterVersion(ctx, hub, key, Version)
}

// ApplyClusterVersion does so for a cluster of a version, which must have been released in this lab.
func (l *Lab) ApplyClusterVersion(ctx context.Context, hub client.Client, key client.ObjectKey, version string) error {
	manifest := l.ClusterManifest(key, version)
	if err := os.WriteFile(filepath.Join(l.Dir, key.Name+".yaml"), manifest, 0o644); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
	if err := hub.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making namespace %s: %w", key.Namespace, err)
	}
	cluster := &provisioningv1.Cluster{}
	if err := yaml.UnmarshalStrict(manifest, cluster); err != nil {
		return fmt.Errorf("reading the manifest of cluster %s: %w", key, err)
	}
	if err := hub.Create(ctx, cluster); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("applying cluster %s: %w", key, err)
	}
	return nil
}

// WaitMachine waits until a cluster has a Machine, and returns the first.
func (l *Lab) WaitMachine(ctx context.Context, hub client.Client, cluster client.ObjectKey) (*clusterv1.Machine, error) {
	machines := &clusterv1.MachineList{}
	err := l.WaitFor(ctx, "cluster "+cluster.String()+" has a Machine", 2*time.Minute, func(ctx context.Context) (bool, string) {
		err := hub.List(ctx, machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
		if err != nil {
			return false, err.Error()
		}
		return len(machines.Items) > 0, "no Machine has registered"
	})
	if err != nil {
		return nil, err
	}
	return &machines.Items[0], nil
}

// WaitPlan waits until a machine's plan Secret holds a plan.
func (l *Lab) WaitPlan(ctx context.Context, hub client.Client, machine *clusterv1.Machine) error {
	key := client.ObjectKey{Namespace: machine.Namespace, Name: rkev1.PlanSecretName(machine.Spec.Bootstrap.ConfigRef.Name)}
	return l.WaitFor(ctx, "machine "+machine.Name+" has a plan", 3*time.Minute, func(ctx context.Context) (bool, string) {
		secret := &corev1.Secret{}
		if err := hub.Get(ctx, key, secret); err != nil {
			return false, err.Error()
		}
		return len(secret.Data["plan"]) > 0, "its plan Secret is empty"
	})
}

// WaitClusterReady waits until a Cluster says that it is ready, and reports what it says until then.
func (l *Lab) WaitClusterReady(ctx context.Context, hub client.Client, key client.ObjectKey, limit time.Duration) error {
	return l.WaitFor(ctx, "cluster "+key.String()+" is Ready", limit, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		if err := hub.Get(ctx, key, c); err != nil {
			return false, err.Error()
		}
		ready := meta.IsStatusConditionTrue(c.Status.Conditions, provisioningv1.ReadyCondition) && c.Status.Ready
		return ready, ConditionMessage(c.Status.Conditions, provisioningv1.ReadyCondition)
	})
}

// WaitConnected waits until a Cluster says that its cluster-agent is connected. It does not say so at once of one that was lost several
// times.
func (l *Lab) WaitConnected(ctx context.Context, hub client.Client, key client.ObjectKey, limit time.Duration) error {
	return l.WaitFor(ctx, "cluster "+key.String()+" is connected", limit, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		if err := hub.Get(ctx, key, c); err != nil {
			return false, err.Error()
		}
		for _, kind := range []string{provisioningv1.ConnectedCondition, provisioningv1.AgentDeployedCondition} {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, kind) {
				return false, ConditionMessage(c.Status.Conditions, kind)
			}
		}
		return c.Status.AgentDeployed, "status.agentDeployed is not true"
	})
}

// WaitAgentsUpgraded waits until a Cluster says that the agents of its machines are upgraded.
func (l *Lab) WaitAgentsUpgraded(ctx context.Context, hub client.Client, key client.ObjectKey, limit time.Duration) error {
	return l.WaitFor(ctx, "the agents of cluster "+key.String()+" are upgraded", limit, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		if err := hub.Get(ctx, key, c); err != nil {
			return false, err.Error()
		}
		const kind = provisioningv1.SystemAgentsUpgradedCondition
		upgraded := meta.FindStatusCondition(c.Status.Conditions, kind)
		return upgraded != nil && upgraded.Reason == "Upgraded", ConditionMessage(c.Status.Conditions, kind)
	})
}

// WaitNodeReady waits until the provisioned cluster, opened with its kubeconfig Secret, has a Ready node. Until the cluster
// answers, what its Cluster says is reported.
func (l *Lab) WaitNodeReady(ctx context.Context, hub client.Client, cluster client.ObjectKey, limit time.Duration) error {
	return l.WaitFor(ctx, "a Node of "+cluster.String()+" is Ready", limit, func(ctx context.Context) (bool, string) {
		nodes := &corev1.NodeList{}
		c, _, err := l.ClusterClient(ctx, hub, cluster)
		if err == nil {
			err = c.List(ctx, nodes)
		}
		if err != nil {
			return false, l.clusterMessage(ctx, hub, cluster)
		}
		for _, node := range nodes.Items {
			for _, cond := range node.Status.Conditions {
				if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
					return true, ""
				}
				if cond.Type == corev1.NodeReady {
					return false, "Node " + node.Name + ": " + cond.Message
				}
			}
		}
		return false, "the cluster has no Node"
	})
}

// clusterMessage is what a Cluster says about itself.
func (l *Lab) clusterMessage(ctx context.Context, hub client.Client, key client.ObjectKey) string {
	c := &provisioningv1.Cluster{}
	if err := hub.Get(ctx, key, c); err != nil {
		return err.Error()
	}
	return ConditionMessage(c.Status.Conditions, provisioningv1.ReadyCondition)
}

// WaitGone waits until a deleted Cluster has gone, and reports what it says until then.
func (l *Lab) WaitGone(ctx context.Context, hub client.Client, key client.ObjectKey, limit time.Duration) error {
	return l.WaitFor(ctx, "cluster "+key.String()+" is gone", limit, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		err := hub.Get(ctx, key, c)
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		if err != nil {
			return false, err.Error()
		}
		return false, ConditionMessage(c.Status.Conditions, provisioningv1.RemovedCondition)
	})
}

// ConditionMessage is what a condition says, in a form to show while waiting.
func ConditionMessage(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	switch {
	case c == nil:
		return kind + " is not known yet"
	case c.Message != "":
		return c.Message
	case c.Reason != "":
		return c.Reason
	}
	return kind + " is " + string(c.Status)
}
