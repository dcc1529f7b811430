package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProviderID(t *testing.T) {
	const k3s, rke2 = "v1.36.3+k3s1", "v1.36.3+rke2r1"
	tests := map[string]struct {
		version, id, config string
		want                []string
	}{
		"none known":              {k3s, "", `{}`, nil},
		"k3s":                     {k3s, "lab://one", `{}`, []string{"provider-id=lab://one"}},
		"rke2":                    {rke2, "lab://one", `{}`, []string{"provider-id=lab://one"}},
		"beside others":           {rke2, "lab://one", `{"kubelet-arg": ["max-pods=50"]}`, []string{"max-pods=50", "provider-id=lab://one"}},
		"the user's own":          {k3s, "lab://one", `{"kubelet-arg": "provider-id=mine"}`, []string{"provider-id=mine"}},
		"the user's own appended": {k3s, "lab://one", `{"kubelet-arg+": ["provider-id=mine"]}`, nil},
		"a cloud provider":        {rke2, "lab://one", `{"cloud-provider-name": "aws"}`, nil},
		"a cloud controller":      {k3s, "lab://one", `{"kubelet-arg": ["cloud-provider=external"]}`, []string{"cloud-provider=external"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Cluster: cluster(t, tc.version), Machine: node("w", "w"), JoinURL: "https://10.0.0.9:6443"}
			in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
			in.Machine.ProviderID = tc.id
			b := builder{Inputs: in}
			b.mergeArgs()
			b.addConfig()
			if diff := cmp.Diff(tc.want, b.args.list("kubelet-arg")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
