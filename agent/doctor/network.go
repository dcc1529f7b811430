package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/drover-dev/drover/agent/image"
)

// checkProxy looks at the variables that the agent and what it starts live with.
func checkProxy(_ context.Context, m Machine) []Result {
	cfg := m.proxyConfig()
	if cfg.HTTPProxy == "" && cfg.HTTPSProxy == "" {
		return []Result{{"proxy", OK, "none is set (" + m.EnvironmentFrom + ")", ""}}
	}
	var results []Result
	advice := "correct it in " + m.EnvironmentFrom + " and restart the service"
	for _, one := range []struct{ variable, value string }{{"HTTP_PROXY", cfg.HTTPProxy}, {"HTTPS_PROXY", cfg.HTTPSProxy}} {
		if one.value == "" {
			continue
		}
		if u, err := url.Parse(one.value); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			// The value may hold a password, so it is not repeated.
			results = append(results, Result{"proxy " + one.variable, Problem, "is no URL like http://proxy.example.com:3128", advice})
			continue
		}
		results = append(results, Result{"proxy " + one.variable, OK, withoutUser(one.value), ""})
	}
	for _, fault := range noProxyFaults(cfg.NoProxy) {
		results = append(results, Result{"proxy NO_PROXY", Problem, fault, advice})
	}
	if h, _ := m.hub(); h != nil {
		seen := "the hub is reached directly"
		if proxy, err := cfg.ProxyFunc()(h.url); err == nil && proxy != nil {
			seen = "the hub is reached through " + proxy.Host
		}
		results = append(results, Result{"proxy for the hub", OK, seen, ""})
	}
	return results
}

// noProxyFaults finds the entries by which nothing is excepted, or not what was meant.
func noProxyFaults(list string) []string {
	var faults []string
	say := func(entry, what string) { faults = append(faults, fmt.Sprintf("the entry %q %s", entry, what)) }
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case strings.ContainsAny(entry, " \t;"):
			say(entry, "holds a blank or a semicolon; entries are separated by commas")
		case strings.Contains(entry, "://"):
			say(entry, "is a URL; only names, addresses and networks count")
		case strings.Contains(entry, "/"):
			if _, err := netip.ParsePrefix(entry); err != nil {
				say(entry, "is no network like 10.0.0.0/8")
			}
		case strings.Contains(strings.TrimPrefix(entry, "*."), "*") && entry != "*":
			say(entry, "has a * in the middle; .example.com stands for all names below")
		}
	}
	return faults
}

func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(hidden)"
	}
	if u.User != nil {
		u.User = url.User("hidden")
	}
	return u.String()
}

// checkDNS resolves the names that the agent will need.
func checkDNS(ctx context.Context, m Machine) []Result {
	var results []Result
	looked := map[string]bool{}
	look := func(what string, u *url.URL) {
		host := hostOnly(u)
		if host == "" || looked[host] {
			return
		}
		looked[host] = true
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			return
		}
		results = append(results, m.resolve(ctx, what, u))
	}
	if h, _ := m.hub(); h != nil {
		look("hub", h.url)
	}
	for _, host := range m.registries() {
		look("registry", &url.URL{Scheme: "https", Host: host})
	}
	if len(results) == 0 {
		return []Result{{"DNS", Skipped, "no name is needed", ""}}
	}
	return results
}

func (m Machine) resolve(ctx context.Context, what string, u *url.URL) Result {
	r := Result{Check: "DNS " + u.Hostname(), Verdict: OK}
	addresses, err := m.LookupHost(ctx, u.Hostname())
	if err == nil {
		r.Seen = fmt.Sprintf("%s, %s", what, strings.Join(addresses[:min(len(addresses), 3)], ", "))
		return r
	}
	r.Verdict, r.Seen, r.Advice = Problem, fmt.Sprintf("%s: %v", what, err), "look at /etc/resolv.conf and at the name server"
	if proxy, proxyErr := m.proxyConfig().ProxyFunc()(u); proxyErr == nil && proxy != nil {
		r.Verdict, r.Advice = Warning, "the proxy resolves it for the agent; other programs may need the name"
	}
	return r
}

