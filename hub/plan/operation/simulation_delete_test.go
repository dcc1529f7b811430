package operation

import (
	"fmt"
	"slices"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/operations"
)

// file is a file with a snapshot, and the ETCDSnapshot that follows it.
type file struct {
	// name is that of the ETCDSnapshot. machine has the file, or has saved the one in S3.
	name, machine string
	bucket        bool
	// there is the file; listed is set while the cluster lists it, seen while the hub has seen that last. known is the ETCDSnapshot.
	there, listed, seen, known bool
	// listIn are steps until the cluster lists what there is, or lists it no more.
	listIn int
	// unreachable says why no machine can delete it.
	unreachable string
}

func (s *simulation) addFile(name, machine string, bucket bool) {
	if s.file(name) != nil {
		return // it is saved again
	}
	f := &file{name: name, machine: machine, bucket: bucket, there: true, listed: true, seen: true, known: true}
	if !bucket && s.IntN(12) == 0 {
		f.there, f.unreachable = false, "the snapshot could not be saved"
	}
	s.files = append(s.files, f)
}

// addFiles are what a snapshot leaves on a machine, and once in S3.
func (s *simulation) addFiles(name, machine string, uploaded bool) {
	s.addFile(name+" on "+machine, machine, false)
	if uploaded {
		s.addFile(name, machine, true)
	}
}

func (s *simulation) file(name string) *file {
	if i := slices.IndexFunc(s.files, func(f *file) bool { return f.name == name }); i >= 0 {
		return s.files[i]
	}
	return nil
}

// restorable reports whether the hub has the ETCDSnapshot of one in S3. The first one is kept by hand.
func (s *simulation) restorable(name string) bool {
	f := s.file(name)
	return f == nil || f.known && (f.there || !s.faultsEnded)
}

// listFiles is what the distribution lists, and what the hub makes of it.
func (s *simulation) listFiles() {
	up := s.apiUp(s.current())
	for _, f := range s.files {
		if h := s.hosts[f.machine]; h == nil && !f.bucket {
			f.there = false // with its machine
		}
		if h := s.hosts[f.machine]; up && f.unreachable == "" && f.listed != f.there && (f.bucket || h != nil && h.up()) {
			if f.listIn--; f.listIn <= 0 {
				f.listed = f.there
			}
		}
		if s.connected && up {
			f.seen = f.listed
			f.known = f.known || f.listed // it is followed again
		}
	}
}

// nodeThere reports whether the cluster has the Node of a file.
func (s *simulation) nodeThere(f *file) bool {
	if c := s.current(); c != nil {
		_, there := c.nodes[f.machine]
		return there
	}
	return s.hosts[f.machine] != nil
}

// deletion is what the hub reads of the ETCDSnapshot.
func (s *simulation) deletion(op *operationv1.ETCDSnapshotDelete) (out Deletion) {
	f := s.file(op.Spec.Args.Name)
	if f == nil || !f.known {
		return Deletion{}
	}
	location := "file:///snapshots/" + f.name
	if f.bucket {
		location = "s3://bucket/" + f.name
	}
	out = Deletion{Found: true, Followed: true, Listed: f.seen && (f.bucket || s.nodeThere(f)), InBucket: f.bucket, Node: f.machine,
		Unreachable: f.unreachable, File: operationv1.DeletedSnapshot{Name: f.name, Location: location}}
	if s.hosts[f.machine] != nil {
		out.Machine = f.machine
	}
	return out
}

// refuse reports whether a deletion ends since its snapshot is to be restored.
func (s *simulation) refuse(op operationv1.Operation) bool {
	var notEnded []operationv1.Operation
	for _, o := range s.operations {
		if o.cached != nil && !o.cached.CommonStatus().Phase.Ended() {
			notEnded = append(notEnded, o.cached)
		}
	}
	return s.rules.refuse(op, notEnded, s.now())
}

// deleteFile is the task.
func (s *simulation) deleteFile(h *host) bool {
	i := slices.IndexFunc(s.operations, func(o *stored) bool { return string(o.api.GetUID()) == h.attempt.uid })
	if !h.up() || i < 0 {
		return false
	}
	op := s.operations[i].api.(*operationv1.ETCDSnapshotDelete)
	f := s.file(op.Spec.Args.Name)
	if !h.has("e") || !f.bucket && f.machine != h.name {
		s.fault("%s is to delete the file of %s, which it does not have", h.name, f.name)
		return false
	}
	if f.there {
		f.there, f.listIn = false, s.IntN(4)
	}
	return true
}

