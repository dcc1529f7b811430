package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/drover-dev/drover/agent/image"
)

// checkProxy checks the proxy variables of the agent, which instructions inherit.
func checkProxy(_ context.Context, m Machine) []Result {
	cfg := m.proxyConfig()
	if cfg.HTTPProxy == "" && cfg.HTTPSProxy == "" {
		return []Result{ok("proxy", "none configured ("+m.EnvironmentFrom+")")}
	}
	var results []Result
	advice := "correct it in " + m.EnvironmentFrom + " and restart the service"
	for _, variable := range []struct{ name, value string }{{"HTTP_PROXY", cfg.HTTPProxy}, {"HTTPS_PROXY", cfg.HTTPSProxy}} {
		if variable.value == "" {
			continue
		}
		if u, err := url.Parse(variable.value); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			// The value may contain a password, so the message does not quote it.
			results = append(results, problem("proxy "+variable.name, "not a URL such as http://proxy.example.com:3128", advice))
			continue
		}
		results = append(results, ok("proxy "+variable.name, RedactURL(variable.value)))
	}
	for _, fault := range noProxyFaults(cfg.NoProxy) {
		results = append(results, problem("proxy NO_PROXY", fault, advice))
	}
	if h, _ := m.hub(); h != nil {
		results = append(results, proxyForHub(cfg, h))
	}
	return results
}

// proxyForHub says how the agent reaches the hub. Go verifies the certificate of a proxy as that of the server behind it.
func proxyForHub(cfg *httpproxy.Config, h *hubConnection) Result {
	const name = "proxy for the hub"
	proxy, err := cfg.ProxyFunc()(h.url)
	switch {
	case err != nil || proxy == nil:
		return ok(name, "direct connection, no proxy")
	case proxy.Scheme == "https" && len(h.rest.CAData) > 0:
		return warning(name, "through "+proxy.Host+", whose own certificate must be signed by the pinned CA of the hub",
			"if the hub is not reachable, use a proxy whose URL begins with http://, or put the hub into NO_PROXY")
	}
	return ok(name, "through "+proxy.Host)
}

// noProxyFaults finds the entries of NO_PROXY that match nothing, or not what was meant.
func noProxyFaults(list string) []string {
	var faults []string
	add := func(entry, fault string) { faults = append(faults, fmt.Sprintf("entry %q %s", entry, fault)) }
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); {
		case entry == "":
		case strings.ContainsAny(entry, " \t;"):
			add(entry, "contains a blank or a semicolon; separate entries by commas")
		case strings.Contains(entry, "://"):
			add(entry, "is a URL; use a name, an address or a network")
		case strings.Contains(entry, "/"):
			if _, err := netip.ParsePrefix(entry); err != nil {
				add(entry, "is not a network such as 10.0.0.0/8")
			}
		case strings.HasPrefix(entry, "[") && strings.HasSuffix(entry, "]"):
			add(entry, "has brackets, which only an address with a port has; use "+strings.Trim(entry, "[]"))
		case strings.Contains(strings.TrimPrefix(entry, "*."), "*") && entry != "*":
			add(entry, "has a * in the middle; .example.com matches all subdomains")
		}
	}
	return faults
}

func (m Machine) proxyConfig() *httpproxy.Config {
	return &httpproxy.Config{HTTPProxy: Variable(m.Environment, "HTTP_PROXY", "http_proxy"),
		HTTPSProxy: Variable(m.Environment, "HTTPS_PROXY", "https_proxy"), NoProxy: Variable(m.Environment, "NO_PROXY", "no_proxy")}
}

// proxyFunc is the Proxy of a transport with the agent's variables.
func (m Machine) proxyFunc() func(*http.Request) (*url.URL, error) {
	choose := m.proxyConfig().ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

// RedactURL replaces user and password of a URL; a text that is not a URL and may contain a password is replaced as a whole. A proxy may be
// written without a scheme: the user of "user:password@host:3128" is the scheme of a URL without a user.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		u.User = url.User("hidden")
		return u.String()
	case (err != nil || u.Host == "") && strings.Contains(text, "@"):
		return "(hidden: not a URL, may contain a password)"
	}
	return text
}

