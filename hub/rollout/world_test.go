package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// plan is what a simulated machine is told.
type plan struct {
	// Version and Drained need a drain, Restarted, Server and Init a restart, Minor neither.
	Version, Drained, Restarted, Minor int
	Server                             string
	Init                               bool
	// Bad says how the plan goes wrong: "install" before anything is touched, "start" with the distribution stopped; empty if it does not.
	Bad string
}

// between is what the installer does with another plan.
func between(before, after plan) Change {
	same := before
	same.Minor = after.Minor
	switch {
	case before == after:
		return ChangeNone
	case same == after:
		return ChangeMinor
	case before.Version != after.Version || before.Drained != after.Drained:
		return ChangeDrain
	}
	return ChangeRestart
}

// host is a machine: what the hub's API holds of it, and what is true of it.
type host struct {
	name, roles string

	// What follows is in the hub's API, and all that a hub knows after it was killed.
	deleting, identity, provisioned, init bool
	joinURL, joinedTo                     string
	delivered, applied                    *plan
	state                                 Progress
	checkedIn, probesPassed, probed       bool
	failing                               []string
	drain                                 Drain
	nodeInfo                              string
	removal                               Removal

	// What follows is in the cluster.
	node            bool
	ready           bool
	cordoned, asked bool
	silentFor       int

	// What follows is true of the machine.
	power, agent bool
	// work is the plan that the agent is at, for so many steps more.
	work     *plan
	workLeft int
	// runs is what the distribution runs with, nil before its first start; it is up unless it needs so many steps more. stopped is set
	// where a bad plan has stopped it.
	runs      *plan
	startLeft int
	stopped   bool
	// ill is a component that stays unhealthy until the next restart.
	ill bool
	// promoteLeft, hookLeft, deleteLeft, retryLeft and drainLeft are steps until something is done.
	promoteLeft, deleteLeft, retryLeft, drainLeft int
	// downSince is the step at which it went down by itself, takenAt that at which the hub has last begun to change it.
	downSince, takenAt int
	taken              bool
}

func (h *host) has(role string) bool { return strings.Contains(h.roles, role) }
func (h *host) server() bool         { return h.has("e") || h.has("c") }
func (h *host) up() bool {
	return h.power && h.runs != nil && h.startLeft == 0 && !h.stopped
}

// spec is what the cluster's author wants.
type spec struct {
	plan
	controlPlane, worker string
	drain, hooks         bool
}

// world is a cluster with its hub, its hosts and its etcd.
type world struct {
	spec  spec
	hosts map[string]*host
	// etcd is the membership as it is true. A member whose host is gone stays one until it is removed.
	etcd map[string]Membership
	// clusters counts how many clusters were started; established is set once one was seen to work.
	clusters    int
	established bool
	// lostAt is when etcd was last seen without its quorum.
	lostAt                int
	bootstrapped          bool
	disconnected          bool
	paused                bool
	problem               string
	connected             bool
	hookLate, promoteLate int
	step                  int
	rand                  *rand.Rand
	events                []string
	last                  map[string]string
	faults                []string
	// limit cuts a pass of the hub short after so many writes, as SIGKILL does; negative for never.
	limit    int
	elect    func([]Machine, string, bool) Election
	remove   func(Inputs, string) Wait
	joinable func(Machine) bool
	waits    map[string]Decision
	outcome  Outcome
	// told is called after each step, unless it is nil.
	told func()
}

func newWorld(r *rand.Rand) *world {
	return &world{
		spec: spec{plan: plan{Version: 1}}, hosts: map[string]*host{}, etcd: map[string]Membership{}, rand: r, limit: -1, last: map[string]string{},
		lostAt: -100, elect: Elect, remove: MayRemove, joinable: Machine.Joinable,
	}
}

// steps is how long something takes: one step in golden logs, up to n otherwise.
func (w *world) steps(n int) int {
	if w.rand == nil {
		return 1
	}
	return 1 + w.rand.IntN(n)
}

func (w *world) say(format string, args ...any) {
	w.events = append(w.events, fmt.Sprintf(format, args...))
}
func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf("step %d: ", w.step)+fmt.Sprintf(format, args...))
}

func (w *world) sorted() []*host {
	return slices.SortedFunc(maps.Values(w.hosts), func(a, b *host) int { return strings.Compare(a.name, b.name) })
}

// add registers machines: "a:ecw" has all roles.
func (w *world) add(machines ...string) *world {
	for _, m := range machines {
		name, roles, _ := strings.Cut(m, ":")
		w.hosts[name] = &host{name: name, roles: roles, identity: true, provisioned: true, power: true, agent: true, downSince: -100, takenAt: -100}
	}
	return w
}

