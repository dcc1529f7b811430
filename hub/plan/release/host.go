package release

import "strings"

// Names are what a distribution is called on a machine.
type Names struct {
	// Runtime is K3s or RKE2.
	Runtime string
	// EnvPrefix starts the names of the installer's environment variables, as in K3S_DATA_DIR.
	EnvPrefix string
	// ServerUnit and AgentUnit are systemd units without their suffix.
	ServerUnit, AgentUnit string
	// ConfigDir holds config.yaml, config.yaml.d and registries.yaml.
	ConfigDir string
	// DataDir is where state is kept unless the cluster says otherwise.
	DataDir string
	// SupervisorPort is the TCP port that nodes join at.
	SupervisorPort int
}

// APIServerPort is the TCP port of the Kubernetes API of both distributions.
const APIServerPort = 6443

// NamesOf returns the names of a runtime.
func NamesOf(runtime string) Names {
	n := Names{
		Runtime:   runtime,
		EnvPrefix: strings.ToUpper(runtime),
		ConfigDir: "/etc/rancher/" + runtime,
		DataDir:   "/var/lib/rancher/" + runtime,
	}
	if runtime == K3s {
		n.ServerUnit, n.AgentUnit, n.SupervisorPort = "k3s", "k3s-agent", APIServerPort
		return n
	}
	n.ServerUnit, n.AgentUnit, n.SupervisorPort = "rke2-server", "rke2-agent", 9345
	return n
}
