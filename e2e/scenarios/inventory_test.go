//go:build e2e

package scenarios

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// inventory lists every object in the hub's API, of every kind that can be listed, as "resource namespace/name".
func inventory(t *testing.T) []string {
	t.Helper()
	config, err := shared.HubConfig()
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := kinds.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "leases" {
				continue
			}
			found, err := objects.Resource(gv.WithResource(resource.Name)).List(t.Context(), v1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s of %s: %v", resource.Name, gv, err)
			}
			for _, o := range found.Items {
				out = append(out, fmt.Sprintf("%s.%s %s/%s", resource.Name, gv.Group, o.Namespace, o.Name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// added are the lines of after that before does not have.
func added(before, after []string) []string {
	var out []string
	for _, line := range after {
		if !slices.Contains(before, line) {
			out = append(out, line)
		}
	}
	return out
}
