package rkecontrolplane

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/inprogress"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

// backlog counts the machines of all clusters that the hub works on: that are new, or have a plan in progress. Clusters share the hub's
// processors, so that the time that a machine needs depends on the machines of all. The zero value has none.
type backlog struct {
	mu       sync.Mutex
	clusters map[client.ObjectKey]counted
	all      work
	// swept is when clusters that nothing was heard of were last dropped.
	swept time.Time
}

// counted is the work for a cluster, and when it was counted.
type counted struct {
	work work
	at   time.Time
}

// work is what there is to do.
type work struct {
	// clusters have a machine that is new or has a plan in progress.
	clusters int
	// machines are these, fresh those that are new, and delivered those with a plan in progress.
	machines, fresh, delivered int
}

// countedFor is how long a plan in progress counts, and a cluster that is not reconciled. What takes longer waits for something other than
// the hub.
const countedFor = 10 * time.Minute

// workOn counts the machines of a cluster.
func workOn(machines []*machine, now time.Time) (w work) {
	for _, m := range machines {
		isNew, inProgress := m.isNew(), m.untilProgressShown(countedFor, now) > 0
		if isNew {
			w.fresh++
		}
		if inProgress {
			w.delivered++
		}
		if isNew || inProgress {
			w.machines, w.clusters = w.machines+1, 1
		}
	}
	return w
}

func (w work) plus(other work, times int) work {
	return work{clusters: w.clusters + times*other.clusters, machines: w.machines + times*other.machines,
		fresh: w.fresh + times*other.fresh, delivered: w.delivered + times*other.delivered}
}

// set replaces what there is to do for a cluster, and returns what there is for all.
func (b *backlog) set(controlPlane client.ObjectKey, w work, now time.Time) work {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replace(controlPlane, w, now)
	if now.Sub(b.swept) >= countedFor {
		b.swept = now
		for key, known := range b.clusters {
			if now.Sub(known.at) >= countedFor {
				b.replace(key, work{}, now)
			}
		}
	}
	return b.all
}

func (b *backlog) replace(controlPlane client.ObjectKey, w work, now time.Time) {
	b.all = b.all.plus(b.clusters[controlPlane].work, -1).plus(w, 1)
	if (w == work{}) {
		delete(b.clusters, controlPlane)
		return
	}
	if b.clusters == nil {
		b.clusters = map[client.ObjectKey]counted{}
	}
	b.clusters[controlPlane] = counted{w, now}
}

// progressInterval is the least time between two writes of conditions of a cluster that say no more than how far its machines have come:
// while many machines are made or changed, names and numbers in messages change with each of them. Three objects and the provisioning log
// show them, which takes a tenth of a second of a processor: a sixth of one for all clusters, until most is reached.
func (w work) progressInterval() time.Duration {
	const least, most, each = time.Second, time.Minute, 600 * time.Millisecond
	return min(max(least, time.Duration(w.clusters)*each), most)
}

// firstWaitShownAfter is the age from which a new machine says what it waits for, which is its infrastructure as a rule. Cluster API writes
// its own first conditions at that time, with which other writers cause conflicts, and an infrastructure that is quick is there before.
func (w work) firstWaitShownAfter() time.Duration {
	return inprogress.Delay(3*time.Second, w.fresh)
}

// progressShownAfter is how long after the delivery of a plan its machine begins to say what its agent does with it.
func (w work) progressShownAfter() time.Duration { return plansecrets.ProgressShownAfter(w.delivered) }

// rest is how long a cluster of some machines is left alone after a reconcile. To look at a machine takes some 20 µs of a processor, and
// while many are made or changed there is always something new.
func (w work) rest(machines int) time.Duration {
	const each, most = 500 * time.Microsecond, time.Second
	return max(time.Duration(machines)*each, min(time.Duration(w.machines)*each, most))
}
