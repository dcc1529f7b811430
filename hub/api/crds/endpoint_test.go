package crds

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// TestEndpointOfBefore: an RKEControlPlane that has had a host without a port since before that was refused can be changed elsewhere.
func TestEndpointOfBefore(t *testing.T) {
	structural, rules := rulesOf(t, "rkecontrolplanes.rke.cattle.io")
	object := func(version string, endpoint map[string]any) map[string]any {
		return map[string]any{"apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane",
			"metadata": map[string]any{"name": "one", "namespace": "fleet"},
			"spec":     map[string]any{"kubernetesVersion": version, "controlPlaneEndpoint": endpoint}}
	}
	const before, after = "v1.36.2+k3s1", "v1.36.3+k3s1"
	half := map[string]any{"host": "lb.example.com"}
	for name, tc := range map[string]struct {
		before, after map[string]any
		refused       bool
	}{
		"created":             {nil, object(after, half), true},
		"changed elsewhere":   {object(before, half), object(after, half), false},
		"another half of one": {object(before, half), object(before, map[string]any{"port": int64(6443)}), true},
		"corrected":           {object(before, half), object(before, map[string]any{"host": "lb.example.com", "port": int64(6443)}), false},
	} {
		var old any
		var options []cel.Option
		if tc.before != nil {
			old = tc.before
			options = append(options, cel.WithRatcheting(common.NewCorrelatedObject(tc.after, old, &model.Structural{Structural: structural})))
		}
		errs, _ := rules.Validate(t.Context(), nil, structural, tc.after, old, celconfig.RuntimeCELCostBudget, options...)
		if (len(errs) > 0) != tc.refused {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
