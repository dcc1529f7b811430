package build

import (
	"runtime"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"

	"github.com/drover-dev/drover/packaging/install"
)

const (
	agentName        = "drover-agent"
	agentDescription = `system-agent of Drover
The agent applies the plans of a Drover hub to this machine: it writes files,
installs RKE2 or k3s from installer images, runs probes, and reports to the
hub. It replaces rancher-system-agent.
.
The service starts as soon as the machine is registered with a hub, with
"system-agent join" or the registration command of the hub.`
)

// agentPackage is the package of the system-agent. It has no configuration: that is written when the machine registers, and is not removed
// with the package.
func agentPackage(s *stage) (*nfpm.Info, error) {
	if err := s.binary("/usr/bin/rancher-system-agent", s.agentBinary(s.arch), s.arch); err != nil {
		return nil, err
	}
	// The manual, the help and the documentation call the program system-agent.
	for _, name := range []string{"system-agent", "drover-agent"} {
		s.link("/usr/bin/"+name, "rancher-system-agent")
	}
	for _, name := range []string{"rancher-system-agent", "drover-agent"} {
		s.link("/usr/share/man/man1/"+name+".1.gz", "system-agent.1.gz")
	}
	if err := s.add("/usr/lib/systemd/system/rancher-system-agent.service", "", 0o644, install.PackagedUnit()); err != nil {
		return nil, err
	}
	for _, file := range []struct{ to, typ, name string }{
		{"/usr/lib/systemd/system-preset/90-drover-agent.preset", "", "agent/90-drover-agent.preset"},
		{"/usr/lib/rancher-system-agent/packaged", "", "agent/packaged"},
		{"/etc/needrestart/conf.d/drover-agent.conf", files.TypeConfigNoReplace, "agent/needrestart.conf"},
	} {
		if err := s.embedded(file.to, file.typ, file.name); err != nil {
			return nil, err
		}
	}
	if err := s.environment("rancher-system-agent", "agent/default"); err != nil {
		return nil, err
	}
	s.directory("/etc/rancher/agent", 0o700)
	if err := s.manPages("system-agent"); err != nil {
		return nil, err
	}
	if err := s.completions("system-agent", s.agentBinary(runtime.GOARCH)); err != nil {
		return nil, err
	}
	info, err := s.info(agentName, agentDescription)
	if err != nil {
		return nil, err
	}
	info.Provides = []string{"rancher-system-agent"}
	info.Conflicts = []string{"rancher-system-agent"}
	info.Replaces = []string{"rancher-system-agent"}
	info.Depends = []string{"systemd"}
	// The install script, which "system-agent join" runs, needs curl.
	info.Recommends = []string{"ca-certificates", "curl"}
	return info, s.addScripts(info)
}
