package lab

import "strings"

// Distribution is what the clusters of a lab run: a flavour of the test distribution.
type Distribution struct {
	// Runtime is its name in versions, in the name of the installer image, and in paths on a host; it is the command there, too.
	Runtime string
	// Version is what clusters are made with, NextVersion one to upgrade to.
	Version, NextVersion string
	// ServerUnit and AgentUnit are its units on hosts.
	ServerUnit, AgentUnit string
	// EncryptsSecrets says that Secrets are encrypted whatever a cluster's configuration says.
	EncryptsSecrets bool
}

var (
	// K3s is what a lab's clusters run unless somebody asks for another one.
	K3s = Distribution{Runtime: "k3s", Version: Version, NextVersion: NextVersion, ServerUnit: "k3s", AgentUnit: "k3s-agent"}
	// RKE2 runs its control plane as static pods.
	RKE2 = Distribution{Runtime: "rke2", Version: "v1.36.3+rke2r1", NextVersion: "v1.36.3+rke2r2", ServerUnit: "rke2-server",
		AgentUnit: "rke2-agent", EncryptsSecrets: true}
)

// Distributions are all of them.
var Distributions = []Distribution{K3s, RKE2}

// DistributionOf is that of a version.
func DistributionOf(version string) Distribution {
	if strings.Contains(version, "+"+RKE2.Runtime) {
		return RKE2
	}
	return K3s
}

// DataDir is where it keeps its state on a host.
func (d Distribution) DataDir() string { return "/var/lib/rancher/" + d.Runtime }

// ConfigDir is where its configuration is on a host.
func (d Distribution) ConfigDir() string { return "/etc/rancher/" + d.Runtime }

// installerRepo is where the lab's registry has its installer images.
func (d Distribution) installerRepo() string { return "rancher/system-agent-installer-" + d.Runtime }
