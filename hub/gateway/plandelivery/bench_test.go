package plandelivery

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/plans"
)

func BenchmarkAgentChanges(b *testing.B) {
	current, sent := &corev1.Secret{}, &corev1.Secret{}
	current.Data = map[string][]byte{plans.KeyPlan: make([]byte, 64<<10), plans.KeyAppliedChecksum: []byte("old")}
	sent.Data = map[string][]byte{plans.KeyPlan: make([]byte, 64<<10), plans.KeyAppliedChecksum: []byte("new")}
	b.ReportAllocs()
	for b.Loop() {
		if changes, err := agentChanges(current, sent); err != nil || len(changes) != 1 {
			b.Fatalf("changes are %v, %v", changes, err)
		}
	}
}
