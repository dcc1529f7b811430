package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// deleted lists the paths that a plan removes.
func deleted(plan plans.Plan) []string {
	var paths []string
	for _, f := range plan.Files {
		if f.Action == plans.ActionDelete {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// A file that is no longer wanted goes, stays listed as gone for as long as it is not wanted, and comes back when it is wanted again.
func TestRemoval(t *testing.T) {
	in := everything(t, "v1.36.3+k3s1")
	with, _ := Plan(in)

	without := in
	without.Cluster.Spec.MachineSelectorFiles, without.Cluster.Spec.Registries = nil, nil
	without.Delivered = with
	removed, _ := Plan(without)
	want := []string{
		"/data/k3s/etc/tls/registries/registry.example.com:5000/ca.crt", "/data/k3s/etc/tls/registries/registry.example.com:5000/tls.crt",
		"/data/k3s/etc/tls/registries/registry.example.com:5000/tls.key", "/etc/one", "/etc/rancher/agent/registries.yaml",
		"/etc/rancher/k3s/registries.yaml", "/etc/three", "/etc/two",
	}
	if diff := cmp.Diff(want, deleted(removed)); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if err := removed.Validate(); err != nil {
		t.Error(err)
	}
	if got := ImpactOf(with, removed); got != ImpactDrain {
		t.Errorf("the impact is %s: files that need a restart are gone", got)
	}

	without.Delivered = removed
	again, _ := Plan(without)
	if diff := cmp.Diff(encoded(t, removed), encoded(t, again)); diff != "" {
		t.Errorf("the second render differs:\n%s", diff)
	}

	in.Delivered = again
	back, _ := Plan(in)
	if diff := cmp.Diff(encoded(t, with), encoded(t, back)); diff != "" {
		t.Errorf("what is wanted again is not all there:\n%s", diff)
	}
}

// Neither the cluster's authorities nor folders are ever removed.
func TestKept(t *testing.T) {
	in := Inputs{Cluster: cluster(t, "v1.36.3+k3s1"), Machine: node("a", "ecwi")}
	delivered, _ := Plan(in)
	in.Cluster.CA = CA{}
	in.Delivered = delivered
	in.Delivered.Files = append(in.Delivered.Files, plans.File{Path: "/etc/folder", Directory: true})
	if plan, _ := Plan(in); len(deleted(plan)) > 0 {
		t.Errorf("removed %v", deleted(plan))
	}
}

// A file that needs no restart goes without one.
func TestRemovalOfDynamicFile(t *testing.T) {
	in := Inputs{Cluster: cluster(t, "v1.36.3+k3s1"), Machine: node("a", "ecwi")}
	in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"a": []byte("1")}, AuthorizedFor: "prod"}}
	in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
		{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map", Items: []rkev1.KeyToPath{{Key: "a", Path: "/etc/a", Dynamic: true}}}},
	}}}
	with, _ := Plan(in)
	in.Cluster.Spec.MachineSelectorFiles, in.Delivered = nil, with
	without, _ := Plan(in)
	if diff := cmp.Diff([]string{"/etc/a"}, deleted(without)); diff != "" {
		t.Error(diff)
	}
	if got := ImpactOf(with, without); got != ImpactNone {
		t.Errorf("the impact is %s", got)
	}
}
