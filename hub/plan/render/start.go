package render

import (
	"slices"
	"strings"

	"github.com/drover-dev/drover/hub/plan/release"
)

// checkStart refuses arguments with which RKE2 ends as soon as it starts. A change to them would stop a server that runs.
func (b *builder) checkStart() {
	if b.Cluster.Release.Runtime != release.RKE2 {
		return
	}
	b.checkCloudProvider()
	if !b.Machine.windows() {
		b.checkProfile()
	}
	if b.Machine.server() {
		b.checkCNI()
	}
}

// checkCloudProvider refuses external addresses, which RKE2 leaves to the cloud provider.
func (b *builder) checkCloudProvider() {
	const arg = "node-external-ip"
	if b.args.text("cloud-provider-name") != "" && len(b.args.words(arg)) > 0 {
		b.problems.fail(b.fieldOf(arg), "cannot be set together with cloud-provider-name, which sets the addresses; remove one of them")
	}
}

// checkProfile refuses a profile that the release does not have (any more).
func (b *builder) checkProfile() {
	profile := b.args.text("profile")
	if !b.Cluster.Release.Has(release.PlainProfiles) || profile == "" || slices.Contains([]string{"cis", "etcd"}, profile) {
		return
	}
	// A release that is not known may have others.
	if b.Cluster.Release.Assumed == "" || strings.HasPrefix(profile, "cis-") {
		b.problems.fail(b.fieldOf("profile"), "is %q, which is no profile of %s; set it to cis or etcd", profile, b.Cluster.Release.Version)
	}
}

// checkCNI refuses several network plugins, unless they are multus and, behind it, another one.
func (b *builder) checkCNI() {
	const arg = "cni"
	plugins, texts := b.args.words(arg), slices.Concat(b.args.list(arg), b.args.list(arg+"+"))
	switch {
	case slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, " ") }):
		b.problems.fail(b.fieldOf(arg), "has a space in a name; separate the names with a comma alone")
	case len(plugins) == 1 && plugins[0] == "multus":
		b.problems.fail(b.fieldOf(arg), "is multus, which works with another plugin only; name that behind it, such as multus,canal")
	case len(plugins) > 2 || len(plugins) == 2 && plugins[0] != "multus":
		b.problems.fail(b.fieldOf(arg), "has the plugins %s; it takes one, or two of which the first is multus", strings.Join(plugins, ", "))
	}
}
