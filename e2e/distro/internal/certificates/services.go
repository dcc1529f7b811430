// Package certificates checks the certificates on a node's disk and moves them away, so that the next start makes new ones. It is for the
// commands of an administrator and asks no running server.
package certificates

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
)

// onServers and onAgents are the files of each service without their endings, below server/tls and below agent.
var (
	onServers = map[string][]string{
		"admin":              {"client-admin"},
		"api-server":         {"client-kube-apiserver", "serving-kube-apiserver"},
		"auth-proxy":         {"client-auth-proxy"},
		"cloud-controller":   {flavour.Name("client-*-cloud-controller")},
		"controller-manager": {"client-controller", "kube-controller-manager/kube-controller-manager"},
		"etcd":               {"etcd/client", "etcd/server-client", "etcd/peer-server-client"},
		// Here the API server's certificate is also the supervisor's.
		flavour.Name("*-server"): nil,
		"scheduler":              {"client-scheduler", "kube-scheduler/kube-scheduler"},
		"supervisor":             {"client-supervisor"},
	}
	onAgents = map[string][]string{
		flavour.Name("*-controller"): {flavour.Name("client-*-controller")},
		"kube-proxy":                 {"client-kube-proxy"},
		"kubelet":                    {"client-kubelet", "serving-kubelet"},
	}
)

// Names are those of all services.
func Names() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(onServers)), slices.Collect(maps.Keys(onAgents)))))
}

// isServer reports whether the node of a data folder runs a server.
func isServer(data layout.Data) bool {
	_, err := os.Stat(data.Server())
	return err == nil
}

// stems are the files of services without their endings, in the order of the services. No service means all that the node may have.
func stems(data layout.Data, services []string) ([]string, error) {
	if len(services) == 0 {
		for _, name := range Names() {
			if _, server := onServers[name]; !server || isServer(data) {
				services = append(services, name)
			}
		}
	}
	var out []string
	for _, service := range services {
		server, known := onServers[service]
		agent, alsoKnown := onAgents[service]
		if !known && !alsoKnown {
			return nil, fmt.Errorf("service %s is not recognized", service)
		}
		for _, name := range server {
			out = append(out, data.TLS(filepath.FromSlash(name)))
		}
		for _, name := range agent {
			out = append(out, data.Agent(name))
		}
	}
	return out, nil
}
