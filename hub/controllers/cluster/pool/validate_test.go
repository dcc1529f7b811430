package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// TestValidateRollingUpdate: with a negative limit, Cluster API creates fewer machines than there should be, and says nothing.
func TestValidateRollingUpdate(t *testing.T) {
	limit := func(text string) *intstr.IntOrString {
		if text == "" {
			return nil
		}
		return ptr.To(intstr.Parse(text))
	}
	for name, tc := range map[string]struct {
		surge, unavailable string
		want               string
	}{
		"nothing":              {},
		"numbers":              {surge: "0", unavailable: "2"},
		"percentages":          {surge: "150%", unavailable: "0%"},
		"negative":             {surge: "-1", want: `rollingUpdate.maxSurge is "-1": it must be a number such as 1, or a percentage`},
		"negative percentage":  {unavailable: "-10%", want: `rollingUpdate.maxUnavailable is "-10%": it must be a number`},
		"no percentage":        {surge: "some", want: `rollingUpdate.maxSurge is "some": it must be a number`},
		"no surge":             {surge: "0", want: "rollingUpdate.maxSurge is 0, and maxUnavailable is 0 if it is not set"},
		"no surge, percentage": {surge: "0", unavailable: "25%"},
	} {
		p := testPool()
		p.RollingUpdate = &provisioningv1.RKEMachinePoolRollingUpdate{MaxSurge: limit(tc.surge), MaxUnavailable: limit(tc.unavailable)}
		got := strings.Join(Validate(testCluster(), p), "; ")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, tc.want)
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

// TestValidateNodeStartupTimeout: Cluster API refuses a health check with less than half a minute, in each write.
func TestValidateNodeStartupTimeout(t *testing.T) {
	for timeout, valid := range map[time.Duration]bool{0: true, time.Second: false, 29 * time.Second: false, 30 * time.Second: true} {
		p := testPool()
		p.NodeStartupTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: timeout}}
		got, want := ValidateLimits(p), "nodeStartupTimeout is "+timeout.String()+": it must be at least 30s, or 0s for never"
		if (got == "") != valid || !valid && !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %q", timeout, got)
		}
	}
}
