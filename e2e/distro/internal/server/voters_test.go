package server

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func TestVoterCondition(t *testing.T) {
	info := supervisor.Info{Members: []supervisor.Member{
		{ID: 1, Name: "a-1", PeerURLs: []string{"https://10.0.0.1:2380"}},
		{ID: 2, Name: "", PeerURLs: []string{"https://10.0.0.2:2380"}, IsLearner: true},
		{ID: 3, Name: "c-3", PeerURLs: []string{"https://[fd00::3]:2380"}, ClientURLs: []string{"https://[fd00::3]:2379"}},
		{ID: 5, Name: "e-5", PeerURLs: []string{"https://10.0.0.5:2380"}, ClientURLs: []string{"https://10.0.0.5:2379"}},
	}}
	for address, want := range map[string]struct {
		status corev1.ConditionStatus
		reason string
	}{
		"10.0.0.1": {corev1.ConditionTrue, "MemberNotLearner"},
		"10.0.0.2": {corev1.ConditionFalse, "MemberIsLearner"},
		"fd00::3":  {corev1.ConditionTrue, "MemberNotLearner"},
		"10.0.0.4": {corev1.ConditionFalse, "NotAMember"},
		"10.0.0.5": {corev1.ConditionFalse, "Unhealthy"},
	} {
		got := voterCondition(info, peerURL(address), func(client string) error {
			if client == "https://10.0.0.5:2379" {
				return errors.New("no answer")
			}
			return nil
		})
		if got.Type != etcdIsVoter || got.Status != want.status || got.Reason != want.reason || got.Message == "" {
			t.Errorf("%s: got %+v", address, got)
		}
	}
}
