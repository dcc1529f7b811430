package render

import "github.com/drover-dev/drover/plans"

// addCA gives servers the cluster's certificate authorities before they would make their own, so that the hub can issue a client
// certificate that the cluster accepts and knows beforehand whom to trust (docs/adr/0001-cluster-ca.md). The files count for the
// restart stamp but never change once they are delivered.
func (b *builder) addCA() {
	if !b.Machine.server() {
		return
	}
	dir := b.dataDir + "/server/tls/"
	for _, ca := range []struct {
		name string
		pair KeyPair
	}{{"client-ca", b.Cluster.CA.Client}, {"server-ca", b.Cluster.CA.Server}} {
		if ca.pair.Empty() {
			continue
		}
		b.add(plans.File{Path: dir + ca.name + ".crt", Permissions: "0644"}, ca.pair.Cert)
		b.add(plans.File{Path: dir + ca.name + ".key", Permissions: "0600"}, ca.pair.Key)
	}
}
