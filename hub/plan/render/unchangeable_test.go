package render

import (
	"slices"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// TestDataDirectoryChanged: a server of a running cluster keeps its data directory, whichever argument asks for another one.
func TestDataDirectoryChanged(t *testing.T) {
	const k3sDir, rke2Dir = "in /var/lib/rancher/k3s;", "in /var/lib/rancher/rke2;"
	type change struct {
		version, roles, before, after, want string
		more                                func(*Inputs)
	}
	for name, tc := range map[string]change{
		"set":                    {k3s, "ecwi", `{}`, `{"data-dir": "/data"}`, k3sDir, nil},
		"set on RKE2":            {rke2, "ecwi", `{}`, `{"data-dir": "/data"}`, rke2Dir, nil},
		"changed":                {k3s, "e", `{"data-dir": "/data"}`, `{"data-dir": "/data2"}`, "in /data;", nil},
		"removed":                {k3s, "c", `{"data-dir": "/data"}`, `{}`, "in /data;", nil},
		"written in another way": {k3s, "ecwi", `{"data-dir": "/data"}`, `{"data-dir": "/data/"}`, "", nil},
		"the default, written":   {k3s, "ecwi", `{}`, `{"data-dir": "/var/lib/rancher/k3s"}`, "", nil},
		"another argument":       {k3s, "ecwi", `{"data-dir": "/data"}`, `{"data-dir": "/data", "debug": true}`, "", nil},
		"a worker":               {k3s, "w", `{}`, `{"data-dir": "/data"}`, "", nil},
		"before the cluster runs": {k3s, "ecwi", `{}`, `{"data-dir": "/data"}`, "", func(in *Inputs) {
			in.Cluster.Bootstrapped = false
		}},
		"a new machine": {k3s, "ecw", `{}`, `{"data-dir": "/data"}`, "", func(in *Inputs) { in.Delivered = plans.Plan{} }},
		"for some machines": {k3s, "ecwi", `{}`, `{}`, k3sDir, func(in *Inputs) {
			in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: config(t, `{"data-dir": "/data"}`)}}
		}},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.before)
		in.Delivered, _ = Plan(in)
		in.Cluster.Bootstrapped, in.Cluster.Spec.MachineGlobalConfig = true, config(t, tc.after)
		if tc.more != nil {
			tc.more(&in)
		}
		plan, problems := Plan(in)
		if (plan.Error != "") != (tc.want != "") || !strings.Contains(plan.Error, tc.want) {
			t.Errorf("%s: got %q, want %q", name, plan.Error, tc.want)
		}
		if err := problems.Err(); tc.want != "" && (err == nil || !strings.Contains(err.Error(), ".data-dir: cannot be changed")) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestDirectories: directories that are not set have their defaults, which the others must not lie in, nor the other way round.
func TestDirectories(t *testing.T) {
	for name, tc := range map[string]struct {
		version string
		dirs    rkev1.DataDirectories
		config  string
		want    string
	}{
		"defaults":                        {rke2, rkev1.DataDirectories{}, `{}`, ""},
		"beside each other":               {rke2, rkev1.DataDirectories{SystemAgent: "/data/agent", K8sDistro: "/data/agents"}, `{}`, ""},
		"distribution around the agent":   {k3s, rkev1.DataDirectories{K8sDistro: "/var/lib/rancher"}, `{}`, "ories: /var/lib/rancher and "},
		"the same by an argument":         {k3s, rkev1.DataDirectories{}, `{"data-dir": "/var/lib/rancher/"}`, "data-dir: /var/lib/rancher/ "},
		"agent in the distribution":       {rke2, rkev1.DataDirectories{SystemAgent: "/var/lib/rancher/rke2/agent"}, `{}`, "ories: /var/lib/rancher/rke2 "},
		"plans in the agent":              {k3s, rkev1.DataDirectories{Provisioning: "/var/lib/rancher/agent/p"}, `{}`, "ories: /var/lib/rancher/agent "},
		"in that of another distribution": {k3s, rkev1.DataDirectories{SystemAgent: "/var/lib/rancher/rke2/agent"}, `{}`, ""},
	} {
		for _, started := range []bool{false, true} {
			in := machineOf(t, tc.version, "a", "ecwi")
			in.Cluster.Spec.DataDirectories, in.Cluster.Spec.MachineGlobalConfig = tc.dirs, config(t, tc.config)
			in.Cluster.Bootstrapped = started
			plan, problems := Plan(in)
			got := ""
			for _, p := range problems {
				if text := p.String(); strings.Contains(text, "must not lie within one another") {
					got += text
				}
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || (plan.Error != "") != (tc.want != "" && !started) {
				t.Errorf("%s: got %q, and the plan has the error %q", name, got, plan.Error)
			}
		}
	}
}

// TestRolesChanged: the labels of a machine that has its configuration may change, and what it runs does not.
func TestRolesChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		version, before, after, want string
		more                         func(*Inputs)
	}{
		"a server without etcd":          {k3s, "ecw", "cw", "from etcd with control plane to control plane without etcd,", nil},
		"a server with etcd":             {rke2, "c", "ec", "from control plane without etcd to etcd with control plane,", nil},
		"a server without control plane": {rke2, "ec", "e", "from etcd with control plane to etcd without control plane,", nil},
		"a server that was a worker":     {k3s, "w", "cw", "from a worker to control plane without etcd,", nil},
		"a worker that was a server":     {k3s, "ew", "w", "from etcd without control plane to a worker,", nil},
		"Pods on a server":               {k3s, "ec", "ecw", "", nil},
		"no change of a worker":          {rke2, "w", "w", "", nil},
		"no change of etcd":              {rke2, "e", "e", "", nil},
		"no change of the first server":  {k3s, "ecwi", "ecwi", "", nil},
		"before the cluster runs":        {k3s, "ec", "e", "", func(in *Inputs) { in.Cluster.Bootstrapped = false }},
		"a new machine":                  {k3s, "ec", "e", "", func(in *Inputs) { in.Delivered = plans.Plan{} }},
		"a plan that installs nothing":   {k3s, "ec", "e", "", func(in *Inputs) { in.Delivered.Instructions = nil }},
	} {
		in := machineOf(t, tc.version, "a", tc.before)
		in.Delivered, _ = Plan(in)
		other := machineOf(t, tc.version, "a", tc.after)
		other.Cluster.Bootstrapped, other.Delivered = true, in.Delivered
		if tc.more != nil {
			tc.more(&other)
		}
		plan, _ := Plan(other)
		if (plan.Error != "") != (tc.want != "") || !strings.Contains(plan.Error, tc.want) {
			t.Errorf("%s: got %q, want %q", name, plan.Error, tc.want)
		}
	}
}

