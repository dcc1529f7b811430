package render

import (
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestExternalDatastore: the hub knows servers by their membership in etcd, which they do not have then.
func TestExternalDatastore(t *testing.T) {
	const external, embedded = `{"datastore-endpoint": "postgres://user:hush@db:5432/k3s"}`, `{"datastore-endpoint": "etcd"}`
	const arg, variable = "spec.rkeConfig.machineGlobalConfig.datastore-endpoint: has ", "spec.agentEnvVars[0].name: has "
	for name, tc := range map[string]struct {
		version, roles, config, env string
		want                        string
		doubt                       bool
	}{
		"the first server":          {k3s, "ecwi", external, "", arg, true},
		"another server":            {k3s, "ec", external, "", arg, false},
		"a server without etcd":     {k3s, "c", external, "", arg, false},
		"the first one, etcd only":  {k3s, "ei", external, "", arg, false},
		"a worker":                  {k3s, "w", external, "", "", false},
		"RKE2":                      {rke2, "ecwi", external, "", arg, false},
		"embedded":                  {k3s, "ec", embedded, "", "", false},
		"none":                      {k3s, "ec", `{}`, "", "", false},
		"a variable":                {k3s, "ec", `{}`, "mysql://db", variable, false},
		"a variable without effect": {k3s, "ec", embedded, "mysql://db", "", false},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		if tc.env != "" {
			in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "K3S_DATASTORE_ENDPOINT", Value: tc.env}}
		}
		plan, problems := Plan(in)
		got := ""
		for _, p := range problems {
			if text := p.String(); strings.Contains(text, "run no etcd") {
				got = text
			}
		}
		if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") || strings.Contains(got, "hush") {
			t.Errorf("%s: got %q", name, got)
		}
		if fatal := tc.want != "" && !tc.doubt; fatal != (plan.Error != "") {
			t.Errorf("%s: the plan has the error %q", name, plan.Error)
		}
	}
}
