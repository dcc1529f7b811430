// Package release knows what the releases of k3s and RKE2 accept: the arguments of their configuration files with the type of each,
// the features, and the names that each distribution uses on a machine. It is data and pure functions; what a cluster makes of an
// argument is decided in hub/plan/render.
package release

import (
	"fmt"
	"slices"
	"strings"
)

// The runtimes.
const (
	// K3s is the runtime of versions such as v1.36.3+k3s1.
	K3s = "k3s"
	// RKE2 is the runtime of versions such as v1.36.3+rke2r1.
	RKE2 = "rke2"
)

// ArgType is the type of the value that an argument takes in the configuration file.
type ArgType string

// The types of arguments.
const (
	// String is a text.
	String ArgType = "string"
	// Bool is true or false.
	Bool ArgType = "bool"
	// Int is a whole number.
	Int ArgType = "int"
	// List is a list of texts; a single text is accepted too.
	List ArgType = "list"
	// Any is of an argument whose type is not known.
	Any ArgType = "any"
)

// RotateEncryptionKeys is the feature of rotating the keys of Secrets at rest with one command.
const RotateEncryptionKeys = "rotate-encryption-keys"

// RotateToken is the feature of replacing the server token of a running cluster.
const RotateToken = "rotate-token"

// ComponentCertificates is the feature of serving certificates of the controller manager and the scheduler that the distribution makes: it
// gives them a tls-cert-file, with which a cert-dir has no effect.
const ComponentCertificates = "component-certificates"

// PlainProfiles is the feature of profiles without a version of the benchmark: cis and etcd, and no cis-1.23 any more.
const PlainProfiles = "plain-profiles"

// RegistryPath is the feature of a system-default-registry with a path behind the host. A release without it does not start with one.
const RegistryPath = "registry-path"

// S3RetentionDefault is the feature of keeping as many snapshots in S3 as on the machine, where etcd-s3-retention is not set. A release
// that has the argument and not the feature keeps five then (https://github.com/k3s-io/k3s/issues/13769).
const S3RetentionDefault = "s3-retention-default"

// Release is what one version accepts. Releases share their maps, which must not be changed.
type Release struct {
	// Version is the whole version, as in "v1.36.3+k3s1".
	Version string
	// Runtime is K3s or RKE2.
	Runtime string
	// Minor is the Kubernetes minor, 36 for v1.36.3.
	Minor int
	// ServerArgs are the arguments of server nodes; they include those of agents.
	ServerArgs map[string]ArgType
	// AgentArgs are the arguments of every node.
	AgentArgs map[string]ArgType
	// Features are the names of what this release can do beyond its arguments, sorted.
	Features []string
	// Charts are the names of the charts that the release ships, sorted; empty where they are not known.
	Charts []string
	// Assumed says why the arguments are those of another release, as a sentence that starts with the version; empty where they are this
	// one's. What is not among them may still be an argument of this release.
	Assumed string
}

// Has reports whether the release has a feature.
func (r Release) Has(feature string) bool {
	return slices.Contains(r.Features, feature)
}

// Arg returns the type of an argument on a server or an agent node. A "+" at the end of a list argument's name, which makes the
// distribution append to the values of earlier files, is allowed.
func (r Release) Arg(name string, server bool) (ArgType, bool) {
	args := r.AgentArgs
	if server {
		args = r.ServerArgs
	}
	if t, ok := args[name]; ok {
		return t, true
	}
	if base, plus := strings.CutSuffix(name, "+"); plus {
		if t := args[base]; t == List {
			return List, true
		}
	}
	return "", false
}

// Runtime is the runtime that a version string belongs to: k3s if its build says so, otherwise rke2. It does not check the version.
func Runtime(version string) string {
	if _, build, ok := strings.Cut(version, "+"); ok {
		version = build
	}
	if strings.Contains(version, K3s) {
		return K3s
	}
	return RKE2
}

// Lookup returns the release of a version, from what this program was built with. Its errors are of type *VersionError.
func Lookup(version string) (Release, error) {
	return (*Catalog)(nil).Lookup(version)
}

// Check tells what is wrong with a version, in an error of type *VersionError.
func Check(version string) error {
	_, err := parse(version)
	return err
}

// VersionError says why a version cannot be used.
type VersionError struct {
	// Version is what was asked for.
	Version string
	// Problem completes the sentence that starts with the version.
	Problem string
}

// Error names the field that users write versions to.
func (e *VersionError) Error() string {
	return fmt.Sprintf("spec.kubernetesVersion: %q %s", e.Version, e.Problem)
}
