package provider

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

// newScope is a LabMachine whose host may be made.
func newScope(change func(*machineScope)) *machineScope {
	s := &machineScope{
		labMachine: &labv1.LabMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}},
		machine: &clusterv1.Machine{Spec: clusterv1.MachineSpec{FailureDomain: "east",
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("s")}}},
		cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	}
	s.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if change != nil {
		change(s)
	}
	return s
}

func provisioned(s *machineScope) { s.labMachine.Status.Initialization.Provisioned = ptr.To(true) }

func TestMachineStatus(t *testing.T) {
	on := observation{exists: true, on: true, address: "10.88.0.11", providerID: "lab://l/m"}
	for _, tt := range []struct {
		name        string
		scope       *machineScope
		hostOn      string
		bootstrap   string
		ready       string
		provisioned bool
		message     string
	}{
		{name: "nobody owns it", scope: newScope(func(s *machineScope) { s.machine = nil }), hostOn: "WaitingForOwner", bootstrap: "NotStarted",
			ready: "WaitingForOwner"},
		{name: "its Cluster is not known", scope: newScope(func(s *machineScope) { s.cluster = nil }), hostOn: "WaitingForOwner",
			bootstrap: "NotStarted", ready: "WaitingForOwner"},
		{name: "no infrastructure", scope: newScope(func(s *machineScope) { s.cluster.Status.Initialization.InfrastructureProvisioned = nil }),
			hostOn: "WaitingForClusterInfrastructure", bootstrap: "NotStarted", ready: "WaitingForClusterInfrastructure", message: "Cluster c"},
		{name: "no bootstrap data", scope: newScope(func(s *machineScope) { s.machine.Spec.Bootstrap.DataSecretName = nil }),
			hostOn: "WaitingForBootstrapData", bootstrap: "NotStarted", ready: "WaitingForBootstrapData"},
		{name: "the host cannot be made", scope: newScope(func(s *machineScope) { s.failed = errors.New("the lab is full") }),
			hostOn: "HostFailed", bootstrap: "NotStarted", ready: "HostFailed", message: "the lab is full"},
		{name: "it was just turned on", scope: newScope(func(s *machineScope) { s.host = observation{exists: true} }),
			hostOn: "Starting", bootstrap: "Running", ready: "Starting"},
		{name: "it runs its bootstrap data", scope: newScope(func(s *machineScope) { s.host = on }), hostOn: "On", bootstrap: "Running",
			ready: "Running", provisioned: true},
		{name: "its bootstrap data has failed", scope: newScope(func(s *machineScope) {
			s.host = on
			s.host.bootstrapEnded, s.host.bootstrapErrors = true, []string{"runcmd failed"}
		}), hostOn: "On", bootstrap: "Failed", ready: "Failed", provisioned: true, message: "runcmd failed"},
		{name: "all is done", scope: newScope(func(s *machineScope) {
			s.host = on
			s.host.sentinel = true
		}), hostOn: "On", bootstrap: "Finished", ready: "Provisioned", provisioned: true},
		{name: "it was turned off later", scope: newScope(func(s *machineScope) {
			provisioned(s)
			s.host = observation{exists: true}
			conditions.Set(s.labMachine, metav1.Condition{Type: labv1.BootstrapFinishedCondition, Status: metav1.ConditionTrue, Reason: "Finished"})
		}), hostOn: "Off", bootstrap: "Finished", ready: "Off", provisioned: true},
		{name: "somebody removed it", scope: newScope(provisioned), hostOn: "Gone", bootstrap: "NotStarted", ready: "Gone", provisioned: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setMachineStatus(tt.scope)
			m := tt.scope.labMachine
			for kind, want := range map[string]string{labv1.HostOnCondition: tt.hostOn, labv1.BootstrapFinishedCondition: tt.bootstrap,
				labv1.ReadyCondition: tt.ready} {
				if got := conditions.Get(m, kind); got.Reason != want {
					t.Errorf("%s is %s with reason %s, want %s", kind, got.Status, got.Reason, want)
				}
			}
			if got := conditions.GetMessage(m, labv1.ReadyCondition); !strings.Contains(got, tt.message) {
				t.Errorf("Ready says %q, want %q in it", got, tt.message)
			}
			if got := tt.scope.provisioned(); got != tt.provisioned {
				t.Errorf("provisioned is %t", got)
			}
			if ready := conditions.IsTrue(m, labv1.ReadyCondition); ready != (tt.ready == labv1.ProvisionedReason) {
				t.Errorf("Ready is %t", ready)
			}
			if !tt.scope.host.on {
				return
			}
			if m.Spec.ProviderID != "lab://l/m" || m.Status.FailureDomain != "east" || len(m.Status.Addresses) != 2 {
				t.Errorf("the host is not told: %q, %+v", m.Spec.ProviderID, m.Status)
			}
		})
	}
}

func TestDeletingStatusSaysWhatWentWrong(t *testing.T) {
	s := newScope(func(s *machineScope) {
		s.labMachine.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		s.failed = errors.New("busy")
	})
	setMachineStatus(s)
	if got := conditions.GetMessage(s.labMachine, clusterv1.DeletingCondition); got != "busy" {
		t.Errorf("Deleting says %q", got)
	}
	if conditions.IsTrue(s.labMachine, labv1.ReadyCondition) {
		t.Error("a LabMachine that is being deleted is Ready")
	}
}

func TestLookAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		host observation
		want time.Duration
	}{
		"no host":         {},
		"it boots":        {host: observation{exists: true}, want: bootstrapInterval},
		"bootstrap runs":  {host: observation{exists: true, on: true}, want: bootstrapInterval},
		"bootstrap ended": {host: observation{exists: true, on: true, sentinel: true}, want: powerInterval},
	} {
		if got := newScope(func(s *machineScope) { s.host = tt.host }).lookAgain().RequeueAfter; got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestTagLines(t *testing.T) {
	if got := tagLines(map[string]string{"b": "2", "a": "1"}); got != "a=1\nb=2\n" {
		t.Errorf("%q", got)
	}
}
