package operation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func restoreOf(name string) *operationv1.ETCDSnapshotRestore {
	op := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)}}
	op.Spec.Args.Name = name
	return op
}

func server(name string) Machine {
	m := machine(name, rollout.ProgressApplied, false)
	m.ControlPlane, m.JoinURL, m.LastSeen, m.Node = true, "https://"+name, begin, rollout.NodeReady
	return m
}

func worker(name string) Machine {
	return Machine{Machine: rollout.Machine{Name: name, Worker: true, HasPlanSecret: true, Progress: rollout.ProgressApplied,
		Node: rollout.NodeReady}}
}

func onMachine(name string) Snapshot {
	return Snapshot{Machine: name, File: operationv1.RestoredSnapshot{Name: "s", Path: "/snapshots/s", Size: 7}}
}

// done reports the tasks of a decision as done by healthy machines.
func done(in *Inputs, d Decision) {
	for i := range in.Machines {
		if _, is := d.Tasks[in.Machines[i].Name]; is {
			in.Machines[i].Has, in.Machines[i].Progress = true, rollout.ProgressApplied
		}
	}
}

// follow decides until the operation ends or waits for the hub, with machines that do everything at once, and returns what they did.
func follow(t *testing.T, op *operationv1.ETCDSnapshotRestore, in *Inputs) (did []string) {
	t.Helper()
	for range 50 {
		step, d := op.Status.Step, Decide(op, *in)
		if op.Status.Phase.Ended() {
			return did
		}
		if op.Status.Step != step {
			for i := range in.Machines {
				in.Machines[i].Has = false
			}
		}
		if len(d.Tasks) == 0 && len(d.DeleteNodes) == 0 {
			did = append(did, "wait in "+op.Status.Step)
			in.Now = in.Now.Add(d.Again)
			continue
		}
		if len(d.DeleteNodes) > 0 {
			did = append(did, fmt.Sprintf("%s: delete %v", op.Status.Step, d.DeleteNodes))
			in.StrayNodes = nil
			continue
		}
		task := d.Tasks[slices.Sorted(maps.Keys(d.Tasks))[0]]
		if !task.Regardless || task.Rendered == task.Apart {
			t.Errorf("%+v", task)
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(d.Tasks)) {
			if i := slices.IndexFunc(in.Machines, func(m Machine) bool { return m.Name == name }); in.Machines[i].Has {
				continue // it keeps what it has done
			}
			parts = append(parts, name+" "+string(d.Tasks[name].Name))
		}
		did = append(did, op.Status.Step+": "+strings.Join(parts, ", "))
		done(in, d)
	}
	t.Fatalf("it does not end: %+v", op.Status)
	return nil
}

func expectDid(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestRestore(t *testing.T) {
	op := restoreOf("s")
	controlPlane := server("d")
	controlPlane.Etcd = false
	windows, unregistered := worker("y"), worker("z")
	windows.Windows, unregistered.Progress = true, rollout.ProgressNone
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("b"), Connected: true,
		Machines:   []Machine{worker("w"), worker("v"), controlPlane, server("a"), server("b"), server("c"), windows, unregistered},
		StrayNodes: []StrayNode{{Name: "old", Lost: true}, {Name: "alive"}}}
	expectDid(t, follow(t, op, &in),
		"Preflight: a ping, b etcd-snapshot-check, c ping, d ping",
		"Shutdown: a stop, b stop, c stop, d stop, v stop, w stop",
		"Restore: b etcd-snapshot-restore",
		"PostRestorePodCleanup: b start",
		"InitialRestartCluster: a start",
		"InitialRestartCluster: c start",
		"InitialRestartCluster: d start",
		"InitialRestartCluster: v start, w start, y start",
		"PostRestoreNodeCleanup: delete [old]")
	c := conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != operationv1.PhaseSucceeded ||
		c.Message != "The cluster was restored from s on b; no checksum of the file was known" || op.Status.MachineName != "b" ||
		op.Status.Snapshot.Path != "/snapshots/s" {
		t.Errorf("got %+v", op.Status)
	}
}

