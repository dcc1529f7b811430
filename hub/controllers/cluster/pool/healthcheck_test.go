package pool

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestEtcdLimit: in a cluster with data, a health check without limits of the user's replaces a machine with etcd only while most of them
// are healthy.
func TestEtcdLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		quantities                []int32 // of the pools with etcd; the first one is looked at
		worker, unstarted         bool
		maxUnhealthy, healthRange string
		limit, inRange            string // of the health check
	}{
		"one machine":                {quantities: []int32{1}, limit: "0"},
		"two machines":               {quantities: []int32{2}, limit: "0"},
		"three machines":             {quantities: []int32{3}, limit: "1"},
		"five machines":              {quantities: []int32{5}, limit: "2"},
		"three pools":                {quantities: []int32{1, 1, 1}, limit: "1"},
		"an empty pool":              {quantities: []int32{0}, limit: "0"},
		"no data yet":                {quantities: []int32{3}, unstarted: true},
		"workers":                    {quantities: []int32{3}, worker: true},
		"a limit of the user's":      {quantities: []int32{3}, maxUnhealthy: "100%", limit: "100%"},
		"a range of the user's":      {quantities: []int32{3}, healthRange: "[1-3]", inRange: "[1-3]"},
		"a limit that is empty":      {quantities: []int32{3}, maxUnhealthy: "", limit: "1"},
		"both a limit and the range": {quantities: []int32{3}, maxUnhealthy: "2", healthRange: "[1-3]", limit: "2", inRange: "[1-3]"},
	} {
		cluster := testCluster()
		for _, quantity := range tc.quantities {
			p := testPool()
			p.EtcdRole, p.Quantity = !tc.worker, &quantity
			p.UnhealthyNodeTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: 5 * time.Minute}}
			p.MaxUnhealthy, p.UnhealthyRange = ptr.To(tc.maxUnhealthy), ptr.To(tc.healthRange)
			cluster.Spec.RKEConfig.MachinePools = append(cluster.Spec.RKEConfig.MachinePools, *p)
		}
		workers := testPool()
		workers.Quantity = ptr.To[int32](9)
		cluster.Spec.RKEConfig.MachinePools = append(cluster.Spec.RKEConfig.MachinePools, *workers)
		got, limit := HealthCheck(cluster, &cluster.Spec.RKEConfig.MachinePools[0], !tc.unstarted).Spec.Remediation.TriggerIf, ""
		if got.UnhealthyLessThanOrEqualTo != nil {
			limit = got.UnhealthyLessThanOrEqualTo.String()
		}
		if limit != tc.limit || got.UnhealthyInRange != tc.inRange {
			t.Errorf("%s: replaces while at most %q or %q are unhealthy, want %q or %q", name, limit, got.UnhealthyInRange, tc.limit, tc.inRange)
		}
	}
}
