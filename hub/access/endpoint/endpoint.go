// Package endpoint chooses where the kubeconfig Secret of a cluster leads: to one of its servers, or through the hub and the tunnel of the
// cluster's agent. Servers come first; the tunnel is for clusters of which no server answers (docs/adr/0010-credential-in-the-cluster.md).
package endpoint

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

const (
	// UnreachableAfter is how long the cluster may not answer before the kubeconfig is switched to another server. Two probes of Cluster API
	// must have failed by then.
	UnreachableAfter = 20 * time.Second
	// secondProbe is when the probe has ended that follows on one that failed: Cluster API probes again after ten seconds, and waits five for
	// an answer.
	secondProbe = 16 * time.Second
	// switchDelay is how long a server has to answer after a switch. Cluster API drops a connection after five failed probes and reconnects
	// half a minute later.
	switchDelay = 2 * time.Minute
	// probeInterval is how often the endpoints of a cluster that does not answer are probed, while another endpoint may begin to answer.
	probeInterval = 30 * time.Second
	// directInterval is how often the servers of a cluster are probed that is reached through its tunnel. It is also how long the kubeconfig
	// leads through a tunnel that works: a kubeconfig that is switched every minute is of no use.
	directInterval = time.Hour
	// mismatchInterval is how often the servers of a cluster are probed that does not answer and has no agent: only to say why.
	mismatchInterval = 5 * time.Minute
)

// Server is a server of the cluster's API.
type Server struct {
	// Addresses are IP addresses or host names, best first, and URLs those of the API at them. The control plane's endpoint has no Addresses.
	Addresses, URLs []string
	// Down is set where the machine's Node is not ready.
	Down bool
}

// URLs are those of all servers, best first.
func URLs(servers []Server) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.URLs...)
	}
	return urls
}

// State is what a choice is made on.
type State struct {
	// Cluster identifies the cluster in Prober.Done.
	Cluster client.ObjectKey
	// Targets of probes. Targets.Servers are all servers that the kubeconfig may lead to, best first; empty where none is known.
	Targets
	// Current is the URL of the server that the kubeconfig leads to; empty where it leads through the tunnel or to no known server.
	Current string
	// Tunnel is set where the kubeconfig leads through the tunnel.
	Tunnel bool
	// AgentConnected is set while the cluster's agent has a session.
	AgentConnected bool
	// Initialized is set once the cluster's API was reached. Health is that of Cluster API's connection to it; nil where there is none.
	Initialized bool
	Health      *clustercache.HealthCheckingState
	// LastSwitched is when the kubeconfig was last switched; zero for never.
	LastSwitched time.Time
}

// unhealthy reports whether the cluster is not known to answer where the kubeconfig leads.
func (s State) unhealthy() bool {
	return s.Initialized && s.Health != nil && (s.Health.LastProbeSuccessTime.IsZero() || s.Health.ConsecutiveFailures > 0)
}

// Choice is where a kubeconfig is to be switched to; without Server and Tunnel it stays as it is.
type Choice struct {
	// Server is the URL of a server.
	Server string
	// Tunnel leads through the hub and the tunnel of the cluster's agent.
	Tunnel bool
	// Reason is why, as a log message; empty if it stays.
	Reason string
	// RequeueAfter is when to choose again; zero for on any change.
	RequeueAfter time.Duration
	// Mismatch is a server that answers and cannot be used, where the kubeconfig leads through the tunnel or the cluster is not known to
	// answer.
	Mismatch Mismatch
}

// Chooser chooses endpoints.
type Chooser struct {
	// Prober probes endpoints; required where State.AgentConnected or State.Tunnel is ever set.
	Prober *Prober
	// Now is the clock.
	Now func() time.Time
}

// Choose returns where a kubeconfig, which leads to Current or through the tunnel, is to be switched to.
func (c *Chooser) Choose(s State) Choice {
	choice := c.choose(s)
	if c.Prober != nil && (s.Tunnel && !choice.switches() || s.unhealthy()) {
		choice.Mismatch = c.Prober.Mismatch(s.Cluster, s.Targets)
	}
	return choice
}

