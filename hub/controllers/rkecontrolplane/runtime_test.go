package rkecontrolplane

import (
	"encoding/base64"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/rollout"
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

// TestAwaitsReleaseData: a hub that was started without the release data that it had before gives no cluster a configuration which is
// another one for that reason alone.
func TestAwaitsReleaseData(t *testing.T) {
	config := func(key string) rkev1.GenericMap { return rkev1.GenericMap{Data: map[string]any{key: true}} }
	const known, unknown = "v1.36.3+k3s1", "v1.99.0+k3s1"
	for name, tc := range map[string]struct {
		version          string
		global, selector rkev1.GenericMap
		isNew, waits     bool
	}{
		"known":                              {version: known, global: config("disable-cloud-controller")},
		"unknown argument":                   {version: known, global: config("later"), waits: true},
		"unknown argument of some machines":  {version: known, selector: config("later"), waits: true},
		"unknown release":                    {version: unknown, waits: true},
		"unknown release, without a machine": {version: unknown, isNew: true},
	} {
		s := scopeWithMachines()
		s.controlPlane.Spec.KubernetesVersion = tc.version
		s.controlPlane.Spec.MachineGlobalConfig = tc.global
		s.controlPlane.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: tc.selector}}
		if !tc.isNew {
			s.machines[0].report.Checksum = "delivered"
		}
		r := &Reconciler{Releases: &release.Catalog{}}
		r.Releases.Await()
		if err := r.findRelease(t.Context(), s); err != nil || (s.wait.Reason == reasonWaitingForReleaseData) != tc.waits {
			t.Errorf("%s: got %+v, %v", name, s.wait, err)
		}
		data, err := release.ParsePublished([]byte(`{"k3s": {"releases": [{"version": "v1.36.3+k3s1"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Releases.Publish(data)
		s.wait = rollout.Wait{}
		if err := r.findRelease(t.Context(), s); err != nil || s.wait != (rollout.Wait{}) {
			t.Errorf("%s, with the data: got %+v, %v", name, s.wait, err)
		}
	}
}
