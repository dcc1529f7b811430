package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// Whatever a cluster's author writes, a render ends, gives valid plans or an error, and gives the same twice.
func FuzzPlan(f *testing.F) {
	f.Add(`{"kubelet-arg": "a=b"}`, `{"traefik": {"a": 1}}`, "- a: b", "fe80::1,10.0.0.1")
	f.Add(`{"cni": ["calico"], "service-cidr": "::/0", "tls-san": null}`, `{"x": null}`, "", "")
	f.Add(`{"cloud-provider-config": "secret://a:b", "audit-policy-file": {"a": [1, null]}, "kubelet-arg": {"v": 2}}`,
		`{"rke2-calico": {"felixConfiguration": 7}}`, "", "x")
	f.Fuzz(func(t *testing.T, global, charts, manifest, addresses string) {
		in := machineOf(t, rke2, "a", "ecwi")
		if json.Unmarshal([]byte(global), &in.Cluster.Spec.MachineGlobalConfig) != nil ||
			json.Unmarshal([]byte(charts), &in.Cluster.Spec.ChartValues) != nil {
			return
		}
		in.Cluster.Spec.AdditionalManifest = manifest
		in.Machine.InternalAddresses = strings.Split(addresses, ",")
		plan, problems := Plan(in)
		if (plan.Error == "") != (problems.Err() == nil) {
			t.Errorf("error %q, problems %v", plan.Error, problems)
		}
		in.Delivered = plan
		again, _ := Plan(in)
		if encoded(t, plan) != encoded(t, again) {
			t.Error("two renders of one input differ")
		}
	})
}

// Whatever value an argument is given, it becomes one that a configuration file can hold, or an error that does not repeat it.
func FuzzCoerce(f *testing.F) {
	for _, value := range []string{`true`, `"x"`, `7`, `1.5e300`, `["a", {"b": null}]`, `{"a": [1]}`, `null`} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var value any
		if json.Unmarshal([]byte(raw), &value) != nil {
			return
		}
		for _, argType := range []release.ArgType{release.String, release.Bool, release.Int, release.List, release.Any} {
			got, err := coerce(argType, value)
			if err != nil {
				continue
			}
			switch got.(type) {
			case string, bool, int64, []string:
			default:
				t.Errorf("%s as %s is a %T", raw, argType, got)
			}
		}
	})
}

// What agents and Docker have written is read or refused, and never more.
func FuzzForeign(f *testing.F) {
	f.Add([]byte(`{"members":[{"name":"a","clientURLs":["https://10.0.0.1:2379"]}]}`), "docker.io")
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}`), "docker.io")
	f.Fuzz(func(t *testing.T, raw []byte, host string) {
		CapturedAddress(map[string]plans.PeriodicOutput{captureAddress: {Stdout: raw}, etcdName: {Stdout: []byte("a")}})
		first, ok := dockerAuth(raw, host)
		if again, okAgain := dockerAuth(raw, host); first != again || ok != okAgain {
			t.Errorf("read %v and then %v", ok, okAgain)
		}
	})
}
