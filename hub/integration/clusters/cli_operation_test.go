package clusters

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	operationplan "github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/testenv"
)

// result is how a command has ended.
type result struct {
	code           int
	stdout, stderr string
}

// inBackground runs a command with the rights of an administrator.
func inBackground(args ...string) <-chan result {
	done := make(chan result, 1)
	go func() {
		code, stdout, stderr := hub(env.Server.Kubeconfig(), args...)
		done <- result{code, stdout, stderr}
	}()
	return done
}

// TestOperationCommands saves two snapshots by the hub's commands, of which one fails, and finds them where people see them.
func TestOperationCommands(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "seen", nil)
	name := r.Cluster.Namespace + "/" + r.Cluster.Name
	m := r.Register("seen", "192.0.2.19", "etcd", "control-plane", "worker")
	_, checksum := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name}}
	testenv.Condition(t, env, controlPlane, rkev1.BootstrappedCondition, metav1.ConditionTrue, "")

	done := inBackground("snapshot", "create", name, "--name", "by-hand", "--wait", "--timeout", "3m")
	plan, checksum := m.AwaitPlan(checksum)
	if !hasSave(plan) {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	// Steps that are shorter than a second may have no Event.
	r.Wait("the Event of the step", func() error {
		if events, _ := eventsOf(r); !slices.Contains(events, "Cluster: Normal OperationInProgress") {
			return fmt.Errorf("not in %v", events)
		}
		return nil
	})
	checkQueued(t, name)
	m.Take()
	m.Succeed()
	got := <-done
	if got.code != 0 || got.stderr != "" || strings.Contains(got.stdout, "Succeeded: Save") || !strings.Contains(got.stdout, " created\n") || !strings.Contains(got.stdout, "InProgress: Save: ") ||
		!strings.Contains(got.stdout, m.Name+": Succeeded\n") || !strings.Contains(got.stdout, "Succeeded: ") {
		t.Errorf("exit code %d, %s\n%s", got.code, got.stderr, got.stdout)
	}
	_, checksum = m.AwaitPlan(checksum)
	m.Take()
	m.Succeed()

	// One that is deleted as soon as it has ended.
	done = inBackground("snapshot", "create", name, "--ttl", "0", "--wait", "--timeout", "3m", "-o", "json")
	if plan, checksum = m.AwaitPlan(checksum); !hasSave(plan) {
		t.Fatalf("the plan has the instructions %+v", plan.Instructions)
	}
	m.Take()
	m.Fail()
	got = <-done
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	var last struct {
		Phase    operationv1.Phase
		Machines []operationv1.MachineStatus
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Phase != operationv1.PhaseFailed ||
		len(last.Machines) != 1 {
		t.Errorf("%v in %s", err, got.stdout)
	}
	if got.code != 1 || !strings.Contains(got.stderr, " has ended with Failed: ") {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
	_, _ = m.AwaitPlan(checksum)

	if code, stdout, stderr := hub(env.Server.Kubeconfig(), "operation", "list", name); code != 0 || !strings.Contains(stdout, "Succeeded") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	r.Wait("the Events", func() error {
		events, _ := eventsOf(r)
		for _, want := range []string{
			"ETCDSnapshotSave: Normal OperationInProgress", "ETCDSnapshotSave: Normal OperationSucceeded",
			"ETCDSnapshotSave: Warning OperationMachineFailed", "Cluster: Normal OperationInProgress", "Cluster: Normal OperationSucceeded",
			"Cluster: Warning OperationMachineFailed",
		} {
			if !slices.Contains(events, want) {
				return fmt.Errorf("no %q in\n%s", want, strings.Join(events, "\n"))
			}
		}
		return nil
	})
	r.Wait("the timeline", func() error {
		_, stdout, stderr := hub(env.Server.Kubeconfig(), "timeline", name)
		for _, want := range []string{"  Save  ", "  Succeeded  ", "  MachineFailed  "} {
			if !strings.Contains(stdout, want) {
				return fmt.Errorf("no %q in\n%s%s", want, stdout, stderr)
			}
		}
		return nil
	})
	for _, name := range []string{"drover_operations", "drover_operation_duration_seconds"} {
		if n, err := testutil.GatherAndCount(metrics.Registry, name); err != nil || n == 0 {
			t.Errorf("%s has %d samples (%v)", name, n, err)
		}
	}
}

// checkQueued creates a second operation, which waits for the first one and belongs to the cluster all the same, and cancels it.
func checkQueued(t *testing.T, cluster string) {
	t.Helper()
	_, stdout, stderr := hub(env.Server.Kubeconfig(), "snapshot", "create", cluster)
	ref, created := strings.CutSuffix(strings.TrimSpace(stdout), " created")
	if !created {
		t.Fatalf("%s\n%s", stdout, stderr)
	}
	parts := strings.Split(ref, "/")
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: parts[0], Name: parts[2]}}
	testenv.Condition(t, env, op, operationv1.SucceededCondition, metav1.ConditionUnknown, operationplan.ReasonWaitingForOperation)
	testenv.Until(t, "the operation to belong to the cluster", func() error {
		env.Get(t, op.Namespace, op.Name, op)
		if op.Status.Phase != operationv1.PhasePending || len(op.OwnerReferences) != 1 {
			return fmt.Errorf("phase %q, owners %+v", op.Status.Phase, op.OwnerReferences)
		}
		return nil
	})
	code, stdout, stderr := hub(env.Server.Kubeconfig(), "operation", "cancel", ref, "--wait", "--timeout", "2m")
	if code != 0 || !strings.Contains(stdout, "Canceled: The operation was canceled before it began") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
}

// TestOperationWithoutControlPlane: an operation of a Cluster that does not exist waits, and one of an imported Cluster fails and is
// deleted.
func TestOperationWithoutControlPlane(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	create := func(name, cluster string, ttl int64) {
		op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: cluster}
		op.Spec.TTL = ttl
		env.Create(t, op)
	}
	await := func(name string, phase operationv1.Phase, reason string) {
		t.Helper()
		op := &operationv1.ETCDSnapshotSave{}
		testenv.Until(t, fmt.Sprintf("%s to be %s", name, phase), func() error {
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, op); err != nil {
				return err
			}
			c := meta.FindStatusCondition(op.Status.Conditions, operationv1.SucceededCondition)
			if op.Status.Phase != phase || c == nil || c.Reason != reason {
				return fmt.Errorf("it is %q, %+v", op.Status.Phase, op.Status.Conditions)
			}
			return nil
		})
	}
	create("early", "later", -1)
	create("lost", "never", -1)
	await("early", operationv1.PhasePending, operationplan.ReasonWaitingForCluster)
	await("lost", operationv1.PhasePending, operationplan.ReasonWaitingForCluster)

	env.Create(t, &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "later"}})
	await("early", operationv1.PhaseFailed, operationplan.ReasonClusterImported)
	create("deleted", "later", 0)
	env.Gone(t, &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deleted"}})

	code, stdout, stderr := hub(env.Server.Kubeconfig(), "operation", "cancel", "-n", namespace, "etcdsnapshotsave/lost", "--wait",
		"--timeout", "2m")
	if code != 0 || !strings.Contains(stdout, "Canceled: ") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	code, _, stderr = hub(env.Server.Kubeconfig(), "operation", "pause", "-n", namespace, "etcdsnapshotsave/lost")
	if code != 1 || !strings.Contains(stderr, "it has ended (Canceled)") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
