package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/testenv/simulate"
)

// topologies are the clusters that random simulations start with.
var topologies = [][]string{
	{"a:ecw"}, {"a:ecw", "b:ecw", "c:ecw"}, {"a:ecw", "b:w", "c:w"},
	{"a:ec", "b:ec", "c:ec", "v:w", "w:w", "x:w"}, {"a:ec", "b:ec", "c:ec", "d:ec", "e:ec", "w:w"},
	{"a:e", "b:e", "c:e", "d:c", "e:c", "v:w", "w:w"}, {"a:e", "b:c", "c:c", "d:c", "w:w"}, {"a:ec", "b:ec", "w:w"},
}

// randomSimulation is a simulation with random events.
type randomSimulation struct {
	*simulation
	added int
}

func newRandomSimulation(seed uint64) *randomSimulation {
	r := rand.New(rand.NewPCG(seed, 4))
	s := &randomSimulation{simulation: newSimulation(r)}
	s.spec.drain, s.spec.hooks = r.IntN(2) == 0, r.IntN(4) == 0
	s.spec.controlPlane, s.spec.worker = concurrency(r), concurrency(r)
	s.k3s, s.noMemberHealth = r.IntN(2) == 0, r.IntN(4) == 0
	topology := topologies[r.IntN(len(topologies))]
	if r.IntN(3) == 0 {
		s.add(topology...)
	} else {
		s.addRunning(topology...)
	}
	return s
}

func concurrency(r *rand.Rand) string { return []string{"", "1", "2", "50%", "0"}[r.IntN(5)] }

// run runs steps with random events, ends all faults, and then checks that the cluster converges.
func (s *randomSimulation) run() {
	for range 120 {
		if s.rand.IntN(5) == 0 {
			randomEvents[s.rand.IntN(len(randomEvents))](s)
		}
		s.maxWrites = -1
		if s.rand.IntN(8) == 0 {
			s.maxWrites = s.rand.IntN(3)
		}
		s.tick()
	}
	s.endFaults()
	quiet := 0
	for range 600 {
		s.tick()
		if quiet++; !s.converged() {
			quiet = 0
		}
		if quiet == 20 {
			break
		}
	}
	if quiet < 20 {
		s.fault("does not converge: %s\netcd %v", strings.Join(s.messages(), "\n"), s.etcd)
		return
	}
	s.checkFinalState()
}

func (s *randomSimulation) converged() bool {
	return s.outcome.Done &&
		!slices.ContainsFunc(s.outcome.Decisions, func(d Decision) bool { return d.Deliver || d.Drain != "" || d.Uncordon }) &&
		!slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.deleting })
}

// endFaults repairs everything.
func (s *randomSimulation) endFaults() {
	s.maxWrites, s.hookDelay, s.promoteDelay, s.disconnected, s.spec.Bad = -1, 0, 0, false, ""
	s.spec.Restarted += 100 // none that was taken back before
	for _, h := range s.sortedHosts() {
		s.powerOn(h)
		h.agent, h.provisioned, h.promoteLeft, h.noNetwork, h.noKubelet = true, true, 0, false, false
		if h.deleting && h.running != nil {
			// It gets no plan any more: somebody corrects its configuration by hand.
			h.delivered, h.state, h.attempt = h.running, ProgressApplied, nil
			if h.stopped {
				h.stopped, h.startLeft = false, s.duration(3)
			}
		}
	}
	for _, role := range []string{"e", "c", "w"} {
		if !slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.has(role) && !h.deleting }) {
			s.addMachine(role)
		}
	}
}

// checkFinalState checks a cluster that has converged.
func (s *randomSimulation) checkFinalState() {
	voters, up := s.voters()
	if up != len(voters) || len(voters) != len(s.etcd) {
		s.fault("etcd has members %v, of which %d are up", s.etcd, up)
	}
	for _, h := range s.sortedHosts() {
		want := s.spec.plan
		want.Server, want.Init = h.delivered.Server, h.init
		switch {
		case *h.running != want:
			s.fault("%s runs %+v, want %+v", h.name, *h.running, want)
		case h.cordoned || h.drain != (Drain{}):
			s.fault("%s was not uncordoned: %+v", h.name, h.drain)
		case h.has("e") && s.etcd[h.name] != MemberVoter:
			s.fault("%s is no voter", h.name)
		case !h.init && !s.serverUp(h.joinedTo):
			s.fault("%s has joined %s, which is down", h.name, h.joinedTo)
		}
	}
}

func (s *randomSimulation) pick(is func(*host) bool) *host {
	hosts := slices.DeleteFunc(slices.Clone(s.sortedHosts()), func(h *host) bool { return !is(h) })
	if len(hosts) == 0 {
		return &host{}
	}
	return hosts[s.rand.IntN(len(hosts))]
}

func anyHost(*host) bool { return true }

func (s *randomSimulation) addMachine(roles string) {
	s.added++
	s.add(fmt.Sprintf("%c%d:%s", 'a'+s.rand.IntN(26), s.added, roles))
}

func (s *randomSimulation) powerOn(h *host) {
	if !h.power {
		h.power = true
		if h.state == ProgressApplying {
			h.state = ProgressPending // the agent begins again with what was interrupted
		}
		if h.running != nil {
			h.startLeft = s.duration(3)
		}
	}
}

