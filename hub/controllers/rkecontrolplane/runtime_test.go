package rkecontrolplane

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/plans"
)

// TestOtherDistribution: a cluster that was started keeps its distribution. No machine is given the services of another one, and none loses
// the configuration of its own.
func TestOtherDistribution(t *testing.T) {
	of := func(runtime string, action plans.FileAction) plans.Plan {
		return plans.Plan{Files: []plans.File{{Path: "/etc/rancher/" + runtime + "/config.yaml.d/50-rancher.yaml", Action: action,
			Content: base64.StdEncoding.EncodeToString([]byte("{}"))}}}
	}
	for name, tc := range map[string]struct {
		a, b    plans.Plan
		started bool
		want    string
	}{
		"another one":           {of("rke2", ""), of("rke2", ""), true, "a release of k3s, and the cluster runs rke2"},
		"a new machine":         {plans.Plan{}, of("rke2", ""), true, "set it to a release of rke2"},
		"not started":           {of("rke2", ""), of("rke2", ""), false, ""},
		"the same":              {of("k3s", ""), of("k3s", ""), true, ""},
		"on its way back":       {of("rke2", ""), of("k3s", ""), true, ""},
		"the other one deleted": {of("rke2", plans.ActionDelete), plans.Plan{}, true, ""},
		"unknown":               {plans.Plan{}, plans.Plan{}, true, ""},
	} {
		s := scopeWithMachines()
		s.machines[0].report.Delivered, s.machines[1].report.Delivered = tc.a, tc.b
		if tc.started {
			s.machines[0].state.JoinURL = "https://a"
		}
		err := (&Reconciler{}).findRelease(t.Context(), s)
		if err != nil || !strings.Contains(s.wait.Message, tc.want) || (s.wait.Reason == reasons.VersionInvalid) != (tc.want != "") {
			t.Errorf("%s: got %+v, %v", name, s.wait, err)
		}
	}
}
