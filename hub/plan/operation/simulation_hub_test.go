package operation

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/operations"
)

// reconciliation is one reconcile of the controller of the RKEControlPlane. It keeps nothing for the next one.
type reconciliation struct {
	*simulation
	live                bool
	machines            []*view
	stored              *stored
	observed, operation operationv1.Operation
	bootstrapped        bool
	election            rollout.Election
	deleteNodes         []string
	deletesSnapshot     bool
	// all is what states has returned last.
	all []rollout.Machine
}

// view is a machine as a reconcile has read it.
type view struct {
	host     *host
	read     *record
	state    rollout.Machine
	joinURL  string
	plan     plan
	decision rollout.Decision
}

// reconcile runs the phases until one is refused, or the hub ends.
func (s *simulation) reconcile() {
	if s.paused {
		return
	}
	s.writes = 0
	r := &reconciliation{simulation: s}
	r.readMachines()
	phases := []func() bool{r.findOperation, r.rotateTokens, r.restoreTokens, r.plan, r.writeOperation, r.protect, r.deliver, r.cleanUp}
	if s.rules.plansFirst {
		phases[4], phases[6] = phases[6], phases[4]
	}
	for _, phase := range phases {
		if !phase() {
			return
		}
	}
}

// mayWrite reports whether the hub lives to write once more.
func (s *simulation) mayWrite() bool {
	if s.maxWrites >= 0 && s.writes >= s.maxWrites {
		s.logf("the hub is killed")
		s.started = s.now()
		return false
	}
	s.writes++
	return true
}

func (r *reconciliation) readMachines() {
	hosts, c := r.sortedHosts(), r.current()
	views := make([]view, len(hosts))
	r.machines, r.bootstrapped = make([]*view, len(hosts)), r.simulation.bootstrapped
	for i, h := range hosts {
		read := h.cached
		if r.live {
			read = h.api
		}
		r.bootstrapped = r.bootstrapped || read.joinURL != ""
		views[i] = view{host: h, read: read, state: r.machine(h, read, c)}
		r.machines[i] = &views[i]
	}
}

func (r *reconciliation) findOperation() bool {
	var waiting []operationv1.Operation
	of := map[operationv1.Operation]*stored{}
	for _, o := range r.operations {
		switch {
		case o.cached == nil:
		case operations.EndedIn(o.cached) == "":
			waiting = append(waiting, o.cached)
			of[o.cached] = o
		case o.cached == o.api && o.cached.GetAnnotations() == nil:
			if !r.note(o) {
				return false
			}
		case !o.cached.CommonStatus().Phase.Ended():
			op := operations.Copy(o.cached)
			operations.Recover(op, operations.EndedIn(op), r.now())
			if !r.writeStatus(o, o.cached, op) {
				return false
			}
		}
	}
	r.observed = r.rules.next(waiting)
	if r.observed == nil {
		return true
	}
	r.stored, r.operation = of[r.observed], r.observed
	for _, op := range waiting {
		if op == r.observed || op.CommonStatus().Phase == operationv1.PhaseInProgress {
			continue
		}
		queued := operations.Copy(op)
		if !r.refuse(queued) {
			Queue(queued, r.now())
		}
		if !r.writeStatus(of[op], op, queued) {
			return false
		}
	}
	return true
}

// writeStatus writes what was decided of an operation. It is refused where somebody has written since.
func (r *reconciliation) writeStatus(o *stored, observed, decided operationv1.Operation) bool {
	if reflect.DeepEqual(observed, decided) {
		return true
	}
	if o.api != observed || !r.mayWrite() {
		return false
	}
	before := o.api
	o.api = decided
	r.checkStatus(o, before)
	return !decided.CommonStatus().Phase.Ended() || r.note(o)
}

// note writes the phase of an operation that has ended as an annotation, by a write of its own.
func (r *reconciliation) note(o *stored) bool {
	if !r.mayWrite() {
		return false
	}
	noted := operations.Copy(o.api)
	noted.SetAnnotations(map[string]string{operationv1.EndedAnnotation: string(o.status().Phase)})
	o.api = noted
	return true
}

// rotateTokens makes the tokens of a TokenRotation, and makes them the cluster's once a server has them.
func (r *reconciliation) rotateTokens() bool {
	op, is := r.operation.(*operationv1.TokenRotation)
	if !is || r.tokens.rotatedBy == string(op.UID) || op.Status.Phase != operationv1.PhaseInProgress {
		return true
	}
	wanted := r.tokens
	switch {
	case !TokenRotated(op) && wanted.next != 0:
		return true
	case !TokenRotated(op):
		wanted.last++
		wanted.next = wanted.last
	case wanted.next == 0:
		r.fault("%s has rotated a token that the hub does not have", op.Name)
		return false
	default:
		wanted.server, wanted.next, wanted.rotatedBy = wanted.next, 0, string(op.UID)
	}
	if !r.mayWrite() {
		return false
	}
	r.tokens = wanted
	return true
}

