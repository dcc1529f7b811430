// Package flavour holds what the distributions whose contract this fixture keeps call things, and where they have them: one table, from
// which everything else takes names, paths and ports. A process is of one flavour from its start to its end.
package flavour

import (
	"cmp"
	"os"
	"strings"
)

// VersionVariable names the environment variable with the version of the release that a process belongs to. Releases of the same patch
// version of Kubernetes share their programs, as those of k3s do, and differ in what comes after the plus.
const VersionVariable = "K3S_FIXTURE_VERSION"

// Flavour is a distribution.
type Flavour struct {
	// Program is the name of its command, and a part of most other names.
	Program string
	// SupervisorPort is the port that nodes join at, 0 where that is the port of the Kubernetes API.
	SupervisorPort int
	// StaticPods says that the control plane runs as static pods, which outlive the process of the server, instead of as its children.
	StaticPods bool
	// EncryptsSecrets says that Secrets are encrypted whatever the configuration says.
	EncryptsSecrets bool
	// CNI is the network plugin unless the configuration names another, empty where it cannot.
	CNI string
}

var (
	// K3s is the flavour of versions such as v1.36.3+k3s1, and of whatever has no version.
	K3s = Flavour{Program: "k3s"}
	// RKE2 is the flavour of versions such as v1.36.3+rke2r1.
	RKE2 = Flavour{Program: "rke2", SupervisorPort: 9345, StaticPods: true, EncryptsSecrets: true, CNI: "canal"}
)

// built is the version of a program that people start; build.sh sets it. The others learn it from the environment.
var built string

// Version is the version of this process, empty in tests.
var Version = cmp.Or(built, os.Getenv(VersionVariable))

// Current is the flavour of this process.
var Current = Of(Version)

// Of is the flavour of a version.
func Of(version string) Flavour {
	if strings.Contains(version, "+rke2") {
		return RKE2
	}
	return K3s
}

// Name puts the name of the flavour's program in the place of each * of a pattern, as in /etc/rancher/*/config.yaml.
func (f Flavour) Name(pattern string) string { return strings.ReplaceAll(pattern, "*", f.Program) }

// Variable is the name of one of the flavour's environment variables, such as K3S_TOKEN for TOKEN.
func (f Flavour) Variable(name string) string { return strings.ToUpper(f.Program) + "_" + name }

// Image is an image of the flavour's own for the Kubernetes of this process, without a registry.
func Image(name string) string {
	core, _, _ := strings.Cut(cmp.Or(Version, "v0.0.0"), "+")
	return "rancher/" + name + ":" + core
}

// Name is that of the flavour of this process.
func Name(pattern string) string { return Current.Name(pattern) }

// Variable is that of the flavour of this process.
func Variable(name string) string { return Current.Variable(name) }