// TestDataDirectoryOfEnvironment: the variable that k3s and RKE2 take for their data directory would move it past the hub.
func TestDataDirectoryOfEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		variable rkev1.EnvVar
		want     bool
	}{
		"another directory":         {rkev1.EnvVar{Name: "K3S_DATA_DIR", Value: "/data"}, true},
		"the same":                  {rkev1.EnvVar{Name: "K3S_DATA_DIR", Value: "/var/lib/rancher/k3s"}, false},
		"empty":                     {rkev1.EnvVar{Name: "K3S_DATA_DIR"}, false},
		"of the other distribution": {rkev1.EnvVar{Name: "RKE2_DATA_DIR", Value: "/data"}, false},
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{tc.variable}
		if plan, _ := Plan(in); strings.Contains(plan.Error, "spec.agentEnvVars[0].name: K3S_DATA_DIR cannot be set here") != tc.want {
			t.Errorf("%s: got %q", name, plan.Error)
		}
	}
}

// TestProgramDirectory: the scripts of snapshots, restores and rotations look for the programs in a few directories.
func TestProgramDirectory(t *testing.T) {
	for _, tc := range []struct {
		version, name, value string
		want                 bool
	}{
		{k3s, "INSTALL_K3S_BIN_DIR", "/data/bin", true}, {k3s, "INSTALL_K3S_BIN_DIR", "/opt/bin/", false},
		{k3s, "INSTALL_K3S_BIN_DIR", "", false}, {k3s, "INSTALL_RKE2_TAR_PREFIX", "/data", false},
		{rke2, "INSTALL_RKE2_TAR_PREFIX", "/data", true}, {rke2, "INSTALL_RKE2_TAR_PREFIX", "/opt/rke2", false},
	} {
		in := machineOf(t, tc.version, "a", "ecwi")
		in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: tc.name, Value: tc.value}}
		plan, problems := Plan(in)
		if got := slices.ContainsFunc(problems, func(p Problem) bool {
			return p.Field == "spec.agentEnvVars[0].name" && strings.HasPrefix(p.Message, tc.name+" puts ") && p.Kept
		}); got != tc.want || plan.Error != "" {
			t.Errorf("%s=%s: %+v, %s", tc.name, tc.value, problems, plan.Error)
		}
	}
}

// TestConfiguredRuntime: a configuration that a plan deletes is none.
func TestConfiguredRuntime(t *testing.T) {
	for version, want := range map[string]string{k3s: release.K3s, rke2: release.RKE2} {
		plan, _ := Plan(machineOf(t, version, "a", "w"))
		plan.Files = append(plan.Files, plans.File{Path: "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", Action: plans.ActionDelete})
		if got := ConfiguredRuntime(plan); got != want {
			t.Errorf("%s: got %q", version, got)
		}
	}
	if got := ConfiguredRuntime(plans.Plan{}); got != "" {
		t.Errorf("an empty plan configures %q", got)
	}
}
