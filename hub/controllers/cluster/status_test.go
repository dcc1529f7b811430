package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

func poolSpec(name string) *provisioningv1.RKEMachinePool {
	return &provisioningv1.RKEMachinePool{Name: name, Quantity: ptr.To[int32](2)}
}

// deployment is a MachineDeployment that has machines, all of them available and some of them up to date.
func deployment(machines, upToDate int32) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{Status: clusterv1.MachineDeploymentStatus{
		Replicas: ptr.To(machines), AvailableReplicas: ptr.To(machines), UpToDateReplicas: ptr.To(upToDate)}}
}

// ofEarlierTemplate is a MachineSet of an earlier machine template that has machines.
func ofEarlierTemplate(machines int32) *clusterv1.MachineSet {
	set := &clusterv1.MachineSet{Status: clusterv1.MachineSetStatus{Replicas: ptr.To(machines)}}
	set.Spec.Template.Spec.InfrastructureRef.Name = "earlier"
	return set
}

// ofTemplate is a MachineSet of the present machine template that has machines.
func ofTemplate(machines int32) *clusterv1.MachineSet {
	return &clusterv1.MachineSet{Status: clusterv1.MachineSetStatus{Replicas: ptr.To(machines)}}
}

// ofRevision gives a MachineDeployment or a MachineSet a revision.
func ofRevision[T metav1.Object](object T, revision string) T {
	object.SetAnnotations(map[string]string{clusterv1.RevisionAnnotation: revision})
	return object
}

