package build

import (
	"path/filepath"
	"runtime"

	"github.com/goreleaser/nfpm/v2"
)

const (
	hubName        = "drover-hub"
	hubDescription = `hub of Drover and its command line
The hub turns machines into RKE2 and k3s clusters and manages them: it
implements the Cluster API providers and writes a plan for every machine.
It runs alone, with an API server of its own, or on a Kubernetes cluster.
.
The package contains the system-agent for every architecture, which the hub
hands out to machines. The service is not enabled: set the URL of the hub
first.`
	// assets is where the hub finds the agents; the unit names it.
	assets = "/usr/lib/drover/assets"
)

// hubPackage is the package of the hub, which also is the command line for operators.
func hubPackage(s *stage) (*nfpm.Info, error) {
	if err := s.binary("/usr/bin/hub", s.hubBinary(s.arch), s.arch); err != nil {
		return nil, err
	}
	// A hub hands out agents for machines of any architecture.
	for _, arch := range Arches {
		to := assets + "/system-agent-" + arch
		if err := s.binary(to, s.agentBinary(arch), arch); err != nil {
			return nil, err
		}
		s.addPath(to+".sha256", "", 0o644, s.agentBinary(arch)+".sha256")
	}
	for _, file := range []struct{ to, name string }{
		{"/usr/lib/systemd/system/drover-hub.service", "hub/drover-hub.service"},
		{"/usr/lib/systemd/system-preset/90-drover-hub.preset", "hub/90-drover-hub.preset"},
		{"/usr/lib/sysusers.d/drover-hub.conf", "hub/sysusers.conf"},
	} {
		if err := s.embedded(file.to, "", file.name); err != nil {
			return nil, err
		}
	}
	if err := s.environment(hubName, "hub/default"); err != nil {
		return nil, err
	}
	if err := s.manPages("hub"); err != nil {
		return nil, err
	}
	if err := s.completions("hub", filepath.Clean(s.hubBinary(runtime.GOARCH))); err != nil {
		return nil, err
	}
	info, err := s.info(hubName, hubDescription)
	if err != nil {
		return nil, err
	}
	// A package of this name has another /usr/bin/hub.
	info.Conflicts = []string{"hub"}
	info.Depends = []string{"systemd"}
	info.Recommends = []string{"ca-certificates"}
	return info, s.addScripts(info)
}
