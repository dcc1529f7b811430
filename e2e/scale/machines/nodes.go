package machines

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/testenv/workload"
)

// statusInterval is how often a kubelet writes the status of its Node when nothing has changed (nodeStatusReportFrequency).
const statusInterval = 5 * time.Minute

// Nodes are the Nodes of a cluster, which machines get when they have applied a plan.
type Nodes struct {
	// API is the API of the cluster.
	API   *workload.Cluster
	mu    sync.Mutex
	names []string
}

// Add makes the Node of a machine without a plan.
func (n *Nodes) Add(m Machine, providerID, version string) {
	n.Set(m, nodeConfig{Labels: map[string]string{}, ProviderID: providerID, Version: version})
}

// Set makes the Node of a machine, or changes it as the kubelet would.
func (n *Nodes) Set(m Machine, config nodeConfig) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node := n.API.Node(m.Name); node != nil {
		// A kubelet gives its Node labels when it registers. The hub brings those that change later.
		if node.Status.NodeInfo.KubeletVersion != config.Version {
			n.API.ChangeNode(m.Name, func(node *corev1.Node) { node.Status.NodeInfo.KubeletVersion = config.Version })
		}
		return
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: maps.Clone(config.Labels), CreationTimestamp: metav1.Now()}}
	node.Spec.ProviderID = config.ProviderID
	conditions := []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue)}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, condition(pressure, corev1.ConditionFalse))
	}
	if m.Server {
		node.Spec.ProviderID = "k3s://" + m.Name
		for _, role := range []string{"etcd", "control-plane"} {
			node.Labels["node-role.kubernetes.io/"+role] = "true"
		}
		conditions = append(conditions, condition("EtcdIsVoter", corev1.ConditionTrue))
	}
	node.Status.Conditions = conditions
	node.Status.NodeInfo.KubeletVersion = config.Version
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: m.Address}, {Type: corev1.NodeHostName, Address: m.Name},
	}
	n.API.SetNode(node)
	n.names = append(n.names, m.Name)
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now}
}

// Heartbeats writes the status of each Node once in an interval, as kubelets do, until ctx is done.
func (n *Nodes) Heartbeats(ctx context.Context) {
	for next := 0; ; next++ {
		n.mu.Lock()
		names := n.names
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(statusInterval / time.Duration(max(len(names), 1))):
		}
		if len(names) == 0 {
			continue
		}
		n.API.ChangeNode(names[next%len(names)], func(node *corev1.Node) {
			for i := range node.Status.Conditions {
				node.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
			}
		})
	}
}
