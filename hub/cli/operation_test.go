package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

func fakeAPI(t *testing.T, objects ...client.Object) client.WithWatch {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, provisioningv1.AddToScheme, operationv1.AddToScheme, rkev1.AddToScheme)
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&operationv1.ETCDSnapshotSave{}).WithObjects(objects...).Build()
}

// aSave is an ETCDSnapshotSave for Cluster ns/demo in a phase.
func aSave(name string, phase operationv1.Phase, change ...func(*operationv1.ETCDSnapshotSave)) *operationv1.ETCDSnapshotSave {
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-1", CreationTimestamp: at(0)}}
	op.Spec.ClusterRef = operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "demo"}
	op.Status.Phase = phase
	for _, f := range change {
		f(op)
	}
	return op
}

// inStep sets the step with its machines, written "name=phase" or "name=phase=message".
func inStep(step, reason, text string, machines ...string) func(*operationv1.ETCDSnapshotSave) {
	return func(op *operationv1.ETCDSnapshotSave) {
		op.Status.Step, op.Status.Machines = step, nil
		op.Status.Conditions = []metav1.Condition{{Type: operationv1.SucceededCondition, Reason: reason, Message: text}}
		for _, m := range machines {
			parts := append(strings.SplitN(m, "=", 3), "")
			op.Status.Machines = append(op.Status.Machines, operationv1.MachineStatus{Name: parts[0], Phase: operationv1.Phase(parts[1]),
				Message: parts[2]})
		}
	}
}

func TestOperationArguments(t *testing.T) {
	for _, test := range []struct{ namespace, argument, want, err string }{
		{argument: "ns/ETCDSnapshotSave/one", want: "ns/ETCDSnapshotSave/one"},
		{argument: "ns/etcdsnapshotsaves/one", want: "ns/ETCDSnapshotSave/one"},
		{argument: "ns/etcdsnapshotsave.operation.cattle.io/one", want: "ns/ETCDSnapshotSave/one"},
		{namespace: "ns", argument: "etcdsnapshotsave/one", want: "ns/ETCDSnapshotSave/one"},
		{namespace: "ns", argument: "ns/etcdsnapshotsave/one", want: "ns/ETCDSnapshotSave/one"},
		{namespace: "other", argument: "ns/etcdsnapshotsave/one", err: "not in the namespace of --namespace"},
		{argument: "etcdsnapshotsave/one", err: "nor <kind>/<name> with --namespace"},
		{namespace: "ns", argument: "one", err: "nor <kind>/<name> with --namespace"},
		{argument: "ns/etcdsnapshotsave/", err: "is not <namespace>/<kind>/<name>"},
		{argument: "ns/secrets/one", err: `"secrets" is no kind of operation; the kinds are ETCDSnapshotSave`},
		{argument: "ns/etcdsnapshotsave.example.com/one", err: "is no kind of operation"},
	} {
		op, err := (&scoped{namespace: test.namespace}).operation(test.argument)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%+v: got %v", test, err)
			}
			continue
		}
		if err != nil || operationLineOf(op).ref() != test.want {
			t.Errorf("%+v: got %v, %v", test, op, err)
		}
	}
	for _, test := range []struct{ namespace, argument, want, err string }{
		{argument: "ns/demo", want: "ns/demo"},
		{namespace: "ns", argument: "demo", want: "ns/demo"},
		{namespace: "ns", argument: "ns/demo", want: "ns/demo"},
		{namespace: "other", argument: "ns/demo", err: "not in the namespace of --namespace, other"},
		{argument: "demo", err: "write the namespace, or name it with --namespace"},
		{argument: "/demo", err: `"/demo" is not <namespace>/<cluster>`},
		{argument: "a/b/c", err: `"a/b/c" is not <namespace>/<cluster>`},
	} {
		key, err := (&scoped{namespace: test.namespace}).key(test.argument, "cluster")
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%+v: got %v", test, err)
			}
		} else if err != nil || key.String() != test.want {
			t.Errorf("%+v: got %v, %v", test, key, err)
		}
	}
}

