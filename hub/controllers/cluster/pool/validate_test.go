package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestWarnings: a field that other fields leave without effect is named, and one that asks for nothing is not.
func TestWarnings(t *testing.T) {
	minutes := func(n time.Duration) *provisioningv1.Duration {
		return &provisioningv1.Duration{Duration: metav1.Duration{Duration: n * time.Minute}}
	}
	const unchecked = " has no effect without unhealthyNodeTimeout: machines of the pool are not replaced"
	for name, tc := range map[string]struct {
		pool provisioningv1.RKEMachinePool
		want []string
	}{
		"nothing": {},
		"nothing is asked for": {pool: provisioningv1.RKEMachinePool{MaxUnhealthy: ptr.To(""), UnhealthyRange: ptr.To(""),
			UnhealthyNodeTimeout: minutes(0), NodeStartupTimeout: minutes(0), DrainBeforeDeleteTimeout: minutes(0)}},
		"no health check": {pool: provisioningv1.RKEMachinePool{MaxUnhealthy: ptr.To("40%"), UnhealthyRange: ptr.To("[1-3]"),
			UnhealthyNodeTimeout: minutes(0), NodeStartupTimeout: minutes(9)},
			want: []string{"maxUnhealthy" + unchecked, "unhealthyRange" + unchecked, "nodeStartupTimeout" + unchecked}},
		"a health check": {pool: provisioningv1.RKEMachinePool{MaxUnhealthy: ptr.To("40%"), UnhealthyNodeTimeout: minutes(5),
			NodeStartupTimeout: minutes(9)}},
		"two limits": {pool: provisioningv1.RKEMachinePool{MaxUnhealthy: ptr.To("40%"), UnhealthyRange: ptr.To("[1-3]"),
			UnhealthyNodeTimeout: minutes(5)}, want: []string{"maxUnhealthy has no effect beside unhealthyRange"}},
		"no drain": {pool: provisioningv1.RKEMachinePool{DrainBeforeDeleteTimeout: minutes(5)},
			want: []string{"drainBeforeDeleteTimeout has no effect without drainBeforeDelete"}},
		"a drain": {pool: provisioningv1.RKEMachinePool{DrainBeforeDelete: true, DrainBeforeDeleteTimeout: minutes(5)}},
	} {
		tc.pool.Name = "p"
		var got []string
		for _, warning := range Warnings(&tc.pool) {
			got = append(got, strings.TrimPrefix(warning, "spec.rkeConfig.machinePools[p]."))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestValidateLimits: Cluster API accepts any two numbers.
func TestValidateLimits(t *testing.T) {
	for limits, valid := range map[string]bool{"": true, "[0-0]": true, "[1-3]": true, "[3-1]": false, "[1-99999999999]": false} {
		p := testPool()
		p.UnhealthyRange = &limits
		got := ValidateLimits(p)
		if (got == "") != valid || !valid && !strings.Contains(got, "machinePools[workers].unhealthyRange is") {
			t.Errorf("%q: got %q", limits, got)
		}
		if got := Validate(testCluster(), p); len(got) > 0 {
			t.Errorf("%q holds up the pool as a whole: %q", limits, got)
		}
	}
}
