package rkecontrolplane

import (
	"fmt"
	"strings"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
)

// ignoresNetwork warns of ranges and a domain in the Cluster of Cluster API that the machines do not have. Other control plane providers
// take them from there, while k3s and RKE2 take arguments here, and a cluster that has started keeps what it started with. The port in
// apiServerPort is not among them: providers of load balancers listen there, whatever the servers do.
func (s *scope) ignoresNetwork() render.Problems {
	if s.cluster == nil || s.controlPlane.Spec.UnmanagedConfig {
		return nil
	}
	network := s.cluster.Spec.ClusterNetwork
	var out render.Problems
	for _, field := range []struct{ path, arg, unset, wanted string }{
		{"pods", "cluster-cidr", "10.42.0.0/16", strings.Join(network.Pods.CIDRBlocks, ",")},
		{"services", "service-cidr", "10.43.0.0/16", strings.Join(network.Services.CIDRBlocks, ",")},
		{"serviceDomain", "cluster-domain", "cluster.local", network.ServiceDomain},
	} {
		if field.wanted == "" || hasArgument(s.controlPlane.Spec, field.arg, field.unset, field.wanted) {
			continue
		}
		out = append(out, render.Problem{Field: "Cluster.cluster.x-k8s.io spec.clusterNetwork." + field.path, Kept: true,
			Message: fmt.Sprintf("no machine uses %q: set %s in machineGlobalConfig of the RKEControlPlane, before the cluster starts",
				field.wanted, field.arg)})
	}
	return out
}

// hasArgument reports whether a machine has a value for an argument; where none is set, k3s and RKE2 have their own. Several values are
// separated by commas.
func hasArgument(spec rkev1.RKEControlPlaneSpec, arg, unset, wanted string) bool {
	configs := []rkev1.GenericMap{spec.MachineGlobalConfig}
	for _, selected := range spec.MachineSelectorConfig {
		configs = append(configs, selected.Config)
	}
	isSet := false
	for _, config := range configs {
		value := config.Data[arg]
		if value == nil {
			continue
		}
		isSet = true
		// A list prints as [one two].
		values := strings.FieldsFunc(fmt.Sprint(value), func(r rune) bool { return strings.ContainsRune("[], ", r) })
		if strings.Join(values, ",") == wanted {
			return true
		}
	}
	return !isSet && unset == wanted
}

// awaitsTopology warns of a cluster that is to start with the machines of a topology. Cluster API creates none of the MachineDeployments of
// a topology before the control plane has reported a version, and here the control plane is on machines of MachineDeployments itself.
func (s *scope) awaitsTopology() render.Problems {
	if s.cluster == nil || !s.cluster.Spec.Topology.IsDefined() || s.bootstrapped() {
		return nil
	}
	return render.Problems{{Field: "Cluster.cluster.x-k8s.io spec.topology", Kept: true, Message: "Cluster API creates its " +
		"MachineDeployments only when the control plane has reported a version, and the cluster starts with a machine of each role: create " +
		"these machines with MachineDeployments that are not part of the topology"}}
}