// restoredToken is the token that a restore needs; 0 where the cluster has it.
func (r *reconciliation) restoredToken() int {
	op, is := r.operation.(*operationv1.ETCDSnapshotRestore)
	if !is || !r.rules.exclusive(op) || !RestoresData(op) || op.Status.Snapshot == nil {
		return 0
	}
	if token := r.snapshot(op.Status.Snapshot.Name).token; token != r.tokens.server {
		return token
	}
	return 0
}

func (r *reconciliation) restoreTokens() bool {
	token := r.restoredToken()
	if token == 0 {
		return true
	}
	if !r.mayWrite() {
		return false
	}
	r.tokens.server, r.tokens.next = token, 0
	return true
}

func (r *reconciliation) tokensReady() bool {
	if r.rules.tokensAnyway {
		return true
	}
	op, is := r.operation.(*operationv1.TokenRotation)
	if is && !TokenRotated(op) {
		return r.tokens.next != 0
	}
	return r.restoredToken() == 0 && (!is || r.tokens.rotatedBy == string(op.UID))
}

func (r *reconciliation) writeOperation() bool {
	return r.operation == nil || r.writeStatus(r.stored, r.observed, r.operation)
}

// protect marks Machines while machines are stopped for a restore.
func (r *reconciliation) protect() bool {
	mark := ""
	if r.operation != nil && r.rules.exclusive(r.operation) {
		mark = InProgress(r.operation)
	} else if len(r.stoppedMachines()) > 0 {
		mark = rollout.ReasonRestoreFailed
	}
	for _, v := range r.machines {
		if v.read.restoring != mark {
			if !r.mayWrite() {
				return false
			}
			v.host.update(func(a *record) { a.restoring = mark })
			v.read = v.host.api // a patch of the Machine is no conflict with a write of the plan Secret
		}
	}
	return true
}

// deliver writes plan Secrets. The init node's is the last.
func (r *reconciliation) deliver() bool {
	for _, init := range []bool{false, true} {
		refused := false
		for _, v := range r.machines {
			if v.state.Init != init || v.read.init == init && v.read.joinURL == v.state.JoinURL && !v.decision.Deliver &&
				v.decision.Drain == "" && !v.decision.Uncordon {
				continue
			}
			if v.read != v.host.api {
				refused = true
				continue
			}
			if !r.mayWrite() {
				return false
			}
			r.deliverTo(v)
		}
		if refused {
			return false
		}
	}
	for _, v := range r.machines {
		if v.state.Init && v.state.Working() {
			r.simulation.bootstrapped = true
		}
		if v.decision.Reason == "" || v.decision.Message == "" {
			r.fault("%s has no reason", v.host.name)
		}
	}
	return true
}

func (r *reconciliation) deliverTo(v *view) {
	if v.decision.Deliver {
		r.logf("%s is delivered %s %s %s", v.host.name, v.state.Change, v.plan.step, v.plan.task)
		r.checkDelivery(v)
	}
	p := v.plan
	v.host.update(func(a *record) {
		a.init, a.joinURL = v.state.Init, v.state.JoinURL
		switch {
		case v.decision.Drain != "":
			a.drain = rollout.Drain{Requested: v.decision.Drain}
		case v.decision.Uncordon:
			a.drain.Uncordon = a.drain.Requested
		}
		if v.decision.Deliver {
			a.delivered, a.state, a.joinedTo, a.replaced = &p, rollout.ProgressPending, v.joinURL, v.state.Replaced()
			a.probed, a.probesPassed, a.failing = false, false, nil
		}
	})
}

func (r *reconciliation) cleanUp() bool {
	for _, name := range r.deleteNodes {
		if c := r.current(); c != nil && r.mayWrite() {
			delete(c.nodes, name)
			delete(c.members, name) // managed-etcd-controller of k3s removes the member of a Node that is deleted
		}
	}
	r.deleteSnapshot()
	return true
}

func (s *simulation) snapshot(name string) *snapshot {
	i := slices.IndexFunc(s.snapshots, func(o *snapshot) bool { return o.name == name })
	return s.snapshots[i]
}

// create creates an operation.
func (s *simulation) create(op operationv1.Operation) *stored {
	name := fmt.Sprintf("op%d", len(s.operations))
	op.SetName(name)
	op.SetUID(types.UID(name))
	op.SetCreationTimestamp(metav1.NewTime(s.now()))
	if restore, is := op.(*operationv1.ETCDSnapshotRestore); is && restore.Spec.Args.Name == "" {
		all := slices.DeleteFunc(slices.Clone(s.snapshots), func(o *snapshot) bool {
			return !s.restorable(o.name) || s.namedByAny(o.name) && o.name != "first"
		})
		restore.Spec.Args.Name = all[s.IntN(len(all))].name
	}
	o := &stored{api: op}
	s.operations = append(s.operations, o)
	s.logf("%s %s is created", operationv1.Kind(op), name)
	return o
}
