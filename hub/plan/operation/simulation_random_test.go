package operation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// topologies are the clusters that random simulations start with.
var topologies = [][]string{
	{"a:ecw"}, {"a:ecw", "b:ecw", "c:ecw"}, {"a:ec", "b:ec", "c:ec", "v:w", "w:w", "x:w"}, {"a:ec", "b:ec", "c:ec", "d:ec", "e:ec", "w:w"},
	{"a:e", "b:e", "c:e", "d:c", "e:c", "v:w", "w:w"}, {"a:e", "b:c", "c:c", "w:w"}, {"a:ec", "b:ec", "w:w"},
}

// windowsRole marks a worker that runs Windows.
const windowsRole = "n"

const (
	// faultSteps is for how long random events happen. settleSteps is how long the cluster has to settle afterwards, and finalSteps how long
	// the last operation and upgrade may take.
	faultSteps, settleSteps, finalSteps = 90, 1800, 400
)

func newRandomSimulation(seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 12))
	s := newSimulation(r)
	s.drains = seed%3 == 0
	s.version, s.controlPlane, s.worker = 1+r.IntN(4), concurrency(r), concurrency(r)
	s.addRunning(topologies[r.IntN(len(topologies))]...)
	if r.IntN(2) == 0 {
		s.runtime = "rke2"
		if h := s.hosts["w"]; h != nil {
			h.roles += windowsRole
		}
	}
	return s
}

func concurrency(r *rand.Rand) string { return []string{"", "1", "2", "50%", "0"}[r.IntN(5)] }

// run runs steps with random events, ends all faults, and waits for the cluster to settle. Then an operation and an upgrade are asked for
// at once.
func (s *simulation) run() {
	for range faultSteps {
		if s.IntN(4) == 0 {
			randomEvents[s.IntN(len(randomEvents))](s)
		}
		s.maxWrites, s.lagging = -1, s.IntN(4) == 0
		if s.IntN(8) == 0 {
			s.maxWrites = s.IntN(4)
		}
		s.tick()
	}
	s.endFaults()
	if !s.settle(settleSteps) {
		return
	}
	s.faultsEnded = true
	for range 1 + s.IntN(2) {
		s.create(randomOperation(s)).faultless = true
	}
	s.version, s.restarted = min(s.version+1, len(versions)), s.restarted+1
	if s.settle(finalSteps) {
		s.checkFinalState()
	}
}

// settle runs until nothing happens any more, with a user who repairs what the hub leaves to users.
func (s *simulation) settle(steps int) bool {
	quiet := 0
	for range steps {
		s.intervene()
		s.tick()
		if quiet++; !s.settled() {
			quiet = 0
		}
		if quiet == 4 {
			return true
		}
	}
	s.fault("does not settle: %+v", s.outcome.Wait)
	for _, d := range s.outcome.Decisions {
		s.faults = append(s.faults, fmt.Sprintf("    %s: %s: %s", d.Machine, d.Reason, d.Message))
	}
	for _, h := range s.sortedHosts() {
		s.faults = append(s.faults, "    "+s.describe(h))
	}
	for _, o := range s.operations {
		if !o.status().Phase.Ended() {
			s.faults = append(s.faults, fmt.Sprintf("    %s %s: %+v", operationv1.Kind(o.api), o.api.GetName(), *o.status()))
		}
	}
	return false
}

// describe is the real state of a host.
func (s *simulation) describe(h *host) string {
	text := fmt.Sprintf("%s:%s power %v, up %v, active %v, config %+v, token %d, key %d, state %s, deleting %v, attempt %v", h.name, h.roles,
		h.power, h.up(), h.active, h.config, h.token, h.key, h.api.state, h.api.deleting, h.attempt != nil)
	if h.data != nil {
		text += fmt.Sprintf(", etcd %v of the token %d restored by %q", h.data.members, h.data.token, h.data.restoredBy)
	}
	return text
}

func (s *simulation) settled() bool {
	return s.outcome.Done && !slices.ContainsFunc(s.outcome.Decisions, func(d rollout.Decision) bool {
		return d.Deliver || d.Drain != "" ||
			d.Uncordon
	}) &&
		!slices.ContainsFunc(s.operations, func(o *stored) bool { return !o.status().Phase.Ended() }) &&
		!slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.api.deleting })
}

