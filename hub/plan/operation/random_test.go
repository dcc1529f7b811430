package operation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// world is a cluster whose machines and hub fail at random while a snapshot is restored.
type world struct {
	*rand.Rand
	t  *testing.T
	op *operationv1.ETCDSnapshotRestore
	in Inputs
	// delivered are the tasks of machines, done those that they did.
	delivered map[string]Task
	done      map[string][]TaskName
	// restored is the machine that did.
	restored string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, op: restoreOf("s"), delivered: map[string]Task{}, done: map[string][]TaskName{}}
	w.in = Inputs{Now: begin, Bootstrapped: true, Connected: true}
	for i := range 1 + w.IntN(5) {
		m := server(fmt.Sprintf("s%d", i))
		m.Etcd, m.ControlPlane = i == 0 || w.IntN(4) > 0, w.IntN(4) > 0
		if !m.Etcd {
			m.ControlPlane = true
		}
		if w.IntN(8) == 0 {
			m.Progress = rollout.ProgressNone
		}
		w.in.Machines = append(w.in.Machines, m)
	}
	for i := range w.IntN(4) {
		m := worker(fmt.Sprintf("w%d", i))
		m.Windows = w.IntN(6) == 0
		w.in.Machines = append(w.in.Machines, m)
	}
	w.in.Snapshot = onMachine("s0")
	if w.IntN(2) == 0 {
		w.in.Snapshot = Snapshot{File: operationv1.RestoredSnapshot{Name: "s", S3: &operationv1.RestoredSnapshotS3{}}}
	}
	return w
}

// decide decides. A hub that dies before it has written the status, or before it has delivered, decides again later.
func (w *world) decide() {
	before := w.op.DeepCopy()
	d := Decide(w.op, Inputs{Now: w.in.Now, Bootstrapped: true, Machines: slices.Clone(w.in.Machines), Snapshot: w.in.Snapshot,
		Connected: w.in.Connected, StrayNodes: w.in.StrayNodes})
	if w.IntN(6) == 0 {
		w.op = before
		return
	}
	if w.op.Status.Step != before.Status.Step || w.op.Status.Phase.Ended() {
		for i := range w.in.Machines {
			w.in.Machines[i].Has = false
		}
	}
	if w.IntN(6) == 0 {
		return
	}
	for name, task := range d.Tasks {
		i := slices.IndexFunc(w.in.Machines, func(m Machine) bool { return m.Name == name })
		w.check(w.in.Machines[i], task)
		if w.delivered[name] != task {
			w.delivered[name] = task
			w.in.Machines[i].Has, w.in.Machines[i].Progress, w.in.Machines[i].Failure = true, rollout.ProgressPending, ""
		} else if w.in.Machines[i].Progress != rollout.ProgressNone {
			w.in.Machines[i].Has = true
		}
	}
	if len(d.DeleteNodes) > 0 {
		w.in.StrayNodes = nil
	}
}

// check checks that a task is safe.
func (w *world) check(m Machine, task Task) {
	servers := func(did TaskName) bool {
		for _, m := range w.in.Machines {
			if m.Server() && !m.Deleting && w.delivered[m.Name] != (Task{}) && !slices.Contains(w.done[m.Name], did) {
				return false
			}
		}
		return true
	}
	target := w.op.Status.MachineName
	switch task.Name {
	case TaskStop:
		if !slices.Contains(w.done[target], TaskCheckSnapshot) {
			w.t.Errorf("%s is stopped before the snapshot was checked", m.Name)
		}
		for _, s := range w.in.Machines {
			if s.Server() && !s.Deleting && w.delivered[s.Name].Name == TaskPing && !slices.Contains(w.done[s.Name], TaskPing) {
				w.t.Errorf("%s is stopped before %s has answered", m.Name, s.Name)
			}
		}
	case TaskRestoreSnapshot:
		if m.Name != target || !m.Etcd || !servers(TaskStop) {
			w.t.Errorf("restored on %s instead of %s, or servers run: %v", m.Name, target, w.done)
		}
	case TaskStart:
		if m.Name != target && !slices.Contains(w.done[target], TaskStart) || !slices.Contains(w.done[target], TaskRestoreSnapshot) {
			w.t.Errorf("%s is started before %s: %v", m.Name, target, w.done)
		}
	}
	if m.Deleting {
		w.t.Errorf("%s is being deleted and has a task", m.Name)
	}
}

// act lets machines do their tasks, or not.
func (w *world) act() {
	for i := range w.in.Machines {
		m := &w.in.Machines[i]
		if m.Has && (m.Progress == rollout.ProgressPending || m.Progress == rollout.ProgressFailed) && w.IntN(3) == 0 {
			m.Progress = rollout.ProgressApplied
			if w.IntN(40) == 0 {
				m.Progress = rollout.ProgressFailed
				continue
			}
			task := w.delivered[m.Name].Name
			w.done[m.Name] = append(w.done[m.Name], task)
			if task == TaskRestoreSnapshot {
				if w.restored != "" && w.restored != m.Name {
					w.t.Errorf("restored on %s and on %s", w.restored, m.Name)
				}
				w.restored = m.Name
			}
		}
		switch w.IntN(200) {
		case 0:
			m.Deleting = true
		case 1:
			m.Unhealthy = []string{"etcd"}
		case 2, 3:
			m.Unhealthy = nil
		case 4:
			m.Node = rollout.NodeNotReady
		case 5, 6:
			m.Node = rollout.NodeReady
		}
	}
	switch w.IntN(60) {
	case 0:
		w.op.Spec.Paused = !w.op.Spec.Paused
	case 1:
		w.in.Connected = !w.in.Connected
	case 2:
		w.in.StrayNodes = []StrayNode{{Name: "old", Lost: w.IntN(2) == 0}}
	case 3:
		w.op.Spec.Cancel = w.IntN(10) == 0
	case 4:
		w.in.Snapshot.Machine = "s1" // no longer matters once the restore has begun
	}
	w.in.Now = w.in.Now.Add(time.Duration(w.IntN(60)) * time.Second)
}

// TestRandomRestores: nothing is stopped before everything was checked, nothing is restored on two machines or while servers run, nobody
// joins before the restored machine is there, and every restore ends.
func TestRandomRestores(t *testing.T) {
	ended := map[operationv1.Phase]int{}
	for seed := range uint64(4000) {
		w := newWorld(t, seed)
		for range 4000 {
			w.decide()
			if w.op.Status.Phase.Ended() {
				break
			}
			w.act()
			if len(w.op.Status.Step) > 0 && w.op.Spec.Paused && w.IntN(20) == 0 {
				w.op.Spec.Paused = false
			}
		}
		if !w.op.Status.Phase.Ended() {
			t.Errorf("seed %d: it does not end: %+v", seed, w.op.Status)
		}
		ended[w.op.Status.Phase]++
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if ended[operationv1.PhaseSucceeded] < 500 || ended[operationv1.PhaseFailed] < 500 {
		t.Errorf("the restores end in %v", ended)
	}
	t.Logf("the restores end in %v", ended)
}
