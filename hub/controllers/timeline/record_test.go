package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// lines writes the phases of a subject as a test can read them.
func lines(s timelines.Subject) []string {
	var out []string
	for _, p := range s.Phases {
		end := "…"
		if p.End != nil {
			end = fmt.Sprintf("+%ds", p.Seconds)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s%s %s %s", p.Name, p.Start.UTC().Format("15:04:05"), end, p.Outcome, p.Message)))
	}
	return out
}

func TestMachinePhase(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	is := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return condition(conditionType, status, reason, noon)
	}
	data, infra, reconciled := is("BootstrapConfigReady", yes, "Ready"), is("InfrastructureReady", yes, "Ready"), is("Reconciled", yes,
		"UpToDate")
	tests := []struct {
		name       string
		change     func(*clusterv1.Machine)
		conditions []metav1.Condition
		want       string
	}{
		{name: "new", want: "WaitingForBootstrapData running"},
		{name: "has its data", conditions: []metav1.Condition{data, is("InfrastructureReady", no, "NotReady")},
			want: "WaitingForInfrastructure running"},
		{name: "boots", conditions: []metav1.Condition{data, infra}, want: "WaitingForPlan running"},
		{name: "applies", conditions: []metav1.Condition{data, infra, is("Reconciled", unknown, "ApplyingPlan")}, want: "ApplyingPlan running"},
		{name: "fails", conditions: []metav1.Condition{data, infra, is("Reconciled", no, "PlanFailed")}, want: "PlanFailed failed"},
		{name: "joins", conditions: []metav1.Condition{data, infra, reconciled}, want: "WaitingForNode running"},
		{
			name: "a custom machine has its infrastructure last", conditions: []metav1.Condition{data, is("InfrastructureReady", no, "NotReady"),
				reconciled},
			change: func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.APIGroup = "rke.cattle.io" }, want: "WaitingForNode running",
		},
		{
			name: "a node driver makes it", conditions: []metav1.Condition{data, is("InfrastructureReady", no, "NotReady"),
				is("Reconciled", unknown, "WaitingForInfrastructure")},
			change: func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.APIGroup = "rke-machine.cattle.io" },
			want:   "WaitingForInfrastructure running",
		},
		{
			name: "a node driver has made it", conditions: []metav1.Condition{data, is("InfrastructureReady", no, "NotReady"),
				is("Reconciled", unknown, "ApplyingPlan")},
			change: func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.APIGroup = "rke-machine.cattle.io" },
			want:   "ApplyingPlan running",
		},
		{
			name: "works", conditions: []metav1.Condition{data, infra, reconciled, is("NodeReady", yes, "NodeReady")},
			change: func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" }, want: "Ready ready",
		},
		{
			name: "its node is lost", conditions: []metav1.Condition{data, infra, reconciled, is("NodeReady", unknown, "NodeReadyUnknown")},
			change: func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" }, want: "NodeReadyUnknown running",
		},
		{
			name: "a health check gives it up",
			conditions: []metav1.Condition{data, infra, reconciled, is("NodeReady", no, "NodeNotReady"), is("HealthCheckSucceeded", no,
				"UnhealthyNode")},
			change: func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n" }, want: "UnhealthyNode failed",
		},
		{
			name: "is drained", conditions: []metav1.Condition{data, infra, reconciled, is("Deleting", yes, "DrainingNode")},
			change: func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: noon} }, want: "DrainingNode running",
		},
		{name: "is paused", conditions: []metav1.Condition{data, infra, is("Paused", yes, "Paused")}, want: "Paused running"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine("m", test.conditions...)
			m.Spec.InfrastructureRef.APIGroup = "infrastructure.cluster.x-k8s.io"
			if test.change != nil {
				test.change(m)
			}
			p := machinePhase(m)
			if got := p.Name + " " + string(p.Outcome); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestUpdate: a machine that was deleted has gone, and another of the same name is another; one that was moved here is the same.
func TestUpdate(t *testing.T) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(noon)}}
	s := &scope{provisioning: cluster, machines: []clusterv1.Machine{*newMachine("m")}}
	record := &timelines.Record{}
	if s.update(record, noon.Add(time.Second)) == nothing || s.update(record, noon.Add(2*time.Second)) != nothing {
		t.Fatal("the first reconcile must change the record, and the second must not")
	}
	moved := newMachine("m")
	moved.UID = "moved"
	s.machines = []clusterv1.Machine{*moved}
	if s.update(record, noon.Add(2*time.Second)) != nothing {
		t.Fatal("a machine that was moved must change nothing")
	}
	s.machines[0].DeletionTimestamp = &metav1.Time{Time: noon.Add(3 * time.Second)}
	s.update(record, noon.Add(3*time.Second))
	again := newMachine("m")
	again.UID = "other"
	s.machines = []clusterv1.Machine{*again}
	if s.update(record, noon.Add(4*time.Second)) == nothing || s.update(record, noon.Add(5*time.Second)) != nothing {
		t.Fatal("another machine must change the record once")
	}
	var got []string
	for _, subject := range record.Subjects {
		got = append(got, subject.Kind+" "+subject.Name+": "+strings.Join(lines(subject), ", "))
	}
	want := []string{
		"Cluster c: Creating 12:00:00… running",
		"Machine m: WaitingForBootstrapData 12:00:00+3s done, Deleting 12:00:03+1s gone",
		"Machine m: WaitingForBootstrapData 12:00:00… running",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// BenchmarkReconcile is a reconcile of a cluster of 1000 machines in which one has changed: transitions, phases, and the record as it is
// written.
func BenchmarkReconcile(b *testing.B) {
	s := &scope{provisioning: &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}}}
	for i := range 1000 {
		m := newMachine(fmt.Sprintf("machine-%d", i))
		m.UID = types.UID(fmt.Sprint(i))
		for _, conditionType := range []string{"Ready", "Available", "InfrastructureReady", "BootstrapConfigReady", "Reconciled", "NodeReady",
			"NodeHealthy", "PlanApplied", "Deleting", "Paused", "UpToDate", "Updating"} {
			m.Status.Conditions = append(m.Status.Conditions, condition(conditionType, metav1.ConditionTrue, "Reason", noon))
		}
		s.machines = append(s.machines, *m)
	}
	record, m := &timelines.Record{}, &clusterState{}
	s.update(record, noon)
	var size int
	for i := 0; b.Loop(); i++ {
		now := noon.Add(time.Duration(i) * time.Second)
		s.machines[i%1000].Status.Conditions[3].Status = metav1.ConditionFalse
		m.transitions(s.objects(), now, now)
		s.update(record, now)
		var err error
		if _, _, size, err = record.Encode(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}
