package render

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/plans"
)

// rancherPlan is the plan of a machine as Rancher delivers it: the same configuration in other bytes, with labels of its own, an empty file
// for the registries, stamps by its own rule, and the data directory in the environment.
func rancherPlan(t *testing.T, in Inputs, more map[string]any) plans.Plan {
	t.Helper()
	plan, problems := Plan(in)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	config, known := configOf(in.Cluster.Release.Runtime, plan)
	if !known {
		t.Fatal("the plan has no configuration")
	}
	registries := "/etc/rancher/" + in.Cluster.Release.Runtime + "/registries.yaml"
	config["private-registry"] = registries
	config["node-label"] = append([]any{"plan.cattle.io/machine-name=" + in.Machine.Name}, config["node-label"].([]any)...)
	for key, value := range more {
		config[key] = value
	}
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	plan.Files = append([]plans.File{{Path: registries}}, plan.Files...)
	stamped := "0" + plan.Instructions[0].Image
	for i := range plan.Files {
		f := &plan.Files[i]
		if strings.HasSuffix(f.Path, "/50-rancher.yaml") {
			f.Content = base64.StdEncoding.EncodeToString(content)
		}
		if !f.Dynamic {
			stamped += f.Path + f.Content
		}
	}
	sum := sha256.Sum256([]byte(stamped + "0"))
	plan.Instructions[0].Env[0] = "RESTART_STAMP=" + hex.EncodeToString(sum[:])
	plan.Instructions[0].Env[1] = "DRAIN_HASH=46ed38754edccb28d2ff74c308a3e235d306b50b5a2ff33dbe896ecb2c5b1baf"
	names := in.Cluster.names()
	plan.Instructions[0].Env = append(plan.Instructions[0].Env, names.EnvPrefix+"_DATA_DIR="+names.DataDir)
	return plan
}

// A machine that Rancher has started is not restarted for what is only written in another way, also later, and is for all else.
func TestPlanOfRancher(t *testing.T) {
	for _, version := range []string{k3s, rke2} {
		for _, roles := range []string{"ecwi", "ec", "e", "w"} {
			inputs := func() Inputs {
				in := machineOf(t, version, "a", roles)
				in.Cluster.CA, in.Cluster.Bootstrapped, in.Machine.Applied = CA{}, true, true
				return in
			}
			in := inputs()
			in.Delivered = rancherPlan(t, inputs(), nil)
			plan, _ := Plan(in)
			if got := ImpactOf(in.Delivered, plan); got != ImpactNone {
				t.Errorf("%s %s: the impact is %s: %s", version, roles, got, plans.Diff(in.Delivered, plan))
			}
			in.Delivered = plan
			if again, _ := Plan(in); encoded(t, plan) != encoded(t, again) {
				t.Errorf("%s %s: the second render differs: %s", version, roles, plans.Diff(plan, again))
			}
			for what, change := range map[string]func(*Inputs){
				"an argument":      func(in *Inputs) { in.Cluster.Spec.MachineGlobalConfig = config(t, `{"selinux": true}`) },
				"the version":      func(in *Inputs) { in.Cluster.Release.Version = strings.Replace(version, ".3+", ".4+", 1) },
				"the generation":   func(in *Inputs) { in.Cluster.Spec.ProvisionGeneration++ },
				"another argument": func(in *Inputs) { in.Delivered = rancherPlan(t, inputs(), map[string]any{"debug": true}) },
				"another stamp": func(in *Inputs) {
					in.Delivered = rancherPlan(t, inputs(), nil)
					in.Delivered.Instructions[0].Env[0] = "RESTART_STAMP=00"
				},
			} {
				in := in
				in.Delivered.Instructions = slices.Clone(in.Delivered.Instructions)
				change(&in)
				changed, _ := Plan(in)
				if got := ImpactOf(in.Delivered, changed); got != ImpactDrain {
					t.Errorf("%s %s: %s has the impact %s", version, roles, what, got)
				}
			}
		}
	}
}

// Registries that say the same are the same, however they are written.
func TestRegistriesOfRancher(t *testing.T) {
	file := func(content string) []plans.File {
		return []plans.File{{Path: "/r", Content: base64.StdEncoding.EncodeToString([]byte(content))}}
	}
	const rancher = `{"configs":{"a":{"auth":null,"tls":{"ca_file":"","cert_file":"","insecure_skip_verify":true,"key_file":""}}},` +
		`"mirrors":{"a":{"endpoint":["https://b"]}}}`
	own := "mirrors:\n  a: {endpoint: [https://b]}\nconfigs:\n  a: {tls: {insecure_skip_verify: true}}\n"
	take := func(content string) string {
		raw, err := json.Marshal(takeRegistries(args{registriesArg: "/r"}, file(content)))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if take(rancher) != take(own) || take(own) == "null" {
		t.Errorf("%s and %s", take(rancher), take(own))
	}
	for _, nothing := range []string{"", "{}", `{"configs":{},"mirrors":{}}`} {
		if got := take(nothing); got != "null" {
			t.Errorf("%q says %s", nothing, got)
		}
	}
	for _, something := range []string{`{"mirrors":{"*":{}}}`, "mirrors:\n  '*':\n"} {
		if got := take(something); got != `{"mirrors":{"*":{}}}` {
			t.Errorf("%q says %s", something, got)
		}
	}
	if got := take(`{"mirrors":{"a":{"endpoint":null,"rewrite":{"^b/":""}}}}`); got != `{"mirrors":{"a":{"rewrite":{"^b/":""}}}}` {
		t.Errorf("a mirror that removes a part of names says %s", got)
	}
}
