package servingcert

import (
	"fmt"
	"net"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// maxNames bounds the names in one serving certificate.
const maxNames = 64

// namesOf returns the names in a certificate.
func namesOf(pair *pki.Pair) []string {
	names := slices.Clone(pair.Cert.DNSNames)
	for _, ip := range pair.Cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// servingNames are the sorted names and addresses under which machines may reach a gateway.
func servingNames(serverURL, listen string) ([]string, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("the server URL %q must be an https URL", serverURL)
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("the address to listen on, %q, must be host:port: %w", listen, err)
	}
	names := []string{canonical(u.Hostname()), "localhost", "127.0.0.1", "::1"}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return union(names, []string{canonical(host)}), nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	var own []string
	for _, address := range addresses {
		if n, ok := address.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			own = append(own, n.IP.String())
		}
	}
	return union(names, own), nil
}

// canonical writes an IP address as certificates do.
func canonical(host string) string {
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return host
}

// union returns all of a and as many of b as fit into maxNames, sorted.
func union(a, b []string) []string {
	out := sets.New(a...)
	for _, name := range b {
		if out.Len() < maxNames {
			out.Insert(name)
		}
	}
	return sets.List(out)
}