// switches reports whether the kubeconfig is to lead elsewhere.
func (c Choice) switches() bool { return c.Server != "" || c.Tunnel }

func (c *Chooser) choose(s State) Choice {
	if !s.LastSwitched.IsZero() && s.LastSwitched.After(c.Now().Add(switchDelay)) {
		s.LastSwitched = time.Time{} // the clock was ahead then: nothing waits for it to catch up
	}
	if s.Tunnel {
		return c.fromTunnel(s)
	}
	var requeueAfter time.Duration
	if c.Prober != nil && s.unhealthy() {
		requeueAfter = mismatchInterval
		interval := requeueAfter
		if s.AgentConnected {
			requeueAfter, interval = probeInterval, resultTTL
		}
		result, known := c.Prober.Probe(s.Cluster, s.Targets, interval)
		if known && s.AgentConnected && result.Server == "" && result.Tunnel {
			return Choice{Tunnel: true, RequeueAfter: requeueAfter, Reason: "The cluster's API answers only through the tunnel of its agent"}
		}
	}
	choice := c.failover(s)
	if choice.RequeueAfter == 0 || requeueAfter > 0 && requeueAfter < choice.RequeueAfter {
		choice.RequeueAfter = requeueAfter
	}
	return choice
}

// fromTunnel goes back to a server that answers when the tunnel does not, and otherwise once in directInterval.
func (c *Chooser) fromTunnel(s State) Choice {
	if len(s.Servers) == 0 {
		return Choice{}
	}
	unhealthy, choice := s.unhealthy(), Choice{RequeueAfter: directInterval}
	if unhealthy {
		choice.RequeueAfter = probeInterval
	}
	if !unhealthy && c.Now().Sub(s.LastSwitched) < directInterval && !c.Prober.trustChanged(s.Cluster, s.Targets) {
		return choice
	}
	result, known := c.Prober.Probe(s.Cluster, s.Targets, choice.RequeueAfter)
	if known && result.Server != "" && !(unhealthy && result.Tunnel) {
		choice.Server, choice.Reason = result.Server, "A server of the cluster's API answers"
	}
	return choice
}

// failover switches to the next server when the present one does not answer. The hub sees a cluster through one server: without a failover,
// nothing would replace a dead one.
func (c *Chooser) failover(s State) Choice {
	next := nextServer(s.Servers, s.Current)
	now := c.Now()
	if next == "" || s.Health == nil {
		return Choice{}
	}
	if s.Health.ConsecutiveFailures == 1 {
		// Where there are many clusters, and probes are rare, Cluster API reports the outage after the first of them.
		return Choice{RequeueAfter: secondProbe}
	}
	if s.Health.ConsecutiveFailures < 2 || now.Sub(s.Health.LastProbeSuccessTime) < UnreachableAfter {
		return Choice{}
	}
	delay := switchDelay
	if !s.Health.LastProbeSuccessTime.IsZero() {
		// The longer a cluster is down, the less often it is switched.
		delay = max(delay, now.Sub(s.Health.LastProbeSuccessTime)/10)
	}
	if since := now.Sub(s.LastSwitched); !s.LastSwitched.IsZero() && since < delay {
		return Choice{RequeueAfter: delay - since}
	}
	return Choice{Server: next, RequeueAfter: delay, Reason: "The server of the cluster's API does not answer"}
}

// nextServer is the first URL of the next machine after the one that a URL is of; machines that are down come last. It is empty where there
// is no other machine, or the URL is of none.
func nextServer(servers []Server, current string) string {
	i := slices.IndexFunc(servers, func(s Server) bool { return slices.Contains(s.URLs, current) })
	if i < 0 {
		return ""
	}
	rest := append(slices.Clone(servers[i+1:]), servers[:i]...)
	for _, down := range []bool{false, true} {
		for _, s := range rest {
			if s.Down == down {
				return s.URLs[0]
			}
		}
	}
	return ""
}