// checkDNS resolves the names of the hub and of the registries of the current plans.
func checkDNS(ctx context.Context, m Machine) []Result {
	var results []Result
	index := map[string]int{} // of results, by host; addresses have none
	resolve := func(purpose string, u *url.URL) {
		host := u.Hostname()
		if _, resolved := index[host]; resolved || host == "" {
			return
		}
		if _, err := netip.ParseAddr(host); err != nil {
			index[host] = len(results)
			results = append(results, m.resolve(ctx, purpose, u))
		}
	}
	if h, _ := m.hub(); h != nil {
		resolve("hub", h.url)
	}
	ofHub, images := len(results), m.registries()
	for _, hosts := range images {
		for _, host := range hosts {
			resolve("registry", registryURL(host))
		}
	}
	if len(results) == 0 {
		return []Result{skipped("DNS", "no names to resolve")}
	}
	needed := m.neededRegistries(images, func(host string) bool {
		i, isName := index[host]
		return !isName || results[i].Verdict != Problem
	})
	for host, i := range index {
		if i >= ofHub && results[i].Verdict == Problem && !needed[host] {
			results[i].Verdict = Warning
			results[i].Advice = "nothing, if images come from archives or from other endpoints in registries.yaml"
		}
	}
	return results
}

func registryURL(host string) *url.URL { return &url.URL{Scheme: "https", Host: host} }

// neededRegistries returns the hosts, without ports, of images that cannot be had without them: no other host is usable, and there are no
// archives.
func (m Machine) neededRegistries(images [][]string, usable func(host string) bool) map[string]bool {
	needed := map[string]bool{}
	if m.hasArchives() {
		return needed
	}
	for _, hosts := range images {
		if slices.ContainsFunc(hosts, func(host string) bool { return usable(registryURL(host).Hostname()) }) {
			continue
		}
		for _, host := range hosts {
			needed[registryURL(host).Hostname()] = true
		}
	}
	return needed
}

func (m Machine) resolve(ctx context.Context, purpose string, u *url.URL) Result {
	name := "DNS " + u.Hostname()
	addresses, err := m.LookupHost(ctx, u.Hostname())
	if err == nil {
		return ok(name, fmt.Sprintf("%s, %s", purpose, strings.Join(addresses[:min(len(addresses), 3)], ", ")))
	}
	message := fmt.Sprintf("%s: %v", purpose, err)
	if proxy, proxyErr := m.proxyConfig().ProxyFunc()(u); proxyErr == nil && proxy != nil {
		return warning(name, message, "the proxy resolves it for the agent; other programs may need the name")
	}
	return problem(name, message, "check /etc/resolv.conf and the name server")
}

// registries lists, for each image of the current plans, the hosts that it may be pulled from: mirrors, then its registry. The first
// registries.yaml that exists counts.
func (m Machine) registries() [][]string {
	var configured image.Registries
	for _, path := range m.Config.RegistriesFiles() {
		raw, err := os.ReadFile(m.path(path))
		if path == "" || err != nil {
			continue
		}
		if r, err := image.DecodeRegistries(raw); err == nil {
			configured = r
		}
		break
	}
	var all [][]string
	for _, text := range m.images {
		if hosts, err := configured.Hosts(text); err == nil {
			all = append(all, hosts)
		}
	}
	return all
}

// hasArchives reports whether there are image archives, which are searched before any registry.
func (m Machine) hasArchives() bool {
	found := false
	if m.Config.ImagesDirectory == "" {
		return false
	}
	_ = filepath.WalkDir(m.path(m.Config.ImagesDirectory), func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && image.IsArchive(entry.Name()) {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}
