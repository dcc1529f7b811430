package render

import (
	"encoding/base64"
	"slices"

	"github.com/drover-dev/drover/plans"
)

// withoutCA ends the names of the variables that tell what a stamp would be if the certificate authorities did not count for it, or if the
// hub had made it, and not Rancher.
const withoutCA = "_WITHOUT_CA"

// addCA gives the server that starts the cluster the cluster's certificate authorities before it would create its own, so that the hub can
// issue a client certificate that the cluster accepts and knows beforehand whom to trust (docs/adr/0001-cluster-ca.md). From then on they
// are in the cluster's datastore: servers that join take them from there, and the distribution replaces them there. A plan that writes them
// once more may undo that (docs/adr/0025-ca-rotation.md). The other servers have the files here for stamps of earlier hubs only.
func (b *builder) addCA() {
	if !b.Machine.server() {
		return
	}
	for _, f := range b.authorityFiles() {
		i := slices.IndexFunc(b.Delivered.Files, func(d plans.File) bool { return d.Path == f.Path && d.Action == "" })
		if i >= 0 && !b.startsCluster() {
			f.Content = b.Delivered.Files[i].Content
		}
		b.files = append(b.files, file{File: f, authority: true})
	}
}

// startsCluster reports whether the machine starts the cluster, which has no certificate authorities before.
func (b *builder) startsCluster() bool { return b.Machine.Init && !b.Cluster.Bootstrapped }

// authorityFiles are the certificate authorities that the hub has given the cluster.
func (b *builder) authorityFiles() (files []plans.File) {
	dir := b.dataDir + "/server/tls/"
	for _, ca := range []struct {
		name string
		pair KeyPair
	}{{"client-ca", b.Cluster.CA.Client}, {"server-ca", b.Cluster.CA.Server}} {
		if ca.pair.Empty() {
			continue
		}
		files = append(files,
			plans.File{Path: dir + ca.name + ".crt", Permissions: "0644", Content: base64.StdEncoding.EncodeToString(ca.pair.Cert)},
			plans.File{Path: dir + ca.name + ".key", Permissions: "0600", Content: base64.StdEncoding.EncodeToString(ca.pair.Key)})
	}
	return files
}

// withoutAuthorities returns the files of a plan that are no certificate authorities, whatever those are.
func (b *builder) withoutAuthorities(files []plans.File) []plans.File {
	dir := b.dataDir + "/server/tls/"
	paths := []string{dir + "client-ca.crt", dir + "client-ca.key", dir + "server-ca.crt", dir + "server-ca.key"}
	return slices.DeleteFunc(slices.Clone(files), func(f plans.File) bool { return f.Action == "" && slices.Contains(paths, f.Path) })
}

// keepsDelivered reports whether the delivered plan differs from the wanted one in nothing but the certificate authorities, and will not be
// applied again: a cluster that was just started, or was started by an earlier hub, gets no plan for that alone. Only those that the hub
// would write itself may be in it, since what is kept is signed.
func (b *builder) keepsDelivered(wanted plans.Plan) bool {
	if !b.Machine.Applied {
		return false
	}
	own, without := b.authorityFiles(), b.Delivered
	without.Files = slices.DeleteFunc(slices.Clone(without.Files), func(f plans.File) bool { return slices.Contains(own, f) })
	return len(without.Files) < len(b.Delivered.Files) && plans.Diff(without, wanted).Empty()
}

// stamps are the variables by which installer and hub know whether something must restart. The certificate authorities do not count.
// Earlier hubs counted them: a machine keeps such a stamp, and what it would be without them, until something else changes it. So does one
// that runs as Rancher has started it.
func (b *builder) stamps(image, prefix string) (env, legacy []string) {
	delivered := install(b.Delivered)
	for _, s := range []struct {
		name string
		of   func(file) []byte
	}{{restartStamp, func(f file) []byte { return f.restart }}, {drainHash, func(f file) []byte { return f.drain }}} {
		value, had := b.stamp(image, false, s.of), stamp(delivered, s.name)
		if had != "" && had != value && (stamp(delivered, s.name+withoutCA) == value || b.keepsRancherStamps(image) ||
			had == b.stamp(image, true, s.of)) {
			legacy = append(legacy, prefix+s.name+withoutCA+"="+value)
			value = had
		}
		env = append(env, prefix+s.name+"="+value)
	}
	return env, legacy
}
