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

// checkCloudProvider refuses external addresses, which RKE2 leaves to the cloud provider, and a configuration of none.
func (b *builder) checkCloudProvider() {
	const arg, name = "node-external-ip", "cloud-provider-name"
	if b.args.text(name) != "" && len(b.args.words(arg)) > 0 {
		b.problems.fail(b.fieldOf(arg), "cannot be set together with cloud-provider-name, which sets the addresses; remove one of them")
	}
	if b.args.text(name) == "" && b.args.text(cloudProviderConfig) != "" {
		b.problems.fail(b.fieldOf(cloudProviderConfig), "needs cloud-provider-name, too; set it, or remove this")
	}
}

// checkProfile refuses a profile that the release does not have (any more), and one of CIS without what it sets itself.
func (b *builder) checkProfile() {
	const kernel = "protect-kernel-defaults"
	profile := b.args.text("profile")
	if strings.HasPrefix(profile, "cis") && b.args[kernel] == false {
		b.problems.fail(b.fieldOf(kernel), "cannot be false together with the profile %s; remove one of them", profile)
	}
	if !b.Cluster.Release.Has(release.PlainProfiles) || profile == "" || slices.Contains([]string{"cis", "etcd"}, profile) {
		return
	}
	// A release that is not known may have others.
	if b.Cluster.Release.Assumed == "" || strings.HasPrefix(profile, "cis-") {
		b.problems.fail(b.fieldOf("profile"), "is %q, which is no profile of %s; set it to cis or etcd", profile, b.Cluster.Release.Version)
	}
}

// networkPlugins are those that RKE2 has, in all releases whose arguments are known; none is for that of a user.
var networkPlugins = []string{"calico", "canal", "cilium", "flannel", "none"}

// checkCNI refuses a network plugin that RKE2 does not have, and several, unless they are multus and, behind it, another one.
func (b *builder) checkCNI() {
	const arg = "cni"
	plugins, texts := b.args.words(arg), slices.Concat(b.args.list(arg), b.args.list(arg+"+"))
	unknown := func(plugin string) bool { return plugin != "multus" && !slices.Contains(networkPlugins, plugin) }
	switch {
	case slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, " ") }):
		b.problems.fail(b.fieldOf(arg), "has a space in a name; separate the names with a comma alone")
	case b.Cluster.Release.Assumed == "" && slices.ContainsFunc(plugins, unknown):
		b.problems.fail(b.fieldOf(arg), "is %s, which RKE2 does not have; it takes %s, and multus in front of one",
			strings.Join(plugins, ", "), strings.Join(networkPlugins, ", "))
	case len(plugins) == 1 && plugins[0] == "multus":
		b.problems.fail(b.fieldOf(arg), "is multus, which works with another plugin only; name that behind it, such as multus,canal")
	case len(plugins) > 2 || len(plugins) == 2 && plugins[0] != "multus":
		b.problems.fail(b.fieldOf(arg), "has the plugins %s; it takes one, or two of which the first is multus", strings.Join(plugins, ", "))
	}
}