func TestListOperations(t *testing.T) {
	working := aSave("working", operationv1.PhaseInProgress, inStep("Save", "InProgress", "Waiting for b\x1b[2J to save", "a=Succeeded",
		"b=InProgress"))
	working.Spec.Paused = true
	newer := aSave("newer", "")
	newer.CreationTimestamp = at(30)
	other, elsewhere := aSave("other", operationv1.PhaseFailed), aSave("elsewhere", operationv1.PhaseFailed)
	other.Spec.ClusterRef.Name, elsewhere.Namespace = "another", "elsewhere"
	c := fakeAPI(t, working, newer, other, elsewhere)
	lines, err := listOperations(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	want := `OPERATION                    CLUSTER  PHASE                STEP  MACHINES  AGE  MESSAGE
ns/ETCDSnapshotSave/working  demo     InProgress (paused)  Save  1/2       60s  Waiting for b` + "\uFFFD" + `[2J to save
ns/ETCDSnapshotSave/newer    demo     Pending                              30s  The hub has not begun with it
`
	got := table(t, func(out *strings.Builder) error { return writeOperations(out, lines, noon.Add(time.Minute)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for want, of := range map[int]client.ObjectKey{3: {Namespace: "ns"}, 4: {}} {
		if lines, err := listOperations(t.Context(), c, of); err != nil || len(lines) != want {
			t.Errorf("%v: %d operations (%v), want %d", of, len(lines), err, want)
		}
	}
}

func TestChangeOperation(t *testing.T) {
	c := fakeAPI(t, aSave("one", operationv1.PhaseInProgress), aSave("over", operationv1.PhaseSucceeded))
	change := func(o operationChange, name string) (*operationv1.ETCDSnapshotSave, error) {
		op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		return op, o.run(t.Context(), c, op)
	}
	pause, resume := operationChange{patch: `{"spec":{"paused":true}}`, done: "paused"}, operationChange{patch: `{"spec":{"paused":false}}`}
	if op, err := change(pause, "one"); err != nil || !op.Spec.Paused || op.Spec.ClusterRef.Name != "demo" {
		t.Errorf("%+v, %v", op.Spec, err)
	}
	if op, err := change(resume, "one"); err != nil || op.Spec.Paused {
		t.Errorf("%+v, %v", op.Spec, err)
	}
	if op, err := change(operationChange{patch: `{"spec":{"cancel":true}}`}, "one"); err != nil || !op.Spec.Cancel {
		t.Errorf("%+v, %v", op.Spec, err)
	}
	_, err := change(pause, "over")
	if want := "ns/ETCDSnapshotSave/over cannot be paused: it has ended (Succeeded)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = change(pause, "none")
	if want := `there is no ns/ETCDSnapshotSave/none; see "hub operation list"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOperationCommandLines(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"operation", "cancel"}, "hub: operation cancel needs one argument: <namespace>/<kind>/<name>; see \"hub operation list\"\n"},
		{[]string{"operation", "pause", "a/b"}, "hub: \"a/b\" is not <namespace>/<kind>/<name>, nor <kind>/<name> with --namespace\n"},
		{[]string{"operation", "wait", "a/etcdsnapshotsave/b", "--timeout=-1s"}, "hub: --timeout -1s: it must not be negative\n"},
		{[]string{"operation", "cancel", "a/etcdsnapshotsave/b", "--timeout=1s"}, "hub: --timeout needs --wait\n"},
		{[]string{"operation", "list", "a"}, "hub: \"a\" is not <namespace>/<cluster>; write the namespace, or name it with --namespace\n"},
		{[]string{"snapshot", "create"}, "hub: snapshot create needs one argument: <namespace>/<cluster>\n"},
		{[]string{"snapshot", "create", "a/b", "--ttl=1ms"}, "hub: --ttl 1ms: it must be 0, negative or at least 1s\n"},
		{[]string{"snapshot", "list", "a/b", "-o", "yaml"}, "hub: --output \"yaml\" is neither table nor json\n"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(test.args, &stdout, &stderr); code != 1 || stderr.String() != test.want {
			t.Errorf("%v: exit code %d, %s", test.args, code, stderr.String())
		}
	}
}
