package operation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// configuration are the files of a plan that the distribution reads when it starts.
type configuration struct {
	restarted, token int
	server           string
	init             bool
}

// stamp is what an installation restarts the distribution for when it differs. The zero value is that of a plan without an installation.
type stamp struct {
	version int
	configuration
}

// plan is the plan of a simulated machine.
type plan struct {
	configuration
	minor int
	stamp stamp
	// bad fails the installation. apart does nothing instead of it, with the same stamp; skipStart starts nothing.
	bad, apart, skipStart bool
	// The instructions of an operation. stillStopped is the mark of a machine that an earlier operation has stopped.
	uid, step    string
	task         TaskName
	newToken     int
	target       bool
	stillStopped bool
}

func (p plan) stopped() bool {
	return p.task == TaskStop || p.task == TaskRestoreSnapshot || p.stillStopped
}

func (p plan) restarts() bool { return p.task == TaskRotateCertificates || p.task == TaskRestartServer }

// changeBetween returns what applying another plan changes.
func changeBetween(before, after plan) rollout.Change {
	same := before
	same.minor = after.minor
	none := before.apart && after.apart && before.stamp == (stamp{}) && after.stamp == (stamp{}) // neither installs anything
	switch {
	case before == after:
		return rollout.ChangeNone
	case same == after:
		return rollout.ChangeMinor
	case !none && (after.stamp.version == 0 || before.stamp.version != after.stamp.version):
		return rollout.ChangeDrain
	case before.stamp != after.stamp:
		return rollout.ChangeRestart
	case after.restarts() && (!before.restarts() || before.uid+before.step != after.uid+after.step):
		return rollout.ChangeRestart
	}
	return rollout.ChangeMinor
}

// record is what the hub's API has of a machine: Machine and plan Secret. Each write replaces it as a whole.
type record struct {
	deleting, init, checkedIn, probesPassed, probed bool
	joinURL, joinedTo, version, restoring           string
	delivered, applied                              *plan
	state                                           rollout.Progress
	replaced                                        rollout.Change
	failing                                         []string
	removal                                         rollout.Removal
	drain                                           rollout.Drain
}

// host is a machine. cached is the record that the hub has in its cache; all below api is as it really is.
type host struct {
	// roles are among e, c, w and windowsRole.
	name, roles string
	api, cached *record

	power, agent bool
	// lastSeen is when the gateway last saw the agent.
	lastSeen time.Time
	// hangs and fails are what instructions of operations do: fails is 1 for before their effect, 2 for after it.
	hangs bool
	fails int
	// attempt is the plan that the agent applies, at the part of it; left are the steps that the part takes still.
	attempt             *plan
	part, left, retryIn int

	// config is on disk. stamp and version are those of the last installation. enabled starts with the machine; active is the unit.
	config          configuration
	stamp           stamp
	version         int
	enabled, active bool
	startLeft       int
	// token, running and key are what the distribution was started with.
	token, running, key int
	// data of etcd; tombstone has it moved away at the next start.
	data      *etcd
	tombstone bool
	did       map[string]int

	deleteLeft, promoteLeft, drainLeft int
	// For the checks: changing is set from changedAt on until the change has ended; restarting while etcd is down for it.
	changing, restarting bool
	changedAt, downSince int
}

func (h *host) has(role string) bool { return strings.Contains(h.roles, role) }
func (h *host) windows() bool        { return h.has(windowsRole) }
func (h *host) server() bool         { return h.has("e") || h.has("c") }
func (h *host) up() bool             { return h.power && h.active && h.startLeft == 0 }
func (h *host) update(change func(*record)) {
	changed := *h.api
	change(&changed)
	h.api = &changed
}

// node is the Node of a machine.
type node struct {
	ready, etcd, removing bool
	// cordoned is set where a drain has cordoned it.
	cordoned   bool
	silent     int
	version    string
	membership rollout.Membership
	health     rollout.MemberHealth
	checkedAt  time.Time
}