// registries are the hosts from which the present plan's images come.
func (m Machine) registries() []string {
	mirrors := map[string]image.Mirror{}
	for _, path := range []string{m.Config.AgentRegistriesFile, "/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml"} {
		raw, err := os.ReadFile(m.path(path))
		if path == "" || err != nil {
			continue
		}
		if r, err := image.DecodeRegistries(raw); err == nil {
			mirrors = r.Mirrors
		}
		break
	}
	var hosts []string
	for _, text := range m.Images {
		ref, err := name.ParseReference(text)
		if err != nil {
			continue
		}
		registry := ref.Context().RegistryStr()
		for _, key := range []string{registry, map[string]string{"index.docker.io": "docker.io"}[registry], "*"} {
			for _, endpoint := range mirrors[key].Endpoints {
				if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
					hosts = append(hosts, u.Host)
				}
			}
		}
		hosts = append(hosts, registry)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// port is one that RKE2 and k3s need.
type port struct {
	number int
	what   string
	server bool // only on servers
}

var ports = []port{
	{6443, "Kubernetes API", true}, {9345, "RKE2 registration", true}, {2379, "etcd clients", true}, {2380, "etcd peers", true},
	{10250, "kubelet", false},
}

// holders are programs that may hold those ports: a distribution that runs already.
var holders = []string{"rke2", "k3s", "kube-apiserver", "etcd", "kubelet", "containerd", "distro"}

// checkPorts looks whether a foreign program holds a port that the distribution will need.
func checkPorts(_ context.Context, m Machine) []Result {
	inodes, err := m.listeners()
	if err != nil {
		return []Result{{"ports", Skipped, err.Error(), ""}}
	}
	var free []string
	var results []Result
	for _, p := range ports {
		if p.server && m.Role == RoleWorker {
			continue
		}
		inode, held := inodes[p.number]
		if !held {
			free = append(free, strconv.Itoa(p.number))
			continue
		}
		results = append(results, m.holder(p, inode))
	}
	if len(free) > 0 {
		results = append(results, Result{"ports", OK, "free: " + strings.Join(free, ", "), ""})
	}
	return results
}

func (m Machine) holder(p port, inode string) Result {
	pid, program := m.whoHolds(inode)
	r := Result{Check: fmt.Sprintf("port %d (%s)", p.number, p.what), Verdict: OK}
	switch {
	case pid == "":
		r.Verdict, r.Seen, r.Advice = Warning, "held by a program that cannot be found", fmt.Sprintf("ss -ltnp 'sport = :%d' may show more", p.number)
		return r
	case slices.ContainsFunc(holders, func(name string) bool { return strings.HasPrefix(program, name) }):
		r.Seen = "held by " + program + ", as it should be"
		return r
	}
	r.Seen = fmt.Sprintf("held by %s, process %s", program, pid)
	r.Verdict, r.Advice = Problem, "stop that program, or give it another port"
	if p.server && m.Role == RoleUnknown {
		r.Verdict, r.Advice = Warning, "stop that program where this machine is to be a server"
	}
	return r
}

// listeners are the TCP ports on which somebody listens, with the socket's inode.
func (m Machine) listeners() (map[int]string, error) {
	const listening = "0A"
	found := map[int]string{}
	read := false
	for _, file := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(m.path("proc/net", file))
		if err != nil {
			continue
		}
		read = true
		for line := range strings.Lines(string(raw)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != listening {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if number, err := strconv.ParseUint(hex, 16, 16); err == nil {
				found[int(number)] = fields[9]
			}
		}
	}
	if !read {
		return nil, fmt.Errorf("%s cannot be read", m.path("proc/net/tcp"))
	}
	return found, nil
}

// whoHolds finds the process with a socket.
func (m Machine) whoHolds(inode string) (pid, program string) {
	for _, process := range m.processes() {
		links, err := os.ReadDir(m.path("proc", process, "fd"))
		if err != nil {
			continue
		}
		for _, link := range links {
			if target, err := os.Readlink(m.path("proc", process, "fd", link.Name())); err == nil && target == "socket:["+inode+"]" {
				return process, m.read("proc", process, "comm")
			}
		}
	}
	return "", ""
}

// processes are the numbers of all that run.
func (m Machine) processes() []string {
	entries, _ := os.ReadDir(m.path("proc"))
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, entry.Name())
		}
	}
	return found
}