// intervene does what messages ask a user for: another restore where one has left machines stopped, or no data is left, another
// TokenRotation where one has left it open which token counts.
func (s *simulation) intervene() {
	pending := func(is func(operationv1.Operation) bool) bool {
		return slices.ContainsFunc(s.operations, func(o *stored) bool { return !o.status().Phase.Ended() && is(o.api) })
	}
	restores := func(op operationv1.Operation) bool { _, is := op.(*operationv1.ETCDSnapshotRestore); return is }
	if r := s.outcome.Wait.Reason; (r == rollout.ReasonRestoreFailed || r == rollout.ReasonEtcdLost) && !pending(restores) {
		s.create(&operationv1.ETCDSnapshotRestore{})
	} else if r == rollout.ReasonRestoreFailed || r == rollout.ReasonEtcdLost {
		for _, h := range s.sortedHosts() {
			if h.api.deleting && h.power {
				h.power, h.downSince = false, s.step // nothing stops it for a restore
			}
		}
	}
	for _, h := range s.sortedHosts() {
		c := s.current()
		switch {
		case h.api.deleting && (c == nil && h.data != nil || c != nil && h.data == c):
			h.config.token = h.data.token // it gets no configuration any more: somebody writes it by hand
		case h.power && h.active && !h.up() && s.refusesToken(h):
			h.config.token = s.tokens.next // its log says that the data is encrypted with another token: docs/kinds/tokenrotation.md
		}
	}
	given := func(p *plan) bool { return p != nil && p.newToken == s.tokens.next }
	if c := s.current(); c != nil && c.restoredBy != "" && c.token == s.tokens.server &&
		!slices.ContainsFunc(s.sortedHosts(), func(h *host) bool {
			return given(h.api.delivered) || given(h.attempt)
		}) {
		s.tokens.next = 0 // no server of the restored cluster has it, so that its keys may be deleted: docs/kinds/tokenrotation.md
	}
	if s.tokens.next != 0 && !pending(func(op operationv1.Operation) bool { _, is := op.(*operationv1.TokenRotation); return is }) {
		s.create(&operationv1.TokenRotation{})
	}
}

// refusesToken reports whether a server does not start since the data is encrypted with the token that a rotation has left undecided.
func (s *simulation) refusesToken(h *host) bool {
	c := h.data
	if c == nil {
		c = s.current()
	}
	return h.server() && c != nil && c.token == s.tokens.next && h.config.token != c.token
}

// endFaults repairs everything.
func (s *simulation) endFaults() {
	s.logf("all faults end")
	s.maxWrites, s.lagging, s.disconnected, s.badInstall = -1, false, false, false
	s.restarted++
	s.setPaused(false)
	for _, h := range s.sortedHosts() {
		s.powerOn(h)
		h.agent, h.hangs, h.fails, h.promoteLeft = true, false, 0, 0
		if h.api.deleting && h.api.delivered != nil && h.api.delivered.bad {
			// It gets no plan any more: somebody corrects it by hand.
			p := *h.api.delivered
			p.bad, h.attempt = false, nil
			h.update(func(a *record) { a.delivered, a.state = &p, rollout.ProgressPending })
		}
	}
	for _, o := range s.operations {
		s.setSpec(o, func(spec *operationv1.Spec) { spec.Paused = false })
	}
	for _, role := range []string{"e", "c", "w"} {
		if !slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.has(role) && !h.api.deleting }) {
			s.addMachine(role)
		}
	}
}

func (s *simulation) setSpec(o *stored, change func(*operationv1.Spec)) {
	if o.status().Phase.Ended() {
		return
	}
	op := o.api.DeepCopyObject().(operationv1.Operation)
	change(op.CommonSpec())
	o.api = op
}

func (s *simulation) setPaused(paused bool) {
	if s.paused && !paused {
		s.unpausedAt = s.now()
	}
	s.paused, s.pausedByUser = paused, paused
}

func (s *simulation) addMachine(roles string) {
	s.added++
	name := fmt.Sprintf("%c%d", 'a'+s.IntN(26), s.added)
	s.add(name, roles)
	s.logf("%s:%s is added", name, roles)
}

func (s *simulation) pick(is func(*host) bool) *host {
	hosts := slices.DeleteFunc(slices.Clone(s.sortedHosts()), func(h *host) bool { return !is(h) })
	if len(hosts) == 0 {
		return nil
	}
	return hosts[s.IntN(len(hosts))]
}

func anyHost(*host) bool { return true }

func (s *simulation) powerOn(h *host) {
	if h == nil || h.power {
		return
	}
	h.power, h.startLeft = true, 0
	if h.active = h.enabled; h.active {
		s.start(h)
	}
}

// powerOff stops a host, unless etcd would lose its quorum by that alone.
func (s *simulation) powerOff() {
	h := s.pick(func(h *host) bool { return h.power })
	if h == nil {
		return
	}
	if c := h.data; c != nil {
		alive, voters := 0, 0
		for name, membership := range c.members {
			if membership != rollout.MemberVoter {
				continue
			}
			voters++
			if o := s.hosts[name]; o != nil && o.power && o != h && o.data == c {
				alive++
			}
		}
		if alive < voters/2+1 || alive < (voters+1)/2+1 {
			return
		}
	}
	h.power, h.downSince, h.changing, h.restarting = false, s.step, false, false
	s.logf("%s loses power", h.name)
}