// etcd is a cluster of etcd with what is stored in it.
type etcd struct {
	members map[string]rollout.Membership
	// stalled are for how many steps learners have made no progress.
	stalled map[string]int
	nodes   map[string]node
	// token encrypts the shared data. key is the newest one, written the one that all Secrets are written with.
	token, key, written int
	restoredBy          string
}

func (c *etcd) copy() *etcd {
	other := *c
	other.members, other.nodes, other.stalled = maps.Clone(c.members), maps.Clone(c.nodes), nil
	return &other
}

// snapshot is one in S3.
type snapshot struct {
	name  string
	data  *etcd
	token int
}

// stored is an operation. api is replaced by each write and never changed; cached is what the hub has in its cache.
type stored struct {
	api, cached operationv1.Operation
	keyBefore   int
	faultless   bool
}

func (o *stored) status() *operationv1.Status { return o.api.CommonStatus() }

// tokens are what the Secret of the cluster has. history are those that were replaced, by the step at which they were.
type tokens struct {
	server, next, last int
	rotatedBy          string
}

// simulation is a hub with its API, and a cluster with its machines and its etcd.
type simulation struct {
	*rand.Rand
	step, added int

	version, restarted, minor int
	controlPlane, worker      string
	// badInstall fails installations; drains has Nodes drained before changes.
	badInstall, drains bool
	hosts              map[string]*host
	// byName is what sortedHosts has returned last; nil since a host was added or removed.
	byName                     []*host
	operations                 []*stored
	tokens                     tokens
	snapshots                  []*snapshot
	files                      []*file
	runtime                    string
	paused, pausedByUser       bool
	bootstrapped, disconnected bool
	connected, lagging         bool
	started, unpausedAt        time.Time
	// maxWrites ends the hub after so many writes of a reconcile; negative for never.
	maxWrites, writes int
	outcome           rollout.Outcome

	events, faults []string
	logging        bool
	quorumLostAt   int
	faultsEnded    bool
	ended          map[operationv1.Phase]int
	endedOfKind    map[string]int

	// Replaced by tests of faulty rules.
	rules simulatedRules
}

// simulatedRules are what the hub goes by.
type simulatedRules struct {
	next         func([]operationv1.Operation) operationv1.Operation
	holds        func(operationv1.Operation, bool) string
	exclusive    func(operationv1.Operation) bool
	target       func(operationv1.Operation) string
	decide       func(operationv1.Operation, Inputs) Decision
	stopped      func(plan) bool
	change       func(before, after plan) rollout.Change
	plansFirst   bool
	tokensAnyway bool
	leaveData    bool
	trustCache   bool
	// deleteListed deletes ETCDSnapshots that the cluster lists.
	deleteListed bool
	refuse       func(operationv1.Operation, []operationv1.Operation, time.Time) bool
}

func newSimulation(r *rand.Rand) *simulation {
	s := &simulation{Rand: r, hosts: map[string]*host{}, tokens: tokens{server: 1, last: 1}, maxWrites: -1, quorumLostAt: -1000,
		bootstrapped: true, connected: true, ended: map[operationv1.Phase]int{}, endedOfKind: map[string]int{},
		rules: simulatedRules{next: Next, holds: Holds, exclusive: Exclusive, target: RestoreTarget, decide: Decide, stopped: plan.stopped,
			change: changeBetween, refuse: RefuseInUse}, runtime: "k3s"}
	s.started = s.now()
	return s
}

// versions are those of the cluster. Keys are rotated with three commands before v1.31.
var versions = []string{"v1.30.4+k3s1", "v1.30.8+k3s1", "v1.31.3+k3s1", "v1.32.1+k3s1", "v1.33.1+k3s1", "v1.34.1+k3s1", "v1.35.1+k3s1"}

func versionOf(n int) string {
	if n == 0 {
		return ""
	}
	return versions[min(n, len(versions))-1]
}