func TestRestoreOnOneMachine(t *testing.T) {
	op := restoreOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine(""), Connected: true, Machines: []Machine{server("a")}}
	expectDid(t, follow(t, op, &in), "Preflight: a etcd-snapshot-check", "Shutdown: a stop", "Restore: a etcd-snapshot-restore",
		"PostRestorePodCleanup: a start")
}

// With no control plane left, a new machine that was never given a plan is checked, and is the first of the restored cluster.
func TestRestoreOnNewMachine(t *testing.T) {
	op := restoreOf("s")
	fresh := server("new")
	fresh.Progress, fresh.JoinURL, fresh.Node = rollout.ProgressNone, "", rollout.NodeUnknown
	gone := server("old")
	gone.Deleting, gone.LastSeen = true, begin.Add(-time.Hour)
	snapshot := Snapshot{File: operationv1.RestoredSnapshot{Name: "s", S3: &operationv1.RestoredSnapshotS3{Bucket: "b"}}}
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: snapshot, Machines: []Machine{fresh, gone, worker("w")}}
	for _, want := range []string{operationv1.StepPreflight, operationv1.StepShutdown, operationv1.StepRestore,
		operationv1.StepPostRestorePodCleanup} {
		d := Decide(op, in)
		if op.Status.Step != want || len(d.Tasks) == 0 || want != operationv1.StepShutdown && d.Tasks["new"].Name == "" {
			t.Fatalf("in step %s, want %s; tasks %v; %+v", op.Status.Step, want, d.Tasks, op.Status)
		}
		if _, is := d.Tasks["old"]; is {
			t.Error("a machine that is being deleted has a task")
		}
		done(&in, d)
	}
	// Nobody can join it before it has an address.
	if d := Decide(op, in); op.Status.Step != operationv1.StepPostRestorePodCleanup || d.Tasks["new"].Name != TaskStart {
		t.Fatalf("got %+v, %v", op.Status, d.Tasks)
	}
	in.Machines[0].JoinURL = "https://new"
	if Decide(op, in); op.Status.Step != operationv1.StepInitialRestartCluster {
		t.Fatalf("got %+v", op.Status)
	}
}

// What is wrong before anything is stopped ends the restore, or has it wait.
func TestRestoreRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Inputs)
		phase  operationv1.Phase
		text   string
	}{
		"snapshot is invalid": {func(in *Inputs) { in.Snapshot.Problem = "is missing" }, operationv1.PhaseFailed, "is missing"},
		"not listed yet": {func(in *Inputs) { in.Snapshot.MissingSince = begin.Add(time.Second - listTime) }, operationv1.PhasePending,
			"Waiting for the cluster to list the file"},
		"not listed any more": {func(in *Inputs) { in.Snapshot.MissingSince = begin.Add(-listTime) }, operationv1.PhaseFailed,
			"is missing: since"},
		"machine is gone":     {func(in *Inputs) { in.Machines = in.Machines[1:] }, operationv1.PhaseFailed, "no such Machine"},
		"machine is deleted":  {func(in *Inputs) { in.Machines[0].Deleting = true }, operationv1.PhaseFailed, "no such Machine"},
		"machine is a worker": {func(in *Inputs) { in.Machines[0].Etcd = false }, operationv1.PhaseFailed, "no such Machine"},
		"several may have it": {func(in *Inputs) { in.Snapshot.Machine = "" }, operationv1.PhaseFailed, "not known"},
		"no machine with etcd": {func(in *Inputs) { in.Snapshot.Machine, in.Machines = "", in.Machines[2:] }, operationv1.PhasePending,
			"Waiting for a machine"},
		"one in deletion runs": {func(in *Inputs) { in.Machines[1].Deleting = true }, operationv1.PhasePending, "Switch it off"},
		"no plan Secret":       {func(in *Inputs) { in.Machines[0].HasPlanSecret = false }, operationv1.PhasePending, "no plan Secret"},
		"not started":          {func(in *Inputs) { in.Bootstrapped = false }, operationv1.PhasePending, "to be started"},
	} {
		t.Run(name, func(t *testing.T) {
			op := restoreOf("s")
			in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b"), worker("w")}}
			c.change(&in)
			d := Decide(op, in)
			message := conditions.Get(op, operationv1.SucceededCondition).Message
			if op.Status.Phase != c.phase || len(d.Tasks) > 0 || !strings.Contains(message, c.text) {
				t.Errorf("got %s, %q", op.Status.Phase, message)
			}
		})
	}
}

