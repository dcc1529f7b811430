package rollout

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var simulate = flag.Duration("simulate", 0, "how long random worlds are simulated; for a moment where unset")

// shapes are the clusters that random worlds begin with.
var shapes = [][]string{
	{"a:ecw"}, {"a:ecw", "b:ecw", "c:ecw"}, {"a:ecw", "b:w", "c:w"},
	{"a:ec", "b:ec", "c:ec", "v:w", "w:w", "x:w"}, {"a:ec", "b:ec", "c:ec", "d:ec", "e:ec", "w:w"},
	{"a:e", "b:e", "c:e", "d:c", "e:c", "v:w", "w:w"}, {"a:e", "b:c", "c:c", "d:c", "w:w"}, {"a:ec", "b:ec", "w:w"},
}

// chaos is a world in which anything may happen, until the faults end.
type chaos struct {
	*world
	added int
}

func newChaos(seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 4))
	c := &chaos{world: newWorld(r)}
	c.spec.drain, c.spec.hooks = r.IntN(2) == 0, r.IntN(4) == 0
	c.spec.controlPlane, c.spec.worker = concurrency(r), concurrency(r)
	c.k3s, c.asksNobody = r.IntN(2) == 0, r.IntN(4) == 0
	shape := shapes[r.IntN(len(shapes))]
	if r.IntN(3) == 0 {
		c.add(shape...)
	} else {
		c.run(shape...)
	}
	return c
}

func concurrency(r *rand.Rand) string { return []string{"", "1", "2", "50%", "0"}[r.IntN(5)] }

// live runs a whole life: a time of trouble, and a time in which all is repaired and everything has to come right.
func (c *chaos) live() {
	for range 120 {
		if c.rand.IntN(5) == 0 {
			happenings[c.rand.IntN(len(happenings))](c)
		}
		c.limit = -1
		if c.rand.IntN(8) == 0 {
			c.limit = c.rand.IntN(3)
		}
		c.tick()
	}
	c.heal()
	quiet := 0
	for range 600 {
		c.tick()
		if quiet++; !c.settled() {
			quiet = 0
		}
		if quiet == 20 {
			break
		}
	}
	if quiet < 20 {
		c.fault("does not come right: %s\netcd %v", strings.Join(c.look(), "\n"), c.etcd)
		return
	}
	c.checkEnd()
}

func (c *chaos) settled() bool {
	return c.outcome.Done &&
		!slices.ContainsFunc(c.outcome.Decisions, func(d Decision) bool { return d.Deliver || d.Drain != "" || d.Uncordon }) &&
		!slices.ContainsFunc(c.sorted(), func(h *host) bool { return h.deleting })
}

// heal ends all trouble.
func (c *chaos) heal() {
	c.limit, c.hookLate, c.promoteLate, c.disconnected, c.spec.Bad = -1, 0, 0, false, ""
	c.spec.Restarted++
	for _, h := range c.sorted() {
		c.revive(h)
		h.agent, h.provisioned, h.promoteLeft, h.noNetwork, h.noKubelet = true, true, 0, false, false
		if h.deleting && h.runs != nil {
			// Nobody sends it a plan any more: its owner puts the configuration right by hand.
			h.delivered, h.state, h.work = h.runs, ProgressApplied, nil
			if h.stopped {
				h.stopped, h.startLeft = false, c.steps(3)
			}
		}
	}
	for _, role := range []string{"e", "c", "w"} {
		if !slices.ContainsFunc(c.sorted(), func(h *host) bool { return h.has(role) && !h.deleting }) {
			c.another(role)
		}
	}
}

// checkEnd looks at a world in which everything has come right.
func (c *chaos) checkEnd() {
	voters, up := c.voters()
	if up != len(voters) || len(voters) != len(c.etcd) {
		c.fault("etcd has members %v, of which %d are up", c.etcd, up)
	}
	for _, h := range c.sorted() {
		want := c.spec.plan
		want.Server, want.Init = h.delivered.Server, h.init
		switch {
		case *h.runs != want:
			c.fault("%s runs %+v, and not %+v", h.name, *h.runs, want)
		case h.cordoned || h.drain != (Drain{}):
			c.fault("%s was not taken back from its drain: %+v", h.name, h.drain)
		case h.has("e") && c.etcd[h.name] != MemberVoter:
			c.fault("%s is no voter", h.name)
		case !h.init && !c.serverUp(h.joinedTo):
			c.fault("%s has joined %s, which is not there", h.name, h.joinedTo)
		}
	}
}

func (c *chaos) any(is func(*host) bool) *host {
	hosts := slices.DeleteFunc(slices.Clone(c.sorted()), func(h *host) bool { return !is(h) })
	if len(hosts) == 0 {
		return &host{}
	}
	return hosts[c.rand.IntN(len(hosts))]
}

func anyHost(*host) bool { return true }

func (c *chaos) another(roles string) {
	c.added++
	c.add(fmt.Sprintf("%c%d:%s", 'a'+c.rand.IntN(26), c.added, roles))
}

func (c *chaos) revive(h *host) {
	if !h.power {
		h.power = true
		if h.runs != nil {
			h.startLeft = c.steps(3)
		}
	}
}