// now is the time: a step takes a minute.
func (s *simulation) now() time.Time { return begin.Add(time.Duration(s.step) * time.Minute) }

func (s *simulation) logf(format string, args ...any) {
	if s.logging {
		s.events = append(s.events, fmt.Sprintf("[%d] ", s.step)+fmt.Sprintf(format, args...))
	}
}

func (s *simulation) fault(format string, args ...any) {
	if len(s.faults) < 20 {
		s.faults = append(s.faults, fmt.Sprintf("step %d: ", s.step)+fmt.Sprintf(format, args...))
	}
	s.logf("FAULT: "+format, args...)
}

// sortedHosts returns the hosts by name; the caller must not change the slice.
func (s *simulation) sortedHosts() []*host {
	if s.byName == nil {
		s.byName = slices.SortedFunc(maps.Values(s.hosts), func(a, b *host) int { return strings.Compare(a.name, b.name) })
	}
	return s.byName
}

func url(name string) string { return "https://" + name }

func (s *simulation) add(name, roles string) *host {
	r := &record{}
	h := &host{name: name, roles: roles, api: r, cached: r, power: true, agent: true, did: map[string]int{}, downSince: -1000,
		changedAt: -1000}
	s.hosts[name], s.byName = h, nil
	return h
}

// addRunning forms an established cluster; the first machine is the init node.
func (s *simulation) addRunning(machines ...string) {
	c := &etcd{members: map[string]rollout.Membership{}, nodes: map[string]node{}, token: 1, key: 1, written: 1}
	first, _, _ := strings.Cut(machines[0], ":")
	for _, m := range machines {
		name, roles, _ := strings.Cut(m, ":")
		h := s.add(name, roles)
		h.config = configuration{token: 1, init: name == first}
		if !h.config.init {
			h.config.server = url(first)
		}
		p := &plan{configuration: h.config, stamp: stamp{s.version, h.config}}
		h.stamp, h.version, h.running, h.enabled, h.active, h.token, h.key = p.stamp, s.version, s.version, true, true, 1, 1
		n := node{ready: true, version: versionOf(s.version), membership: rollout.MemberNone}
		*h.api = record{init: h.config.init, checkedIn: true, probesPassed: true, probed: true, joinedTo: h.config.server,
			delivered: p, applied: p, state: rollout.ProgressApplied, version: n.version}
		h.lastSeen = s.now()
		if h.server() {
			h.api.joinURL = url(name)
		}
		if h.has("e") {
			h.data, c.members[name] = c, rollout.MemberVoter
			s.addFiles("of before", name, h.config.init)
			n.etcd, n.membership, n.health, n.checkedAt = true, rollout.MemberVoter, rollout.MemberHealthy, s.now()
		}
		c.nodes[name] = n
	}
	s.snapshots = []*snapshot{{name: "first", data: c.copy(), token: 1}, {name: "of before", data: c.copy(), token: 1}}
}

// tick runs one step of everything.
func (s *simulation) tick() {
	s.step++
	s.refreshCaches()
	s.reconcile()
	for _, h := range s.sortedHosts() {
		s.reconcileDelete(h)
		if s.hosts[h.name] == nil {
			continue
		}
		s.agentStep(h)
		s.startDistribution(h)
	}
	s.nodes()
	s.drainNodes()
	s.listFiles()
	for _, h := range s.sortedHosts() {
		s.reports(h)
	}
	s.check()
	s.connected = !s.disconnected && s.apiUp(s.current())
}

// refreshCaches lets the hub see what was written, unless its caches lag.
func (s *simulation) refreshCaches() {
	if !s.lagging || s.IntN(3) > 0 {
		for _, o := range s.operations {
			o.cached = o.api
		}
	}
	if !s.lagging || s.IntN(3) > 0 {
		for _, h := range s.hosts {
			h.cached = h.api
		}
	}
}