// A hub that was down has not seen any agent: a machine in deletion may run that has been silent for long, until agents have come back.
func TestRestoreWaitsForAgentsOfAHubThatStarts(t *testing.T) {
	op, old := restoreOf("s"), server("old")
	old.Deleting, old.LastSeen = true, begin.Add(-time.Hour)
	in := Inputs{Now: begin, Since: begin.Add(-time.Second), Bootstrapped: true, Snapshot: onMachine("a"),
		Machines: []Machine{server("a"), old}}
	d, c := Decide(op, in), conditions.Get(op, operationv1.SucceededCondition)
	if d.Again != reconnectTime-time.Second || op.Status.Phase != operationv1.PhasePending || c.Reason != ReasonWaitingForMachine ||
		!strings.Contains(c.Message, "whether old") {
		t.Errorf("again after %s: %+v", d.Again, c)
	}
	seen, in2 := op.DeepCopy(), in
	in2.Machines = slices.Clone(in.Machines)
	in2.Machines[1].LastSeen, in2.Now = begin.Add(time.Second), begin.Add(reconnectTime)
	d = Decide(seen, in2)
	if want := seenRecently - reconnectTime + time.Second; d.Again != want ||
		!strings.Contains(conditions.Get(seen, operationv1.SucceededCondition).Message, "Switch it off") {
		t.Errorf("seen again: again after %s, want %s: %+v", d.Again, want, seen.Status)
	}
	in.Now = in.Since.Add(reconnectTime)
	if d := Decide(op, in); op.Status.Step != operationv1.StepPreflight || len(d.Tasks) == 0 {
		t.Errorf("silent: %+v", op.Status)
	}
}

// What the specification of the Cluster lacks may have been written a moment ago, and is refused only where it stays away.
func TestRestoreWaitsForSpecification(t *testing.T) {
	for text, lack := range map[string]func(*Snapshot){
		"cannot read":           func(s *Snapshot) { s.Version, s.Wanted = "v1.37.1+k3s1", "v1.36.3+k3s1" },
		"needs its own version": func(s *Snapshot) { s.Version, s.Wanted = "v1.24.1+k3s1", "v1.25.3+k3s1" },
		"is not set":            func(s *Snapshot) { s.Unconfigured = "etcd.s3 is not set" },
	} {
		op, has := restoreOf("s"), onMachine("a")
		in := Inputs{Now: begin, Bootstrapped: true, Snapshot: has, Machines: []Machine{server("a"), server("b"), worker("w")}}
		lack(&in.Snapshot)
		check := func(phase operationv1.Phase, reason string, again time.Duration) {
			t.Helper()
			d, c := Decide(op, in), conditions.Get(op, operationv1.SucceededCondition)
			if op.Status.Phase != phase || c.Reason != reason || !strings.Contains(c.Message, text) || d.Again != again || len(d.Tasks) > 0 {
				t.Errorf("again after %s, %s, %+v", d.Again, op.Status.Phase, c)
			}
		}
		check(operationv1.PhasePending, ReasonWaitingForCluster, specPatience)
		in.Now = begin.Add(specPatience - time.Second)
		check(operationv1.PhasePending, ReasonWaitingForCluster, time.Second)
		arrived, of := op.DeepCopy(), in
		of.Snapshot = has
		if d := Decide(arrived, of); arrived.Status.Step != operationv1.StepPreflight || len(d.Tasks) == 0 {
			t.Errorf("%s, arrived: %+v", text, arrived.Status)
		}
		in.Now = begin.Add(specPatience)
		check(operationv1.PhaseFailed, ReasonSnapshotInvalid, 0)
	}
}

