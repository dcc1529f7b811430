//go:build e2e

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
)

// waitNodes waits until a cluster has so many servers and workers, all of them Ready and each one the Node of a Machine by its provider
// ID, and no Machine besides.
func waitNodes(t *testing.T, key client.ObjectKey, servers, workers int, limit time.Duration) {
	t.Helper()
	what := fmt.Sprintf("cluster %s has %d servers and %d workers, all Ready", key, servers, workers)
	waitFor(t, what, limit, func(ctx context.Context) (bool, string) {
		machines, err := machinesOf(ctx, key)
		if err != nil {
			return false, err.Error()
		}
		nodes, err := nodesOf(ctx, key)
		if err != nil {
			return false, err.Error()
		}
		missing := mismatch(machines, nodes, servers, workers)
		return missing == "", missing
	})
}

// mismatch says what a cluster lacks of the machines that are wanted; it is empty if nothing does.
func mismatch(machines []clusterv1.Machine, nodes map[string]corev1.Node, servers, workers int) string {
	haveServers, haveWorkers := 0, 0
	for i := range machines {
		m := &machines[i]
		node, ok := nodes[m.Spec.ProviderID]
		switch {
		case !m.DeletionTimestamp.IsZero():
			return "Machine " + m.Name + " is being deleted"
		case !ok:
			return "Machine " + m.Name + " has no Node"
		case m.Status.NodeRef.Name != node.Name:
			return fmt.Sprintf("Machine %s has Node %q, not %s", m.Name, m.Status.NodeRef.Name, node.Name)
		case !util.IsNodeReady(&node):
			return "Node " + node.Name + " is not Ready"
		}
		if _, ok := node.Labels["node-role.kubernetes.io/control-plane"]; ok {
			haveServers++
		} else {
			haveWorkers++
		}
	}
	switch {
	case haveServers != servers || haveWorkers != workers:
		return fmt.Sprintf("%d servers and %d workers", haveServers, haveWorkers)
	case len(nodes) != len(machines):
		return fmt.Sprintf("%d Nodes for %d Machines", len(nodes), len(machines))
	}
	return ""
}

// nodesOf are the Nodes of a cluster by their provider ID.
func nodesOf(ctx context.Context, key client.ObjectKey) (map[string]corev1.Node, error) {
	c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
	if err != nil {
		return nil, err
	}
	list := &corev1.NodeList{}
	if err := c.List(ctx, list); err != nil {
		return nil, err
	}
	out := map[string]corev1.Node{}
	for _, node := range list.Items {
		out[node.Spec.ProviderID] = node
	}
	return out, nil
}

const dataName = "kept"

// writeData writes something into a cluster that must still be there later.
func writeData(t *testing.T, key client.ObjectKey) {
	t.Helper()
	waitFor(t, "the data is written", 2*time.Minute, func(ctx context.Context) (bool, string) {
		data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: dataName},
			Data: map[string]string{"a": "b"}}
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = client.IgnoreAlreadyExists(c.Create(ctx, data))
		}
		return err == nil, fmt.Sprint(err)
	})
}

// checkData fails the test if what was written is not there.
func checkData(t *testing.T, key client.ObjectKey) {
	t.Helper()
	data := &corev1.ConfigMap{}
	waitFor(t, "the cluster tells of the data", 2*time.Minute, func(ctx context.Context) (bool, string) {
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: dataName}, data)
		}
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		return err == nil, fmt.Sprint(err)
	})
	if data.Data["a"] != "b" {
		t.Errorf("it is %v", data.Data)
	}
}

// checkMembers waits until etcd's members are exactly the servers, each of which says so in its Node.
func checkMembers(t *testing.T, key client.ObjectKey, want int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d members of etcd vote", want), 2*time.Minute, func(ctx context.Context) (bool, string) {
		nodes, err := nodesOf(ctx, key)
		if err != nil {
			return false, err.Error()
		}
		var voters []string
		for _, node := range nodes {
			for _, c := range node.Status.Conditions {
				if c.Type == "EtcdIsVoter" && c.Status == corev1.ConditionTrue {
					voters = append(voters, node.Name)
				}
			}
		}
		return len(voters) == want, fmt.Sprintf("%d do: %s", len(voters), strings.Join(voters, ", "))
	})
}
