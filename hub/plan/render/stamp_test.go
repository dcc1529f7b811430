package render

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// What restarts the distribution on a machine, and what its workloads would notice.
func TestStamps(t *testing.T) {
	base := func() Inputs {
		return Inputs{Cluster: cluster(t, "v1.36.3+k3s1"), Machine: node("b", "ecw"), JoinURL: "https://10.0.0.9:6443"}
	}
	tests := map[string]struct {
		change         func(*Inputs)
		restart, drain bool
	}{
		"nothing":              {func(*Inputs) {}, false, false},
		"version":              {func(in *Inputs) { in.Cluster.Release.Version = "v1.36.4+k3s1" }, true, true},
		"argument":             {func(in *Inputs) { in.Cluster.Spec.MachineGlobalConfig = config(t, `{"selinux": true}`) }, true, true},
		"join URL":             {func(in *Inputs) { in.JoinURL = "https://10.0.0.8:6443" }, true, false},
		"becoming init node":   {func(in *Inputs) { in.Machine.Init = true }, true, false},
		"provision generation": {func(in *Inputs) { in.Cluster.Spec.ProvisionGeneration++ }, true, true},
		"config generation":    {func(in *Inputs) { in.Cluster.ConfigGeneration++ }, true, true},
		"additional manifest":  {func(in *Inputs) { in.Cluster.Spec.AdditionalManifest = "a: b" }, false, false},
		"label":                {func(in *Inputs) { in.Machine.NodeLabels = map[string]string{"a": "b"} }, false, false},
		"taint": {func(in *Inputs) {
			in.Machine.NodeTaints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, false, false},
		"label of all machines": {func(in *Inputs) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-label": ["a=b"], "node-taint+": ["c=d:NoExecute"]}`)
		}, false, false},
		"provider ID":             {func(in *Inputs) { in.Machine.ProviderID = "lab://b" }, false, false},
		"removal":                 {func(in *Inputs) { in.Delivered.Files = []plans.File{{Path: "/etc/old"}} }, false, false},
		"certificate authorities": {func(in *Inputs) { in.Cluster.CA = CA{} }, false, false},
		"registry": {func(in *Inputs) {
			in.Cluster.Spec.Registries = &rkev1.Registry{Mirrors: map[string]rkev1.Mirror{"docker.io": {Endpoints: []string{"http://a"}}}}
		}, true, true},
	}
	before := stamps(t, base())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := base()
			tc.change(&in)
			after := stamps(t, in)
			if got := after[0] != before[0]; got != tc.restart {
				t.Errorf("restart stamp changes: %v, want %v", got, tc.restart)
			}
			if got := after[1] != before[1]; got != tc.drain {
				t.Errorf("drain hash changes: %v, want %v", got, tc.drain)
			}
		})
	}
}

func stamps(t *testing.T, in Inputs) [2]string {
	t.Helper()
	plan, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	env := plan.Instructions[0].Env
	if !strings.HasPrefix(env[0], "RESTART_STAMP=") || !strings.HasPrefix(env[1], "DRAIN_HASH=") {
		t.Fatalf("env is %v", env)
	}
	return [2]string{env[0], env[1]}
}