// A server that has started lists its files after some time: a restored one knows only those of the snapshot's time until then.
func TestRestoreWaitsForList(t *testing.T) {
	op, snapshot := restoreOf("s"), onMachine("a")
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: snapshot, Machines: []Machine{server("a"), server("b"), worker("w")}}
	in.Snapshot.MissingSince = begin.Add(-time.Minute)
	if d := Decide(op, in); d.Again != listTime-time.Minute ||
		conditions.GetReason(op, operationv1.SucceededCondition) != ReasonWaitingForSnapshot {
		t.Errorf("decided again after %s; %+v", d.Again, op.Status)
	}
	in.Now, in.Snapshot = begin.Add(time.Second), snapshot
	if d := Decide(op, in); op.Status.Step != operationv1.StepPreflight || len(d.Tasks) == 0 {
		t.Errorf("listed again: %+v", op.Status)
	}
}

// A failure before machines are stopped leaves the cluster alone; one after it says what to do.
func TestRestoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		step   string
		change func(*Inputs)
		advice string
	}{
		"check": {operationv1.StepPreflight, func(in *Inputs) { in.Machines[0].Progress = rollout.ProgressFailed },
			"Nothing was stopped"},
		"silent server": {operationv1.StepPreflight, func(in *Inputs) { in.Now = in.Now.Add(checkTimeout) }, "Nothing was stopped"},
		"stop": {operationv1.StepShutdown, func(in *Inputs) { in.Machines[1].Progress = rollout.ProgressFailed },
			"another ETCDSnapshotRestore"},
		"restore": {operationv1.StepRestore, func(in *Inputs) { in.Machines[0].Progress = rollout.ProgressFailed },
			"another ETCDSnapshotRestore"},
		"machine deleted": {operationv1.StepRestore, func(in *Inputs) { in.Machines[0].Deleting = true }, "another ETCDSnapshotRestore"},
		"never healthy": {operationv1.StepPostRestorePodCleanup, func(in *Inputs) {
			in.Machines[0].Progress, in.Machines[0].Unhealthy = rollout.ProgressApplied, []string{"etcd"}
			in.Now = in.Now.Add(startTimeLimit)
		}, "another ETCDSnapshotRestore"},
	} {
		t.Run(name, func(t *testing.T) {
			op := restoreOf("s")
			in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b")}}
			for range 10 {
				d := Decide(op, in)
				if op.Status.Step == c.step {
					break
				}
				done(&in, d)
			}
			for i := range in.Machines {
				in.Machines[i].Has, in.Machines[i].Progress = true, rollout.ProgressApplying
			}
			c.change(&in)
			if c.step == operationv1.StepShutdown {
				in.Machines[0].Progress = rollout.ProgressApplied
			} else if c.step == operationv1.StepPreflight && in.Now.Equal(begin) {
				in.Machines[1].Progress = rollout.ProgressApplied
			}
			d := Decide(op, in)
			message := conditions.Get(op, operationv1.SucceededCondition).Message
			if op.Status.Phase != operationv1.PhaseFailed || len(d.Tasks) > 0 || !strings.Contains(message, c.advice) {
				t.Errorf("got %s, %q, %v", op.Status.Phase, message, d.Tasks)
			}
		})
	}
}

