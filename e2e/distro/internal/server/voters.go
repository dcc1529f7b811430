package server

import (
	"context"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// etcdIsVoter is the condition on Nodes which says if the node's etcd member counts for the quorum.
const etcdIsVoter corev1.NodeConditionType = "EtcdIsVoter"

const (
	// renewCondition is after how long a condition is written again that still holds.
	renewCondition = 5 * time.Minute
	// memberTimeout is how long a member may take to answer.
	memberTimeout = 2 * time.Second
)

// tellMembership sets the condition EtcdIsVoter of a Node that runs, or once ran, a member of etcd.
func (s *server) tellMembership(ctx context.Context, node *corev1.Node) error {
	address := node.Annotations[etcdNodeAddress]
	if address == "" {
		return nil
	}
	info, err := s.etcdInfo(ctx)
	if err != nil {
		return err
	}
	want := voterCondition(info, peerURL(address), func(client string) error { return s.askMember(ctx, client) })
	want.LastHeartbeatTime = metav1.Now()
	want.LastTransitionTime = want.LastHeartbeatTime
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == etcdIsVoter })
	if i >= 0 && node.Status.Conditions[i].Status == want.Status && node.Status.Conditions[i].Reason == want.Reason {
		last := node.Status.Conditions[i]
		if want.LastHeartbeatTime.Sub(last.LastHeartbeatTime.Time) < renewCondition {
			return nil
		}
		want.LastTransitionTime = last.LastTransitionTime
	} else {
		s.log.Info("The membership of a node has changed", "node", node.Name, "status", want.Status, "reason", want.Reason)
	}
	return s.patchNode(ctx, node.Name, types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}}, "status")
}

// askMember asks a member of etcd whether it is well.
func (s *server) askMember(ctx context.Context, client string) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return err
	}
	_, err = c.Status(ctx, client)
	return err
}

// voterCondition says of the member with a peer URL what k3s says. ask asks the member at a client URL whether it is well.
func voterCondition(info supervisor.Info, peer string, ask func(client string) error) corev1.NodeCondition {
	for _, m := range info.Members {
		if !slices.Contains(m.PeerURLs, peer) {
			continue
		}
		if len(m.ClientURLs) > 0 {
			if err := ask(m.ClientURLs[0]); err != nil {
				return corev1.NodeCondition{Type: etcdIsVoter, Status: corev1.ConditionFalse, Reason: "Unhealthy", Message: err.Error()}
			}
		}
		switch {
		case m.IsLearner:
			return corev1.NodeCondition{Type: etcdIsVoter, Status: corev1.ConditionFalse, Reason: "MemberIsLearner",
				Message: "Node has not been promoted to voting member of the etcd cluster"}
		default:
			return corev1.NodeCondition{Type: etcdIsVoter, Status: corev1.ConditionTrue, Reason: "MemberNotLearner",
				Message: "Node is a voting member of the etcd cluster"}
		}
	}
	return corev1.NodeCondition{Type: etcdIsVoter, Status: corev1.ConditionFalse, Reason: "NotAMember",
		Message: "Node is not a member of the etcd cluster"}
}

// wasRemoved is asked when etcd has ended on its own. It ends without a fault only where the cluster has removed its
// member. What it leaves is of no more use, so the next start joins again; until then, as on k3s, a server that was up goes
// on without etcd and does not come back.
func (s *server) wasRemoved(state *os.ProcessState) bool {
	if !state.Success() {
		return false
	}
	s.log.Warn("This etcd member has been removed from its cluster: restart this server to join again")
	if err := pki.WriteFile(s.data.Etcd("tombstone"), []byte(time.Now().UTC().Format(time.RFC3339)+"\n"), 0o600); err != nil {
		s.log.Error("Cannot mark the data of etcd as that of a removed member", "error", err)
		return false
	}
	return s.etcdAnswered.Load()
}