// deleteMachine deletes a machine, but not the last one of a role or with etcd's data.
func (s *simulation) deleteMachine(h *host) bool {
	if h == nil || h.api.deleting {
		return false
	}
	for _, role := range []string{"e", "c"} {
		if h.has(role) && !slices.ContainsFunc(s.sortedHosts(), func(o *host) bool {
			return o != h && o.has(role) && !o.api.deleting && o.up() && o.agent &&
				(role == "c" || o.data != nil && o.data.members[o.name] == rollout.MemberVoter)
		}) {
			return false
		}
	}
	h.deleteLeft = 1 + s.IntN(5)
	h.update(func(a *record) { a.deleting = true })
	s.logf("%s is deleted", h.name)
	return true
}

// randomOperation returns an operation of any kind; a restore is seldom.
func randomOperation(s *simulation) operationv1.Operation {
	switch s.IntN(12) {
	case 10, 11:
		return s.randomDeletion()
	case 0, 1:
		return &operationv1.ETCDSnapshotSave{}
	case 2, 3:
		return &operationv1.CertificateRotation{}
	case 4, 5, 6:
		return &operationv1.EncryptionKeyRotation{}
	case 7, 8:
		return &operationv1.TokenRotation{}
	}
	return &operationv1.ETCDSnapshotRestore{}
}

func (s *simulation) randomOperationOf(is func(*stored) bool) *stored {
	all := slices.DeleteFunc(slices.Clone(s.operations), func(o *stored) bool { return o.status().Phase.Ended() || !is(o) })
	if len(all) == 0 {
		return nil
	}
	return all[s.IntN(len(all))]
}

func createRandom(s *simulation) {
	for range 1 + s.IntN(2) {
		s.create(randomOperation(s))
	}
}

// randomEvents are what may happen.
var randomEvents = []func(*simulation){
	createRandom, createRandom, createRandom, createRandom, createRandom,
	func(s *simulation) { s.version = min(s.version+1, len(versions)); createRandom(s) },
	func(s *simulation) { s.version = min(s.version+1, len(versions)) },
	func(s *simulation) { s.restarted++ },
	func(s *simulation) { s.minor++ },
	func(s *simulation) { s.badInstall = true; s.restarted++ },
	func(s *simulation) { s.badInstall = false }, func(s *simulation) { s.badInstall = false },
	func(s *simulation) { s.controlPlane, s.worker = concurrency(s.Rand), concurrency(s.Rand) },
	func(s *simulation) { s.disconnected = !s.disconnected }, func(s *simulation) { s.disconnected = false },
	func(s *simulation) { s.pick(anyHost).agent = false },
	func(s *simulation) {
		for _, h := range s.hosts {
			h.agent, h.hangs, h.fails = true, false, 0
		}
	},
	func(s *simulation) { s.pick(anyHost).hangs = true },
	func(s *simulation) { s.pick(anyHost).fails = 1 + s.IntN(2) },
	func(s *simulation) {
		for _, h := range s.hosts {
			h.hangs, h.fails = false, 0
		}
	},
	(*simulation).powerOff, (*simulation).powerOff,
	func(s *simulation) { s.powerOn(s.pick(func(h *host) bool { return !h.power })) },
	func(s *simulation) { s.powerOn(s.pick(func(h *host) bool { return !h.power })) },
	func(s *simulation) { s.addMachine([]string{"w", "w", "c", "ec", "e", "ecw"}[s.IntN(6)]) },
	func(s *simulation) { s.deleteMachine(s.pick(anyHost)) },
	func(s *simulation) { s.deleteMachine(s.pick((*host).server)) },
	func(s *simulation) {
		if h := s.pick(func(h *host) bool { return !h.power }); s.deleteMachine(h) {
			s.addMachine(h.roles)
		}
	},
	func(s *simulation) { s.setPaused(!s.paused) }, func(s *simulation) { s.setPaused(false) },
	func(s *simulation) {
		if o := s.randomOperationOf(func(*stored) bool { return true }); o != nil {
			s.logf("%s is paused, or goes on", o.api.GetName())
			s.setSpec(o, func(spec *operationv1.Spec) { spec.Paused = !spec.Paused })
		}
	},
	func(s *simulation) {
		for _, o := range s.operations {
			s.setSpec(o, func(spec *operationv1.Spec) { spec.Paused = false })
		}
	},
	func(s *simulation) {
		if o := s.randomOperationOf(func(o *stored) bool { return o.status().Phase != "" }); o != nil {
			s.logf("%s is canceled", o.api.GetName())
			s.setSpec(o, func(spec *operationv1.Spec) { spec.Cancel = true })
		}
	},
	// As after a move, which takes no status along, and gives objects other UIDs.
	func(s *simulation) {
		s.bootstrapped, s.started = false, s.now()
		for _, o := range s.operations {
			if !o.status().Phase.Ended() && o.api.GetAnnotations()[operationv1.EndedAnnotation] == "" && s.IntN(4) == 0 {
				op := o.api.DeepCopyObject().(operationv1.Operation)
				*op.CommonStatus() = operationv1.Status{}
				op.SetUID(op.GetUID() + "+")
				o.api = op
				s.logf("the status of %s is lost", op.GetName())
			}
		}
	},
}
