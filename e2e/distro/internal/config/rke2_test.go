package config

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour/flavourtest"
)

// TestKeysOfReleases holds the keys against what the hub knows of releases: what it accepts, the distribution must.
func TestKeysOfReleases(t *testing.T) {
	for _, f := range []flavour.Flavour{flavour.K3s, flavour.RKE2} {
		raw, err := os.ReadFile("../../../../hub/plan/release/data/" + f.Program + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var data struct {
			Agent, Server map[string][]string
			Until         map[string]int
		}
		if err := yaml.Unmarshal(raw, &data); err != nil {
			t.Fatal(err)
		}
		taken, missing := table(f), []string(nil)
		for _, role := range []map[string][]string{data.Agent, data.Server} {
			for _, names := range role {
				for _, name := range names {
					if _, ok := taken[name]; !ok && data.Until[name] == 0 {
						missing = append(missing, name)
					}
				}
			}
		}
		slices.Sort(missing)
		if len(missing) > 0 {
			t.Errorf("%s does not take %v", f.Program, missing)
		}
	}
	for _, name := range notRKE2 {
		if _, ok := table(flavour.K3s)[name]; !ok {
			t.Errorf("%s is no key of k3s either", name)
		}
	}
}

func TestRKE2(t *testing.T) {
	if !flavourtest.AsRKE2(t) {
		return
	}
	file := write(t, map[string]string{"config.yaml": "cni: [multus, calico]\nkube-scheduler-extra-mount: [\"/a:/a\"]\netcd-extra-env: A=b\nprofile: cis"})
	c, err := Load(Server, file, nil, env("RKE2_TOKEN", "t", "K3S_NODE_NAME", "n"))
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.DataDir, c.SupervisorPort, c.HTTPSPort, c.CNI, c.SecretsEncryption, c.Token, c.NodeName != "n", c.WriteKubeconfig,
		c.ExtraMounts["kube-scheduler"], c.ExtraEnv["etcd"], c.Ignored()}
	want := []any{"/var/lib/rancher/rke2", 9345, 6443, []string{"multus", "calico"}, true, "t", true, "/etc/rancher/rke2/rke2.yaml",
		[]string{"/a:/a"}, []string{"A=b"}, []string{"profile"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c, err = Load(Server, write(t, nil), nil, env()); err != nil || !slices.Equal(c.CNI, []string{"canal"}) {
		t.Errorf("%v, %v", c.CNI, err)
	}
	if _, err := Load(Server, write(t, map[string]string{"config.yaml": "cluster-init: true"}), nil, env()); err == nil {
		t.Error("a key of k3s was taken")
	}
}