// checkInUse checks that a deletion neither waits nor begins while the hub sees a restore of its snapshot.
func (s *simulation) checkInUse(o *stored, before *operationv1.Status) {
	op, is := o.api.(*operationv1.ETCDSnapshotDelete)
	if !is || op.Spec.Cancel || before.Phase == operationv1.PhaseInProgress || op.Status.Phase.Ended() {
		return
	}
	for _, other := range s.operations {
		restore, is := other.cached.(*operationv1.ETCDSnapshotRestore)
		if is && operations.EndedIn(restore) == "" && !restore.Status.Phase.Ended() && restore.Spec.Args.Name == op.Spec.Args.Name {
			s.fault("%s is %s, and %s restores its snapshot", op.Name, op.Status.Phase, restore.Name)
		}
	}
}

// deleteSnapshot deletes the ETCDSnapshot, unless the cluster lists its file. That of a Node that is gone is no longer listed then.
func (r *reconciliation) deleteSnapshot() {
	op, is := r.observed.(*operationv1.ETCDSnapshotDelete)
	if !is || !r.deletesSnapshot {
		return
	}
	f, up := r.file(op.Spec.Args.Name), r.connected && r.apiUp(r.current())
	if !r.rules.deleteListed && (!up || f.listed && (f.bucket || r.nodeThere(f))) || !r.mayWrite() {
		return
	}
	if up && !r.rules.deleteListed {
		f.listed, f.seen = false, false
	}
	f.known = false
	h := r.hosts[f.machine]
	if f.there && op.Status.Unreachable == "" && (f.bucket || h != nil && !h.api.deleting) {
		r.fault("the ETCDSnapshot %s is deleted, and %s has the file", f.name, f.machine)
	}
}

// checkDeleted checks a deletion that has succeeded: the file is gone, or the status says why not.
func (s *simulation) checkDeleted(op *operationv1.ETCDSnapshotDelete) {
	f := s.file(op.Spec.Args.Name)
	said := op.Status.Unreachable != "" ||
		slices.ContainsFunc(op.Status.Machines, func(m operationv1.MachineStatus) bool { return m.Message != "" })
	if f.known || f.there && !said {
		s.fault("%s has succeeded; the file of %s is there: %v, its ETCDSnapshot: %v", op.Name, f.name, f.there, f.known)
	}
}

// checkFiles checks what is left of deletions in a cluster that has converged.
func (s *simulation) checkFiles() {
	for _, o := range s.operations {
		op, is := o.api.(*operationv1.ETCDSnapshotDelete)
		if f := s.file(s.deletedBy(o)); is && op.Status.Phase == operationv1.PhaseSucceeded && !f.there && f.known {
			s.fault("%s has succeeded, and there is another ETCDSnapshot %s, without a file", op.Name, f.name)
		}
	}
	for _, h := range s.sortedHosts() {
		if p := h.api.delivered; p.uid != "" || p.task != "" {
			s.fault("%s has the task %s of %s, and no operation is left", h.name, p.task, p.uid)
		}
	}
}

func (s *simulation) deletedBy(o *stored) string {
	if op, is := o.api.(*operationv1.ETCDSnapshotDelete); is {
		return op.Spec.Args.Name
	}
	return ""
}

// namedByAny reports whether an operation that has not ended names a snapshot.
func (s *simulation) namedByAny(name string) bool {
	return slices.ContainsFunc(s.operations, func(o *stored) bool {
		restore, is := o.api.(*operationv1.ETCDSnapshotRestore)
		return !o.status().Phase.Ended() && (s.deletedBy(o) == name || is && restore.Spec.Args.Name == name)
	})
}

// randomDeletion names a snapshot that can be deleted, or with faults any.
func (s *simulation) randomDeletion() operationv1.Operation {
	var names []string
	for _, f := range s.files {
		h := s.hosts[f.machine]
		reachable := f.unreachable == "" && (f.bucket || h != nil && !h.api.deleting)
		if f.known && (!s.faultsEnded || reachable && !s.namedByAny(f.name)) {
			names = append(names, f.name)
		}
	}
	if len(names) == 0 {
		return &operationv1.ETCDSnapshotSave{}
	}
	op := &operationv1.ETCDSnapshotDelete{}
	op.Spec.Args.Name = names[s.IntN(len(names))]
	s.logf("%s is to be deleted: %s", op.Spec.Args.Name, fmt.Sprintf("%+v", *s.file(op.Spec.Args.Name)))
	return op
}
