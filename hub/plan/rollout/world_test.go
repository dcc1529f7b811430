package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
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
	node  bool
	ready bool
	// told, health and checkedAt are what etcd's leader has last written on the Node.
	membership      Membership
	health          MemberHealth
	checkedAt       time.Time
	cordoned, asked bool
	silentFor       int

	// What follows is true of the machine.
	power, agent bool
	// lastSeen is when the gateway last saw the agent.
	lastSeen time.Time
	// noNetwork is set where the kubelet has no network plugin, noKubelet where it has stopped; etcd is none the worse for either.
	noNetwork, noKubelet bool
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
	// downSince is the step at which it went down without the hub, takenAt that at which the hub has last begun to change it.
	downSince, takenAt int
	taken              bool
	// restarting is set while etcd is down because the hub has changed the machine.
	restarting bool
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
	// byName is what sorted has last returned.
	byName []*host
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
	// last is what was noted last, said what machines have said while they waited for others.
	last, said map[string]string
	faults     []string
	// limit cuts a pass of the hub short after so many writes, as SIGKILL does; negative for never.
	limit    int
	elect    func([]Machine, string, bool) Election
	remove   func(Inputs, string) Wait
	joinable func(Machine) bool
	// see changes what the hub is shown; nil for nothing.
	see     func(*Inputs)
	waits   map[string]Decision
	outcome Outcome
	// k3s has no probe of etcd's own, and old releases of both do not ask the members whether they are well.
	k3s, asksNobody bool
	// told is called after each step, unless it is nil.
	onStep func()
}

func newWorld(r *rand.Rand) *world {
	return &world{
		spec: spec{plan: plan{Version: 1}}, hosts: map[string]*host{}, etcd: map[string]Membership{}, rand: r, limit: -1,
		last: map[string]string{}, said: map[string]string{},
		lostAt: -100, elect: Elect, remove: CheckRemoval, joinable: Machine.Joinable,
	}
}

// now is the time: a step takes three minutes.
func (w *world) now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.step) * 3 * time.Minute)
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

// sorted are the hosts by name, which the caller leaves as they are. They are sorted again only where some have come or gone, since a world
// asks for them all the time.
func (w *world) sorted() []*host {
	if len(w.byName) != len(w.hosts) || slices.ContainsFunc(w.byName, func(h *host) bool { return w.hosts[h.name] != h }) {
		w.byName = slices.SortedFunc(maps.Values(w.hosts), func(a, b *host) int { return strings.Compare(a.name, b.name) })
	}
	return w.byName
}

// add registers machines: "a:ecw" has all roles.
func (w *world) add(machines ...string) *world {
	for _, m := range machines {
		name, roles, _ := strings.Cut(m, ":")
		w.hosts[name] = &host{name: name, roles: roles, identity: true, provisioned: true, power: true, agent: true, downSince: -100,
			takenAt: -100}
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
			h.membership, h.health, h.checkedAt, h.lastSeen = MemberVoter, MemberHealthy, w.now(), w.now()
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

// quorate is asked many times in each step.
func (w *world) quorate() bool {
	voters, up := 0, 0
	for name, membership := range w.etcd {
		if membership != MemberVoter {
			continue
		}
		voters++
		if h := w.hosts[name]; h != nil && h.up() {
			up++
		}
	}
	return voters > 0 && up >= quorum(voters)
}

// serves reports whether the cluster's API answers.
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
	for _, h := range w.hosts {
		if h.up() || !h.power {
			h.restarting = false
		}
	}
	w.checkQuorum()
	w.connected = w.serves() && !w.disconnected
	if w.onStep != nil {
		w.onStep()
	}
}

// note says something once.
func (w *world) note(key, text string) {
	if w.last[key] != text {
		w.last[key] = text
		w.say("%s: %s", key, text)
	}
}
