// Package provider names the Cluster API providers that a hub consists of. One process may run all of them, or each may have a Deployment
// of its own, as clusterctl installs them. It must not know which controllers a provider has.
package provider

import (
	"fmt"
	"slices"
	"strings"
)

// Provider is one of the providers, by the name of its type.
type Provider string

// The providers.
const (
	// Bootstrap has the bootstrap data of machines.
	Bootstrap Provider = "bootstrap"
	// ControlPlane has everything that is of a whole cluster, the gateway and, where the hub runs Cluster API itself, Cluster API's core.
	ControlPlane Provider = "control-plane"
	// Infrastructure has custom machines.
	Infrastructure Provider = "infrastructure"
)

// Label is the key of the label that names the provider of a definition. Source: clusterctl's provider contract.
const Label = "cluster.x-k8s.io/provider"

// Value returns the value of Label for the objects of the provider, which is also the name of its directory in a repository of clusterctl.
func (p Provider) Value() string { return string(p) + "-drover" }

// Set is the providers that a process runs, in the order of All and without duplicates. The empty Set stands for all of them.
type Set []Provider

// All returns all providers, in the order in which clusterctl installs them.
func All() Set { return Set{Bootstrap, ControlPlane, Infrastructure} }

// Names returns the names of the providers of the Set.
func (s Set) Names() []string {
	var names []string
	for _, p := range All() {
		if s.Has(p) {
			names = append(names, string(p))
		}
	}
	return names
}

// Has returns whether the Set has a provider.
func (s Set) Has(p Provider) bool { return len(s) == 0 || slices.Contains(s, p) }

// Complete returns whether the Set has all providers.
func (s Set) Complete() bool { return len(s.Names()) == len(All()) }

// Parse returns the Set of these names. It returns an error for a name that no provider has, and for no name at all.
func Parse(names []string) (Set, error) {
	wanted := Set{}
	for _, name := range names {
		if !slices.Contains(All(), Provider(name)) {
			return nil, fmt.Errorf("must be a list of %s, got %q", strings.Join(All().Names(), ", "), name)
		}
		wanted = append(wanted, Provider(name))
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("must name at least one of %s", strings.Join(All().Names(), ", "))
	}
	return slices.DeleteFunc(All(), func(p Provider) bool { return !slices.Contains(wanted, p) }), nil
}