// A worker that does not stop, and a machine that does not come back, do not keep the others down.
func TestRestoreGoesOnWithoutOthers(t *testing.T) {
	op := restoreOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Connected: true,
		Machines: []Machine{server("a"), server("b"), server("c"), worker("w")}}
	for range 40 {
		d := Decide(op, in)
		if op.Status.Phase.Ended() {
			break
		}
		if _, is := d.Tasks["b"]; is && op.Status.Step == operationv1.StepInitialRestartCluster {
			in.Machines[1].Progress, in.Machines[1].Has = rollout.ProgressFailed, true
			continue
		}
		delete(d.Tasks, "w") // it never answers
		before := slices.Clone(in.Machines)
		if done(&in, d); slices.EqualFunc(before, in.Machines, func(a, b Machine) bool { return a.Has == b.Has && a.Progress == b.Progress }) {
			in.Now = in.Now.Add(d.Again)
		}
		in.Machines[3].Has, in.Machines[3].Progress = false, rollout.ProgressPending
	}
	c := conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != operationv1.PhaseSucceeded || !strings.Contains(c.Message, "not back yet, see status.machines: b, w") {
		t.Errorf("got %s, %q", op.Status.Phase, c.Message)
	}
}

func TestRestoreCanceled(t *testing.T) {
	op := restoreOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a")}}
	done(&in, Decide(op, in))
	Decide(op, in)
	if op.Status.Step != operationv1.StepShutdown || !Exclusive(op) || RestoreTarget(op) != "a" || Holds(op, false) == "" {
		t.Fatalf("got %+v", op.Status)
	}
	op.Spec.Cancel, in.Machines[0].Has = true, true
	Decide(op, in)
	c := conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != operationv1.PhaseCanceled || !strings.Contains(c.Message, "another ETCDSnapshotRestore") || Exclusive(op) ||
		RestoreTarget(op) != "" || Holds(op, false) != "" {
		t.Errorf("got %+v", op.Status)
	}
}

// Nothing else begins while machines are stopped.
func TestNothingBeginsOnStoppedMachines(t *testing.T) {
	in := Inputs{Now: begin, Bootstrapped: true, Stopped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a")}}
	expect(t, save(), in, operationv1.PhasePending, ReasonWaitingForCluster)
	if op := restoreOf("s"); len(Decide(op, in).Tasks) == 0 {
		t.Errorf("the restore does not begin: %+v", op.Status)
	}
}

// The machine for a snapshot in S3 is one whose agent is there, the init node if it can be.
func TestRestoreTargetInS3(t *testing.T) {
	init, silent, other := server("c"), server("a"), server("b")
	init.Init, silent.LastSeen = true, begin.Add(-time.Hour)
	snapshot := Snapshot{File: operationv1.RestoredSnapshot{Name: "s", S3: &operationv1.RestoredSnapshotS3{}}}
	for want, machines := range map[string][]Machine{"c": {silent, other, init}, "b": {silent, other}, "a": {silent}} {
		if got, p := snapshot.target(Inputs{Now: begin, Machines: machines}); got != want || p != (problem{}) {
			t.Errorf("got %s, %+v; want %s", got, p, want)
		}
	}
}

// TestRestoreUnchanged: a restore that ends says whether it has changed anything: nothing until machines stop.
func TestRestoreUnchanged(t *testing.T) {
	for _, test := range []struct {
		phase operationv1.Phase
		step  string
		want  bool
	}{
		{operationv1.PhaseFailed, "", true}, {operationv1.PhaseCanceled, operationv1.StepPreflight, true},
		{operationv1.PhaseFailed, operationv1.StepShutdown, false}, {operationv1.PhaseCanceled, operationv1.StepRestartCluster, false},
		{operationv1.PhaseSucceeded, operationv1.StepRestartCluster, false},
	} {
		op := &operationv1.ETCDSnapshotRestore{}
		op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, test.step
		newEngine(op, Inputs{Now: time.Unix(0, 0)}).end(test.phase, "Reason", "Text")
		if op.Status.Unchanged != test.want || op.Status.Phase != test.phase {
			t.Errorf("%s in step %q: %+v", test.phase, test.step, op.Status)
		}
	}
}