// TestStatus compares what a user sees: type=status/reason of every condition, and the message of Ready.
func TestStatus(t *testing.T) {
	cp := func(ready metav1.ConditionStatus, reason, message string, initialized bool) *rkev1.RKEControlPlane {
		return &rkev1.RKEControlPlane{
			ObjectMeta: metav1.ObjectMeta{Generation: 2},
			Status: rkev1.RKEControlPlaneStatus{
				ObservedGeneration: 2,
				Initialization:     rkev1.RKEControlPlaneInitializationStatus{ControlPlaneInitialized: ptr.To(initialized)},
				Conditions:         []metav1.Condition{{Type: "Ready", Status: ready, Reason: reason, Message: message}},
			},
		}
	}
	behind := cp("True", "Ready", "", true)
	behind.Generation = 3
	provisioned := testCluster()
	provisioned.Status.Conditions = []metav1.Condition{{Type: "Provisioned", Status: "True", Reason: "Provisioned"}}
	reconciling := testCluster()
	reconciling.Status.Conditions = []metav1.Condition{{Type: "Reconciling", Status: "True", Reason: "WaitingForControlPlane"}}
	deleted := testCluster()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	deleted.Status.Conditions = slices.Clone(reconciling.Status.Conditions)
	pooled := testCluster()
	pooled.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*poolSpec("a"), *poolSpec("b")}
	running := pooled.DeepCopy()
	running.Status.Conditions = []metav1.Condition{{Type: "MachinePoolsReady", Status: "True", Reason: "MachinePoolsReady"},
		{Type: "Provisioned", Status: "True", Reason: "Provisioned"}}
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh"}}

	for _, tt := range []struct {
		name    string
		scope   scope
		want    map[string]string
		message string
		ready   bool
	}{
		{
			name:  "at the beginning",
			scope: scope{cluster: testCluster(), created: cause.New("WaitingForName", "Waiting for a name")},
			want: map[string]string{"Created": "False/WaitingForName", "RKECluster": "True/Accepted", "Ready": "False/WaitingForName",
				"Updated": "False/WaitingForControlPlane", "Provisioned": "False/WaitingForName",
				"Reconciling": "True/WaitingForControlPlane"},
			message: "Waiting for a name",
		},
		{
			name: "bad spec of a new cluster",
			scope: scope{cluster: testCluster(), management: management, invalid: []*cause.Cause{cause.New("UnknownVersion", "no"),
				cause.New("Other", "nor this")}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/UnknownVersion", "Ready": "False/UnknownVersion",
				"Updated": "False/UnknownVersion", "Provisioned": "False/UnknownVersion",
				"Reconciling": "True/UnknownVersion"},
			message: "no; nor this",
		},
		{
			name: "bad spec of a running cluster",
			scope: scope{cluster: provisioned.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true),
				invalid: []*cause.Cause{cause.New("UnknownVersion", "no")}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/UnknownVersion", "Ready": "True/Ready",
				"Updated": "False/UnknownVersion", "Provisioned": "True/Provisioned",
				"Reconciling": "True/UnknownVersion"},
			ready: true,
		},
		{
			name: "bad spec of a running cluster with pools",
			scope: scope{cluster: running, management: management, controlPlane: cp("True", "Ready", "", true),
				invalid: []*cause.Cause{cause.New("UnknownVersion", "no")}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/UnknownVersion", "Ready": "True/Ready",
				"MachinePoolsReady": "True/MachinePoolsReady", "Updated": "False/UnknownVersion", "Provisioned": "True/Provisioned",
				"Reconciling": "True/UnknownVersion"},
			ready: true,
		},
		{
			name: "bad spec of a running cluster that gets its first pools",
			scope: scope{cluster: pooled.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true),
				invalid: []*cause.Cause{cause.New("UnknownVersion", "no")}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/UnknownVersion", "Ready": "True/Ready",
				"Updated": "False/UnknownVersion", "Provisioned": "True/Provisioned", "Reconciling": "True/UnknownVersion"},
			ready: true,
		},
		{
			name: "bad spec of a new cluster with pools",
			scope: scope{cluster: pooled.DeepCopy(), management: management,
				invalid: []*cause.Cause{cause.New("UnknownVersion", "no")}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/UnknownVersion", "Ready": "False/UnknownVersion",
				"MachinePoolsReady": "Unknown/WaitingForControlPlane", "Updated": "False/UnknownVersion", "Provisioned": "False/UnknownVersion",
				"Reconciling": "True/UnknownVersion"},
			message: "no",
		},
		{
			name: "machines missing",
			scope: scope{cluster: testCluster(), management: management, controlPlane: cp("False", "WaitingForMachines", "Waiting for machines",
				false)},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "False/WaitingForMachines",
				"Updated": "False/WaitingForMachines", "Provisioned": "False/WaitingForMachines",
				"Reconciling": "True/WaitingForMachines"},
			message: "Waiting for machines",
		},
		{
			name:  "change not taken up yet",
			scope: scope{cluster: provisioned.DeepCopy(), management: management, controlPlane: behind},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Updated": "Unknown/WaitingForControlPlane", "Provisioned": "True/Provisioned",
				"Reconciling": "True/WaitingForControlPlane"},
			ready: true,
		},
		{
			name:  "change that the cache does not have yet",
			scope: scope{cluster: provisioned.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true), applied: 3},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Updated": "Unknown/WaitingForControlPlane", "Provisioned": "True/Provisioned",
				"Reconciling": "True/WaitingForControlPlane"},
			ready: true,
		},
		{
			name:  "done after a change",
			scope: scope{cluster: reconciling, management: management, controlPlane: cp("True", "Ready", "", true), applied: 2},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			ready: true,
		},
		{
			name:  "ready but never reached",
			scope: scope{cluster: testCluster(), management: management, controlPlane: cp("True", "Ready", "", false)},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Updated": "True/Ready", "Provisioned": "False/WaitingForInitialization"},
			ready: true,
		},
		{
			name:  "done",
			scope: scope{cluster: testCluster(), management: management, controlPlane: cp("True", "Ready", "", true)},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			ready: true,
		},
		{
			name: "trouble later on",
			scope: scope{cluster: provisioned.DeepCopy(), management: management, controlPlane: cp("Unknown", "Waiting", "Waiting for probes",
				true)},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "Unknown/Waiting",
				"Updated": "Unknown/Waiting", "Provisioned": "True/Provisioned",
				"Reconciling": "True/Waiting"},
			message: "Waiting for probes",
		},
		{
			name: "a pool with a problem and one on its way",
			scope: scope{cluster: pooled, management: management, controlPlane: cp("True", "Ready", "", true), pools: []*poolScope{
				{spec: poolSpec("a"), deployment: deployment(1, 1)},
				{spec: poolSpec("b"), problem: cause.New("MachineTemplateNotFound", "no template")},
			}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "False/MachineTemplateNotFound",
				"Ready":             "False/MachineTemplateNotFound",
				"MachinePoolsReady": "False/MachineTemplateNotFound", "Updated": "True/Ready", "Provisioned": "True/Provisioned",
				"Reconciling": "True/MachineTemplateNotFound"},
			message: "no template; Pool a: 1 of 2 machines are available",
		},
		{
			name: "a pool whose machines get another version in place",
			scope: scope{cluster: pooled.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true), pools: []*poolScope{
				{spec: poolSpec("a"), deployment: deployment(2, 0)},
			}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "Unknown/WaitingForMachines",
				"MachinePoolsReady": "Unknown/WaitingForMachines", "Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			message: "Pool a: 2 of 2 machines are not up to date",
		},
		{
			name: "a pool that replaces its machines for the same template",
			scope: scope{cluster: pooled.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true), pools: []*poolScope{
				{spec: poolSpec("a"), deployment: ofRevision(deployment(2, 1), "2"), sets: []*clusterv1.MachineSet{
					ofRevision(ofTemplate(1), "1"), ofRevision(ofTemplate(1), "2")}},
			}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "Unknown/WaitingForMachines",
				"MachinePoolsReady": "Unknown/WaitingForMachines", "Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			message: "Pool a: 1 still to be replaced",
		},
		{
			name: "a pool whose template has changed a moment ago",
			scope: scope{cluster: pooled.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true), pools: []*poolScope{
				{spec: poolSpec("a"), deployment: deployment(2, 2), sets: []*clusterv1.MachineSet{ofEarlierTemplate(2)}},
			}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "Unknown/WaitingForMachines",
				"MachinePoolsReady": "Unknown/WaitingForMachines", "Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			message: "Pool a: 2 still to be replaced",
		},
		{
			name: "pools are there",
			scope: scope{cluster: pooled.DeepCopy(), management: management, controlPlane: cp("True", "Ready", "", true), pools: []*poolScope{
				{spec: poolSpec("a"), deployment: deployment(2, 2)},
			}},
			want: map[string]string{"Created": "True/Created", "RKECluster": "True/Accepted", "Ready": "True/Ready",
				"MachinePoolsReady": "True/MachinePoolsReady", "Updated": "True/Ready", "Provisioned": "True/Provisioned"},
			ready: true,
		},
		{
			name:    "being deleted",
			scope:   scope{cluster: deleted, removal: cause.New("WaitingForClusterAPI", "Waiting for Cluster API")},
			want:    map[string]string{"Removed": "False/WaitingForClusterAPI", "Ready": "False/Deleting"},
			message: "Waiting for Cluster API",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.scope
			setStatus(&s)
			got, message := map[string]string{}, ""
			for _, condition := range s.cluster.Status.Conditions {
				got[condition.Type] = string(condition.Status) + "/" + condition.Reason
				if condition.Type == "Ready" {
					message = condition.Message
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if message != tt.message {
				t.Errorf("Ready says %q, want %q", message, tt.message)
			}
			if s.cluster.Status.Ready != tt.ready {
				t.Errorf("status.ready is %t, want %t", s.cluster.Status.Ready, tt.ready)
			}
		})
	}
}