// run brings machines into the world that have been a cluster for long; the first is the init node.
func (w *world) run(machines ...string) *world {
	w.add(machines...)
	first, _, _ := strings.Cut(machines[0], ":")
	for _, m := range machines {
		name, _, _ := strings.Cut(m, ":")
		h := w.hosts[name]
		h.init = name == first
		if h.server() {
			h.joinURL = url(name)
		}
		if !h.init {
			h.joinedTo = url(first)
		}
		p := w.spec.plan
		p.Server, p.Init = h.joinedTo, h.init
		h.delivered, h.applied, h.runs, h.state = &p, &p, &p, ProgressApplied
		h.checkedIn, h.probed, h.probesPassed, h.node, h.ready, h.nodeInfo = true, true, true, true, true, version(p.Version)
		if h.has("e") {
			w.etcd[name] = MemberVoter
		}
	}
	w.clusters, w.established, w.bootstrapped, w.connected = 1, true, true, true
	return w
}

func url(name string) string       { return "https://" + name }
func version(v int) string         { return fmt.Sprintf("v1.%d.0", v) }
func (w *world) at(n string) *host { return w.hosts[n] }

// voters are the members of etcd that vote, and how many of them are up.
func (w *world) voters() (voters []string, up int) {
	for _, name := range slices.Sorted(maps.Keys(w.etcd)) {
		if w.etcd[name] != MemberVoter {
			continue
		}
		voters = append(voters, name)
		if h := w.hosts[name]; h != nil && h.up() {
			up++
		}
	}
	return voters, up
}

func (w *world) quorate() bool {
	voters, up := w.voters()
	return len(voters) > 0 && up >= quorum(len(voters))
}

// serves tells whether the cluster's API answers.
func (w *world) serves() bool {
	return w.quorate() && slices.ContainsFunc(w.sorted(), func(h *host) bool { return h.has("c") && h.up() })
}

// tick is one step of everything: the hub, the controllers beside it, and the hosts.
func (w *world) tick() {
	w.step++
	w.hubPass()
	for _, h := range w.sorted() {
		w.drainer(h)
		w.leave(h)
		if w.hosts[h.name] == nil {
			continue
		}
		w.agentStep(h)
		w.process(h)
	}
	for _, h := range w.sorted() {
		w.kubelet(h)
		w.probe(h)
	}
	w.checkQuorum()
	w.connected = w.serves() && !w.disconnected
	if w.told != nil {
		w.told()
	}
}

// agentStep takes, applies and reports plans.
func (w *world) agentStep(h *host) {
	if !h.power || !h.agent {
		return
	}
	if h.state == ProgressFailed {
		if h.retryLeft--; h.retryLeft <= 0 && w.rand != nil {
			h.state = ProgressPending
		}
	}
	if h.work == nil {
		if h.state == ProgressPending {
			h.work, h.workLeft, h.state, h.checkedIn = h.delivered, w.steps(3), ProgressApplying, true
		}
		return
	}
	if h.workLeft--; h.workLeft > 0 {
		return
	}
	if h.workLeft == 0 && !w.install(h) {
		w.finish(h, ProgressFailed)
		return
	}
	// The installer waits until the distribution is up, but not for ever.
	if h.up() {
		w.finish(h, ProgressApplied)
	} else if h.stopped || h.workLeft < -20 {
		w.finish(h, ProgressFailed)
	}
}

// install runs the installer, which restarts the distribution where the plan asks for it.
func (w *world) install(h *host) bool {
	if h.work.Bad == "install" {
		return false
	}
	before := h.runs
	h.runs = h.work
	if before != nil && !between(*before, *h.work).Disruptive() && !h.stopped {
		return true
	}
	if before != nil && h.up() {
		w.checkRestart(h, *before)
	}
	h.startLeft, h.ill, h.stopped = w.steps(3), false, h.work.Bad == "start"
	if h.stopped {
		h.downSince = w.step
	}
	return true
}

func (w *world) finish(h *host, state Progress) {
	if h.work == h.delivered {
		h.state, h.retryLeft, h.taken = state, w.steps(6), false
		if state == ProgressApplied {
			h.applied = h.delivered
		} else {
			w.say("%s: the plan fails", h.name)
		}
	} else if h.state != ProgressPending {
		h.state = ProgressPending
	}
	h.work = nil
}

// process starts the distribution.
func (w *world) process(h *host) {
	if !h.power || h.runs == nil || h.startLeft == 0 || h.stopped {
		return
	}
	if h.startLeft--; h.startLeft > 0 {
		return
	}
	if h.has("e") && w.etcd[h.name] == "" && !w.enter(h) || h.nodeInfo == "" && !h.runs.Init && !w.serverUp(h.runs.Server) {
		h.startLeft = 1
		return
	}
}