// happenings are what befalls a cluster.
var happenings = []func(*chaos){
	func(c *chaos) { c.spec.Version++ },
	func(c *chaos) { c.spec.Restarted++ },
	func(c *chaos) { c.spec.Drained++ },
	func(c *chaos) { c.spec.Minor++ },
	func(c *chaos) { c.spec.Restarted, c.spec.Bad = c.spec.Restarted+1, "install" },
	func(c *chaos) { c.spec.Restarted, c.spec.Bad = c.spec.Restarted+1, "start" },
	func(c *chaos) { c.spec.Bad = "" }, func(c *chaos) { c.spec.Bad = "" },
	func(c *chaos) { c.spec.controlPlane, c.spec.worker = concurrency(c.rand), concurrency(c.rand) },
	func(c *chaos) { c.spec.drain = !c.spec.drain },
	func(c *chaos) { c.hookLate, c.promoteLate = c.rand.IntN(10), c.rand.IntN(10) },
	func(c *chaos) { c.disconnected = !c.disconnected }, func(c *chaos) { c.disconnected = false },
	func(c *chaos) { c.any(anyHost).agent = false },
	func(c *chaos) {
		for _, h := range c.hosts {
			h.agent = true
		}
	},
	func(c *chaos) { c.any((*host).server).ill = true },
	func(c *chaos) { h := c.any(anyHost); h.noNetwork = !h.noNetwork },
	func(c *chaos) { h := c.any(anyHost); h.noKubelet = !h.noKubelet },
	func(c *chaos) { c.network(false) }, func(c *chaos) { c.network(true) },
	func(c *chaos) { c.another([]string{"w", "w", "c", "ec", "e", "ecw"}[c.rand.IntN(6)]) },
	func(c *chaos) { c.another([]string{"w", "ec"}[c.rand.IntN(2)]) },
	func(c *chaos) {
		c.another("ec")
		c.hosts[c.sorted()[0].name].provisioned = true
	},
	(*chaos).kill, (*chaos).kill, func(c *chaos) { c.revive(c.any(func(h *host) bool { return !h.power })) },
	(*chaos).shrink, (*chaos).shrink, (*chaos).replaceDead,
	func(c *chaos) { c.bootstrapped = false }, // as after a move, which loses what is in status
}

// network breaks the network plugin on all hosts, or repairs it.
func (c *chaos) network(works bool) {
	for _, h := range c.hosts {
		h.noNetwork = !works
	}
}

// kill takes the power from a host, of etcd's members only so many that their own death does not take its quorum.
func (c *chaos) kill() {
	h := c.any(func(h *host) bool { return h.power })
	voters, _ := c.voters()
	alive := 0
	for _, name := range voters {
		if other := c.hosts[name]; other != nil && other.power && other != h {
			alive++
		}
	}
	if c.etcd[h.name] != "" && (alive < quorum(len(voters)) || alive < quorum(len(voters)+1)) {
		return
	}
	h.power, h.downSince, h.work, h.taken = false, c.step, nil, false
	c.say("%s dies", h.name)
}

// shrink deletes a machine, but not the last with the data or a role.
func (c *chaos) shrink() { c.drop(c.any(func(h *host) bool { return !h.deleting })) }

// replaceDead does what a health check does.
func (c *chaos) replaceDead() {
	h := c.any(func(h *host) bool { return !h.power && !h.deleting })
	if c.drop(h) {
		c.another(h.roles)
	}
}

func (c *chaos) drop(h *host) bool {
	for _, role := range []string{"e", "c"} {
		if h.has(role) && !slices.ContainsFunc(c.sorted(), func(o *host) bool {
			return o != h && o.has(role) && !o.deleting && o.power && (o.up() || !c.established) &&
				(role != "e" || !c.established || c.etcd[o.name] == MemberVoter)
		}) {
			return false
		}
	}
	// Who deletes a member before the cluster's API has ever answered loses its data with it: nobody can be asked to remove it.
	if h.name == "" || c.established && c.etcd[h.name] != "" && !h.node {
		return false
	}
	h.deleting, h.deleteLeft = true, c.steps(5)
	c.say("%s is deleted", h.name)
	return true
}

// TestRandomWorlds simulates one world after another for a while. In each, the rules hold at every step and everything comes right.
func TestRandomWorlds(t *testing.T) {
	// What runs with every change is the same worlds each time, so that it fails only for what the change has done.
	worlds, until := uint64(2000), time.Time{}
	if *simulate > 0 {
		worlds, until = math.MaxUint64, time.Now().Add(*simulate)
	}
	var next, broken atomic.Uint64
	broken.Store(math.MaxUint64)
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= min(worlds, broken.Load()) || !until.IsZero() && time.Now().After(until) {
					return
				}
				c := newChaos(seed)
				if c.live(); len(c.faults) == 0 {
					continue
				}
				for first := broken.Load(); seed < first && !broken.CompareAndSwap(first, seed); first = broken.Load() {
				}
			}
		})
	}
	all.Wait()
	if seed := broken.Load(); seed != math.MaxUint64 {
		c := newChaos(seed)
		c.live()
		t.Fatalf("world %d:\n%s\n%s", seed, strings.Join(c.faults[:min(5, len(c.faults))], "\n"), retell(seed))
	}
	t.Logf("simulated %d worlds", min(worlds, next.Load()))
}

// retell runs a world again and tells what happens before the first fault.
func retell(seed uint64) string {
	s := &story{}
	c := newChaos(seed)
	s.world, c.world.onStep = c.world, func() {
		if len(c.faults) == 0 {
			s.tell()
		}
	}
	c.live()
	lines := strings.Split(s.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-100):], "\n")
}
