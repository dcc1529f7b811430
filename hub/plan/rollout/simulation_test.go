package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is the plan of a simulated machine.
type plan struct {
	// Version and Drained need a drain, Restarted, Server and Init a restart, Minor neither.
	Version, Drained, Restarted, Minor int
	Server                             string
	Init                               bool
	// Bad is how the plan fails: "install" before anything has changed, "start" with the distribution stopped; empty if it succeeds.
	Bad string
}

// changeBetween returns what applying another plan changes.
func changeBetween(before, after plan) Change {
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

// host is a machine, seen from the hub's API, from the cluster, and as it really is.
type host struct {
	name, roles, planSecret string

	// In the hub's API: all that a restarted hub knows.
	deleting, identity, provisioned, init bool
	joinURL, joinedTo                     string
	delivered, applied                    *plan
	state                                 Progress
	replaced                              Change
	checkedIn, probesPassed, probed       bool
	failing                               []string
	drain                                 Drain
	nodeInfo                              string
	removal                               Removal
	// lastSeen is when the gateway last saw the agent.
	lastSeen time.Time

	// On the Node, if it exists. ready is its condition, which is false after notReadyFor steps without a report of the kubelet.
	node, ready                bool
	notReadyFor                int
	cordoned, removalRequested bool
	// What etcd's leader has written last.
	membership Membership
	health     MemberHealth
	checkedAt  time.Time

	// As it really is.
	power, agent bool
	// noNetwork: the kubelet has no network plugin. noKubelet: the kubelet has stopped. Neither affects etcd.
	noNetwork, noKubelet bool
	// unhealthy: a component fails its probe until the next restart.
	unhealthy bool
	// attempt is the plan that the agent applies, for attemptLeft more steps.
	attempt     *plan
	attemptLeft int
	// running is the plan that the distribution runs with, nil before its first start. It is up once startLeft is 0, unless a bad plan has
	// stopped it.
	running   *plan
	startLeft int
	stopped   bool
	// Steps until etcd promotes the learner, Cluster API deletes the machine, the hub retries a failed plan, the drain goes on.
	promoteLeft, deleteLeft, retryLeft, drainLeft int

	// For the checks. downSince is the step of its last failure. changing is set from changeStartedAt on, when the hub delivered a change
	// that restarts it, until that has ended. restarting is set while etcd is down because of such a change.
	downSince, changeStartedAt int
	changing, restarting       bool
}

func (h *host) has(role string) bool { return strings.Contains(h.roles, role) }
func (h *host) server() bool         { return h.has("e") || h.has("c") }
func (h *host) up() bool {
	return h.power && h.running != nil && h.startLeft == 0 && !h.stopped
}

// spec is the specification of the cluster.
type spec struct {
	plan
	controlPlane, worker string
	drain, hooks         bool
}

// simulation is a cluster with its hub, its hosts and its etcd.
type simulation struct {
	// step counts ticks; rand is nil where everything takes one step.
	step int
	rand *rand.Rand

	spec    spec
	problem string
	// hookDelay and promoteDelay are more steps that drain hooks and promotions take.
	hookDelay, promoteDelay int

	hosts map[string]*host
	// byName is what sortedHosts has returned last; nil since a host was added or removed.
	byName []*host
	// etcd is the real membership. The member of a host that is gone stays until it is removed.
	etcd map[string]Membership
	// clusters counts the clusters that were started; established is set once one has worked.
	clusters     int
	established  bool
	bootstrapped bool
	// connected: the hub reaches the cluster's API server. disconnected: it cannot, although the API server is up.
	connected, disconnected bool
	// k3s has no probe of etcd of its own; without member health, as in old releases, etcd's leader does not check members.
	k3s, noMemberHealth bool

	// Replaced by tests of faulty rules: decisions, and what the hub sees; changeInputs may be nil.
	elect        func([]Machine, string, bool) Election
	remove       func(Inputs, string) Wait
	joinable     func(Machine) bool
	rules        []rule
	changeInputs func(*Inputs)
	// maxWrites ends a reconcile of the hub after so many writes, as SIGKILL does; negative for never.
	maxWrites int

	outcome Outcome
	events  []string
	// lastRecorded has the events that recordOnce has recorded, lastMessage the messages of machines that wait.
	lastRecorded map[string]string
	lastMessage  map[messageKey]string
	// faults are the rules that were broken. quorumLostAt is the last step at which etcd had no quorum.
	faults       []string
	quorumLostAt int
	// onStep is called after each step, unless it is nil.
	onStep func()
}

func newSimulation(r *rand.Rand) *simulation {
	return &simulation{
		spec: spec{plan: plan{Version: 1}}, hosts: map[string]*host{}, etcd: map[string]Membership{}, rand: r, maxWrites: -1,
		lastRecorded: map[string]string{}, lastMessage: map[messageKey]string{},
		quorumLostAt: -100, elect: Elect, remove: CheckRemoval, joinable: Machine.Joinable, rules: rules,
	}
}

// now is the time: a step takes three minutes.
func (s *simulation) now() time.Time {
	return begin.Add(time.Duration(s.step) * 3 * time.Minute)
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// duration returns how many steps something takes: one in scenarios, up to n in random simulations.
func (s *simulation) duration(n int) int {
	if s.rand == nil {
		return 1
	}
	return 1 + s.rand.IntN(n)
}

func (s *simulation) recordEvent(format string, args ...any) {
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

// recordOnce records an event about key, unless it is the last one about it.
func (s *simulation) recordOnce(key, text string) {
	if s.lastRecorded[key] != text {
		s.lastRecorded[key] = text
		s.recordEvent("%s: %s", key, text)
	}
}

// fault records that a rule is broken.
func (s *simulation) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf("step %d: ", s.step)+fmt.Sprintf(format, args...))
}

// sortedHosts returns the hosts by name; the caller must not change the slice. It sorts only if hosts were added or removed, since it is
// called in every step.
func (s *simulation) sortedHosts() []*host {
	if s.byName == nil {
		s.byName = slices.SortedFunc(maps.Values(s.hosts), func(a, b *host) int { return strings.Compare(a.name, b.name) })
	}
	return s.byName
}

// add registers machines: "a:ecw" has all roles.
func (s *simulation) add(machines ...string) *simulation {
	for _, m := range machines {
		name, roles, _ := strings.Cut(m, ":")
		s.hosts[name] = &host{name: name, roles: roles, identity: true, provisioned: true, power: true, agent: true, downSince: -100,
			changeStartedAt: -100, planSecret: name + "-machine-plan"}
	}
	s.byName = nil
	return s
}

func (s *simulation) removeHost(name string) {
	delete(s.hosts, name)
	s.byName = nil
}

// addRunning registers machines and forms an established cluster of them; the first is the init node.
func (s *simulation) addRunning(machines ...string) *simulation {
	s.add(machines...)
	first, _, _ := strings.Cut(machines[0], ":")
	for _, m := range machines {
		name, _, _ := strings.Cut(m, ":")
		h := s.hosts[name]
		h.init = name == first
		if h.server() {
			h.joinURL = url(name)
		}
		if !h.init {
			h.joinedTo = url(first)
		}
		p := s.spec.plan
		p.Server, p.Init = h.joinedTo, h.init
		h.delivered, h.applied, h.running, h.state = &p, &p, &p, ProgressApplied
		h.checkedIn, h.probed, h.probesPassed, h.node, h.ready, h.nodeInfo = true, true, true, true, true, version(p.Version)
		if h.has("e") {
			s.etcd[name] = MemberVoter
			h.membership, h.health, h.checkedAt, h.lastSeen = MemberVoter, MemberHealthy, s.now(), s.now()
		}
	}
	s.clusters, s.established, s.bootstrapped, s.connected = 1, true, true, true
	return s
}

// versions are as many as a simulation can have: one for each of its random events.
var versions = func() (all [200]string) {
	for i := range all {
		all[i] = fmt.Sprintf("v1.%d.0", i)
	}
	return all
}()

func url(name string) string              { return "https://" + name }
func version(v int) string                { return versions[v] }
func (s *simulation) host(n string) *host { return s.hosts[n] }

// setNetworkPlugin breaks the network plugin on all hosts, or repairs it.
func (s *simulation) setNetworkPlugin(works bool) {
	for _, h := range s.hosts {
		h.noNetwork = !works
	}
}

// voters returns the voting members of etcd, and how many of them are up.
func (s *simulation) voters() (voters []string, up int) {
	for _, name := range slices.Sorted(maps.Keys(s.etcd)) {
		if s.etcd[name] != MemberVoter {
			continue
		}
		voters = append(voters, name)
		if h := s.hosts[name]; h != nil && h.up() {
			up++
		}
	}
	return voters, up
}

// hasQuorum does not sort, as voters does: it is called many times in each step.
func (s *simulation) hasQuorum() bool {
	voters, up := 0, 0
	for name, membership := range s.etcd {
		if membership != MemberVoter {
			continue
		}
		voters++
		if h := s.hosts[name]; h != nil && h.up() {
			up++
		}
	}
	return voters > 0 && up >= quorum(voters)
}

// apiServerUp returns whether the cluster's API server answers.
func (s *simulation) apiServerUp() bool {
	return s.hasQuorum() && slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.has("c") && h.up() })
}

// tick runs one step of everything: the hub, the controllers beside it, and the hosts.
func (s *simulation) tick() {
	s.step++
	s.reconcile()
	for _, h := range s.sortedHosts() {
		s.drainController(h)
		s.reconcileDelete(h)
		if s.hosts[h.name] == nil {
			continue
		}
		s.agentStep(h)
		s.startDistribution(h)
	}
	for _, h := range s.sortedHosts() {
		s.kubelet(h)
		s.runProbes(h)
	}
	for _, h := range s.hosts {
		if h.up() || !h.power {
			h.restarting = false
		}
	}
	s.checkQuorum()
	s.connected = s.apiServerUp() && !s.disconnected
	if s.onStep != nil {
		s.onStep()
	}
}