func (w *world) serverUp(address string) bool {
	h := w.hosts[strings.TrimPrefix(address, "https://")]
	return h != nil && h.up()
}

// enter makes a host a member of etcd: of a new one if it was told to start one.
func (w *world) enter(h *host) bool {
	if h.asked {
		// A removed member does not come back.
		return false
	}
	if h.runs.Init {
		w.clusters++
		if w.established {
			w.fault("%s starts a second cluster", h.name)
		}
		w.etcd = map[string]Membership{h.name: MemberVoter}
		w.say("%s starts the cluster", h.name)
		return true
	}
	learning := slices.Contains(slices.Collect(maps.Values(w.etcd)), MemberLearner)
	if learning || !w.quorate() || !w.serverUp(h.runs.Server) {
		return false
	}
	w.etcd[h.name], h.promoteLeft = MemberLearner, w.steps(3)+w.promoteLate
	w.say("%s joins etcd as a learner", h.name)
	return true
}

// kubelet keeps the Node, and etcd's promotion of learners.
func (w *world) kubelet(h *host) {
	if w.etcd[h.name] == MemberLearner && h.up() && w.quorate() {
		if h.promoteLeft--; h.promoteLeft <= 0 {
			w.etcd[h.name] = MemberVoter
			w.say("%s votes in etcd", h.name)
		}
	}
	if !w.serves() {
		return
	}
	if h.up() {
		h.node, h.ready, h.silentFor, h.nodeInfo = true, true, 0, version(h.runs.Version)
		return
	}
	if h.silentFor++; h.silentFor > 1 {
		h.ready = false
	}
}

func (w *world) probe(h *host) {
	if !h.power || !h.agent || h.runs == nil || h.delivered == nil {
		return
	}
	h.probed, h.failing = true, nil
	if !h.up() {
		if h.has("e") {
			h.failing = append(h.failing, probeEtcd)
		}
		h.failing = append(h.failing, probeKubelet)
	} else if h.has("c") && !w.quorate() {
		h.failing = []string{probeAPIServer}
	} else if h.ill {
		h.failing = []string{"kube-scheduler"}
	}
	if h.state == ProgressApplied && len(h.failing) == 0 {
		h.probesPassed = true
	}
}

// drainer is the drain controller with its hooks.
func (w *world) drainer(h *host) {
	if h.deleting {
		h.drain = Drain{}
		return
	}
	if h.drain.Asked == "" || !w.connected {
		h.drainLeft = 0
		return
	}
	end := h.drain.Uncordon == h.drain.Asked
	if !end && h.drain.Done == h.drain.Asked {
		return
	}
	if h.drainLeft == 0 {
		h.drainLeft = w.steps(4) + w.hookLate
		if !end && h.drain.Asked == "drain" {
			h.cordoned = true
		}
		return
	}
	if h.drainLeft--; h.drainLeft > 0 {
		return
	}
	if end {
		h.cordoned, h.drain = false, Drain{}
		w.say("%s is taken back", h.name)
		return
	}
	h.drain.Done = h.drain.Asked
	w.say("%s is drained", h.name)
}

// leave is what Cluster API does to a machine that is being deleted, and what removes its member from etcd.
func (w *world) leave(h *host) {
	if !h.deleting {
		return
	}
	if h.deleteLeft--; h.deleteLeft > 0 {
		return
	}
	if h.has("e") && h.node && w.etcd[h.name] != "" {
		h.removal = RemovalDue
		if h.deleteLeft > -40 && h.up() && slices.ContainsFunc(w.sorted(), func(o *host) bool { return o.server() && !o.deleting && o.joinedTo == url(h.name) }) {
			w.note(h.name+" leaves", "others have joined the cluster at it, which are given another address first")
			return
		}
		if !h.asked {
			if wait := w.remove(w.inputs(), h.name); wait != (Wait{}) {
				w.note(h.name+" leaves", wait.Message)
				return
			}
			h.asked = true
			w.checkRemoval(h)
			w.say("%s: etcd is asked to remove it", h.name)
			return
		}
		if !w.serves() {
			return
		}
		delete(w.etcd, h.name)
		w.say("%s is no member of etcd any more", h.name)
	}
	if h.has("e") && !h.node {
		// A machine that never came up has no Node and, for all that anybody can know, no member.
		delete(w.etcd, h.name)
	}
	delete(w.hosts, h.name)
	w.say("%s is gone", h.name)
}

// note says something once.
func (w *world) note(key, text string) {
	if w.last[key] != text {
		w.last[key] = text
		w.say("%s: %s", key, text)
	}
}
