package rkecontrolplane

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestIgnoresNetwork: what spec.clusterNetwork of the Cluster of Cluster API asks for and the machines do not have is warned of.
func TestIgnoresNetwork(t *testing.T) {
	pods := func(blocks ...string) clusterv1.ClusterNetwork {
		return clusterv1.ClusterNetwork{Pods: clusterv1.NetworkRanges{CIDRBlocks: blocks}}
	}
	of := func(key string, value any) rkev1.GenericMap {
		return rkev1.GenericMap{Data: map[string]any{key: value}}
	}
	for name, tc := range map[string]struct {
		network clusterv1.ClusterNetwork
		global  rkev1.GenericMap
		some    rkev1.GenericMap
		want    string
	}{
		"nothing is asked for":    {},
		"what k3s has":            {network: pods("10.42.0.0/16")},
		"another range":           {network: pods("10.45.0.0/16"), want: `clusterNetwork.pods: no machine uses "10.45.0.0/16": set cluster-cidr`},
		"the argument has it":     {network: pods("10.45.0.0/16"), global: of("cluster-cidr", "10.45.0.0/16")},
		"the argument has others": {network: pods("10.45.0.0/16"), global: of("cluster-cidr", "10.46.0.0/16"), want: "10.45.0.0/16"},
		"the default is replaced": {network: pods("10.42.0.0/16"), global: of("cluster-cidr", "10.46.0.0/16"), want: "10.42.0.0/16"},
		"the argument is null":    {network: pods("10.42.0.0/16"), global: of("cluster-cidr", nil)},
		"both families, as a list": {
			network: pods("10.45.0.0/16", "fd01::/48"), global: of("cluster-cidr", []any{"10.45.0.0/16", "fd01::/48"}),
		},
		"both families, as a text": {
			network: pods("10.45.0.0/16", "fd01::/48"), global: of("cluster-cidr", "10.45.0.0/16, fd01::/48"),
		},
		"machines that are selected have it": {network: pods("10.45.0.0/16"), some: of("cluster-cidr", "10.45.0.0/16")},
		"services": {
			network: clusterv1.ClusterNetwork{Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.46.0.0/16"}}}, want: "set service-cidr",
		},
		"the domain":           {network: clusterv1.ClusterNetwork{ServiceDomain: "example.internal"}, want: "set cluster-domain"},
		"the domain k3s has":   {network: clusterv1.ClusterNetwork{ServiceDomain: "cluster.local"}},
		"a load balancer port": {network: clusterv1.ClusterNetwork{APIServerPort: 443}},
	} {
		s := scopeWithMachines()
		s.cluster.Spec.ClusterNetwork = tc.network
		s.controlPlane.Spec.MachineGlobalConfig = tc.global
		s.controlPlane.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: tc.some}}
		got := s.ignoresNetwork()
		warned := len(got) == 1 && got[0].Kept && !got[0].Fatal && strings.Contains(got[0].String(), tc.want)
		if tc.want == "" && len(got) > 0 || tc.want != "" && !warned {
			t.Errorf("%s: got %v", name, got)
		}
	}
	s := scopeWithMachines()
	s.cluster.Spec.ClusterNetwork, s.controlPlane.Spec.UnmanagedConfig = pods("10.45.0.0/16"), true
	if got := s.ignoresNetwork(); len(got) != 0 {
		t.Errorf("the configuration is another's: got %v", got)
	}
	// A preview of an RKEControlPlane that nobody owns yet has no Cluster.
	s.cluster, s.controlPlane.Spec.UnmanagedConfig = nil, false
	if got := s.ignoresNetwork(); len(got) != 0 {
		t.Errorf("without a Cluster: got %v", got)
	}
}

// TestAwaitsTopology: a cluster that has not started says that Cluster API makes no machines of its topology yet.
func TestAwaitsTopology(t *testing.T) {
	s := scopeWithMachines()
	if got := s.awaitsTopology(); len(got) != 0 {
		t.Errorf("without a topology: got %v", got)
	}
	s.cluster.Spec.Topology.Version = "v1.36.3+k3s1"
	got := s.awaitsTopology()
	if len(got) != 1 || !got[0].Kept || got[0].Fatal || !strings.Contains(got[0].String(), "spec.topology: Cluster API creates its") {
		t.Errorf("before the start: got %v", got)
	}
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = new(true)
	if got := s.awaitsTopology(); len(got) != 0 {
		t.Errorf("of a cluster that has started: got %v", got)
	}
	s.cluster, s.controlPlane.Status.Initialization.ControlPlaneInitialized = nil, nil
	if got := s.awaitsTopology(); len(got) != 0 {
		t.Errorf("without a Cluster: got %v", got)
	}
}