// randomEvents are what may happen to a cluster.
var randomEvents = []func(*randomSimulation){
	func(s *randomSimulation) { s.spec.Version++ },
	func(s *randomSimulation) { s.spec.Restarted++ },
	func(s *randomSimulation) { s.spec.Restarted = max(0, s.spec.Restarted-1) }, // a change is taken back
	func(s *randomSimulation) { s.spec.Drained++ },
	func(s *randomSimulation) { s.spec.Minor++ },
	func(s *randomSimulation) { s.spec.Restarted, s.spec.Bad = s.spec.Restarted+1, "install" },
	func(s *randomSimulation) { s.spec.Restarted, s.spec.Bad = s.spec.Restarted+1, "start" },
	func(s *randomSimulation) { s.spec.Bad = "" }, func(s *randomSimulation) { s.spec.Bad = "" },
	func(s *randomSimulation) {
		s.spec.controlPlane, s.spec.worker = concurrency(s.rand), concurrency(s.rand)
	},
	func(s *randomSimulation) { s.spec.drain = !s.spec.drain },
	func(s *randomSimulation) { s.hookDelay, s.promoteDelay = s.rand.IntN(10), s.rand.IntN(10) },
	func(s *randomSimulation) { s.disconnected = !s.disconnected }, func(s *randomSimulation) { s.disconnected = false },
	func(s *randomSimulation) { s.pick(anyHost).agent = false },
	func(s *randomSimulation) {
		for _, h := range s.hosts {
			h.agent = true
		}
	},
	func(s *randomSimulation) { s.pick((*host).server).unhealthy = true },
	func(s *randomSimulation) { h := s.pick(anyHost); h.noNetwork = !h.noNetwork },
	func(s *randomSimulation) { h := s.pick(anyHost); h.noKubelet = !h.noKubelet },
	func(s *randomSimulation) { s.setNetworkPlugin(false) }, func(s *randomSimulation) { s.setNetworkPlugin(true) },
	func(s *randomSimulation) { s.addMachine([]string{"w", "w", "c", "ec", "e", "ecw"}[s.rand.IntN(6)]) },
	func(s *randomSimulation) { s.addMachine([]string{"w", "ec"}[s.rand.IntN(2)]) },
	func(s *randomSimulation) {
		s.addMachine("ec")
		s.hosts[s.sortedHosts()[0].name].provisioned = true
	},
	(*randomSimulation).powerOff, (*randomSimulation).powerOff,
	func(s *randomSimulation) { s.powerOn(s.pick(func(h *host) bool { return !h.power })) },
	(*randomSimulation).deleteRandomMachine, (*randomSimulation).deleteRandomMachine, (*randomSimulation).replaceDead,
	func(s *randomSimulation) { s.bootstrapped = false }, // as after a move, which loses what is in status
}

// powerOff stops a host, unless etcd would lose its quorum by that alone.
func (s *randomSimulation) powerOff() {
	h := s.pick(func(h *host) bool { return h.power })
	voters, _ := s.voters()
	alive := 0
	for _, name := range voters {
		if other := s.hosts[name]; other != nil && other.power && other != h {
			alive++
		}
	}
	if s.etcd[h.name] != "" && (alive < quorum(len(voters)) || alive < quorum(len(voters)+1)) {
		return
	}
	h.power, h.downSince, h.attempt, h.changing = false, s.step, nil, false
	s.recordEvent("%s loses power", h.name)
}

// deleteRandomMachine deletes a machine, but not the last one of a role or with etcd's data.
func (s *randomSimulation) deleteRandomMachine() {
	s.deleteMachine(s.pick(func(h *host) bool { return !h.deleting }))
}

// replaceDead replaces a machine that is down, as a MachineHealthCheck does.
func (s *randomSimulation) replaceDead() {
	h := s.pick(func(h *host) bool { return !h.power && !h.deleting })
	if s.deleteMachine(h) {
		s.addMachine(h.roles)
	}
}

func (s *randomSimulation) deleteMachine(h *host) bool {
	for _, role := range []string{"e", "c"} {
		if h.has(role) && !slices.ContainsFunc(s.sortedHosts(), func(o *host) bool {
			return o != h && o.has(role) && !o.deleting && o.power && (o.up() || !s.established) &&
				(role != "e" || !s.established || s.etcd[o.name] == MemberVoter)
		}) {
			return false
		}
	}
	// A member that is deleted before the cluster's API server has ever answered cannot be removed from etcd first.
	if h.name == "" || s.established && s.etcd[h.name] != "" && !h.node {
		return false
	}
	h.deleting, h.deleteLeft = true, s.duration(5)
	s.recordEvent("%s is deleted", h.name)
	return true
}

// TestRandomSimulations checks that in each simulation no rule is broken, and that it converges.
func TestRandomSimulations(t *testing.T) {
	simulate.Run(t, 2000, func(seed uint64, logging bool) (faults, log []string) {
		l := &scenario{}
		s := newRandomSimulation(seed)
		if l.simulation = s.simulation; logging {
			s.onStep = func() {
				if len(s.faults) == 0 {
					l.logChanges()
				}
			}
		}
		s.run()
		return s.faults, strings.Split(l.log.String(), "\n")
	})
}
