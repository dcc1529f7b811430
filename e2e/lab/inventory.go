package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// Inventory is every object in the hub's API, of every kind that can be listed: its version by
// "resource.group namespace/name". Events and leases are left out: they appear and disappear while nothing changes.
func (l *Lab) Inventory(ctx context.Context) (map[string]string, error) {
	config, err := l.HubConfig()
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := kinds.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("asking the hub for its kinds: %w", err)
	}
	out := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "leases" {
				continue
			}
			found, err := objects.Resource(gv.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s of %s: %w", resource.Name, gv, err)
			}
			for _, o := range found.Items {
				out[fmt.Sprintf("%s.%s %s/%s", resource.Name, gv.Group, o.Namespace,
					o.Name)] = o.ResourceVersion + seenMark + o.Annotations[agentLastSeen]
			}
		}
	}
	return out, nil
}

// agentLastSeen is the annotation by which the hub records, every few minutes, that the agent of a member of etcd is there: a heartbeat, as
// Leases are.
const agentLastSeen = "rke.cattle.io/agent-last-seen"

// seenMark is between the version of an object and that record.
const seenMark = " seen "

// Written lists what was written between two inventories, without records of agents, sorted. What is gone is marked as deleted.
func Written(before, after map[string]string) []string {
	var out []string
	for name, now := range after {
		was, known := before[name]
		_, seenBefore, _ := strings.Cut(was, seenMark)
		_, seenNow, _ := strings.Cut(now, seenMark)
		if was != now && (!known || seenBefore == seenNow) {
			out = append(out, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			out = append(out, name+" (deleted)")
		}
	}
	slices.Sort(out)
	return out
}
