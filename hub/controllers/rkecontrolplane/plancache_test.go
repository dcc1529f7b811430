package rkecontrolplane

import (
	"encoding/base64"
	"slices"
	"testing"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// TestKeptPlans: what was decoded and rendered of machines that are as they were is used again, and nothing of others.
func TestKeptPlans(t *testing.T) {
	r, in, next := bigCluster(t, 4)
	reconcile := func(change func(*scope)) map[string]*machine {
		t.Helper()
		s := next()
		if change != nil {
			change(s)
		}
		if err := r.reconcileInMemory(s); err != nil {
			t.Fatal(err)
		}
		found := map[string]*machine{}
		for _, m := range s.machines {
			found[m.machine.Name] = m
		}
		return found
	}
	first := reconcile(nil)

	same := reconcile(nil)
	for name, m := range same {
		if m.known != first[name].known || m.known.inputs != first[name].known.inputs || m.state.Change != rollout.ChangeNone {
			t.Errorf("%s was read or rendered again", name)
		}
	}

	secret := &in.secrets.Items[3]
	secret.ResourceVersion, secret.Data = "2", map[string][]byte{plans.KeyPlan: secret.Data[plans.KeyPlan]}
	reported := reconcile(nil)
	if m := reported["m0003"]; m.known == first["m0003"].known || m.state.Progress != rollout.ProgressPending {
		t.Errorf("the report of m0003 is the old one: %+v", m.state)
	}
	if reported["m0002"].known != first["m0002"].known {
		t.Error("the report of m0002 was read again")
	}

	in.machines.Items[2].Status.Addresses[0].Address = "10.9.9.9"
	moved := reconcile(nil)
	if m := moved["m0002"]; m.state.Change == rollout.ChangeNone {
		t.Error("another address makes no other plan")
	}
	if m := moved["m0001"]; m.known.inputs != reported["m0001"].known.inputs {
		t.Error("the plan of m0001 was rendered again")
	}

	for name, m := range reconcile(func(s *scope) { s.controlPlane.Spec.ProvisionGeneration = 7 }) {
		if m.state.Change == rollout.ChangeNone {
			t.Errorf("the plan of %s does not have what is wanted of the cluster now", name)
		}
	}
	for name, m := range reconcile(nil) {
		if name != "m0002" && m.state.Change != rollout.ChangeNone {
			t.Errorf("the plan of %s has what was wanted before", name)
		}
	}

	in.machines.Items, in.bootstraps.Items = in.machines.Items[:3], in.bootstraps.Items[:3]
	reconcile(nil)
	if kept := len(r.plans.of(controlPlaneKey).machines); kept != 3 {
		t.Errorf("%d machines are kept, want 3", kept)
	}
}

// TestNodeAddressesAreReadOnce: the configuration in a delivered plan is decoded once, and what a reconcile does to the addresses does not
// stay.
func TestNodeAddressesAreReadOnce(t *testing.T) {
	delivered := func(config string) plans.Plan {
		return plans.Plan{Files: []plans.File{{Path: "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
			Content: base64.StdEncoding.EncodeToString([]byte(config))}}}
	}
	known := &machinePlan{}
	for _, config := range []string{`{"node-ip": ["10.0.0.1"], "node-external-ip": ["203.0.113.1"]}`, `{"node-ip": ["10.0.0.2"]}`} {
		internal, external := known.nodeAddresses(delivered(config))
		if !slices.Equal(internal, []string{"10.0.0.1"}) || !slices.Equal(external, []string{"203.0.113.1"}) {
			t.Errorf("of %s: got %v and %v", config, internal, external)
		}
		clear(internal)
	}
	known = nil
	if internal, _ := known.nodeAddresses(delivered(`{"node-ip": ["10.0.0.2"]}`)); !slices.Equal(internal, []string{"10.0.0.2"}) {
		t.Errorf("got %v", internal)
	}
}
